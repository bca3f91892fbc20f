// Package repair deals with what gangs lose while they run: nodes and GPUs.
//
// # A member is lost
//
// A member that fails or is deleted is recreated by its job, and the planner places it
// next to the members that still run: in their network domain, and on their nodes where
// there is room. Nothing here is needed for that.
//
// # A node is lost
//
// A node is lost when its Node object is gone, when someone has declared it out of
// service (taint node.kubernetes.io/out-of-service), or when Kubernetes has marked it
// unreachable or not ready for longer than a grace. Kubernetes itself waits five minutes
// then, deletes the pods, and the deletion hangs until someone removes the Node object;
// all the while the rest of the gang holds its GPUs and waits for the dead members.
//
// So members of gangs on a lost node are failed at once: phase Failed, with the
// condition DisruptionTarget and reason NodeLost, written to the pod's status. That is
// what job operators act upon:
//
//   - PyTorchJob: restartPolicy OnFailure, Always and ExitCode recreate the member,
//     Never fails the job, which is what it says.
//   - Job: the Job controller recreates the pod within its backoffLimit; a
//     podFailurePolicy can tell the loss from a failure of the program by DisruptionTarget.
//   - MPIJob (v1) makes a worker again only when its pod no longer exists, whatever its
//     phase. Failed pods with a controller are therefore deleted a little later, when the
//     others have seen them fail.
//
// A pod that was being deleted already is deleted at once: nobody is left to confirm it.
//
// A node that cannot be reached may still run its pods for a while. When it comes back,
// its kubelet finds the pods failed and ends them. Members of a gang that write to
// shared storage after the gang has given up on them must be fenced by the job; the
// grace is the operator's to set (--unreachable-grace).
//
// Only members of gangs that this scheduler placed are touched. Pods on their own stay
// under Kubernetes' own rules.
//
// # A GPU is lost
//
// A GPU that its node agent reports unhealthy is not given to anybody (that is the
// planner's view). Members that have it keep running: many faults do not stop a
// program, and nothing that runs is evicted. Their gang is told.
//
// # Who is told
//
// The PodGroup gets the condition Degraded with the reason NodeLost or GPUUnhealthy,
// and each running member of the gang an event with the same text. The condition turns
// False when the gang runs whole and on healthy GPUs again. It is the only memory: a
// scheduler that starts continues from it.
package repair
