package job

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// MPIJob kubeflow.org/v2beta1, the MPI operator's (mpi-operator v0.6.0 pkg/apis/kubeflow/v2beta1,
// pkg/controller), has the shape of the training operator's v1. Its launcher reaches the workers by SSH.

// mpiOperator is the value of the label [contract.JobOperatorNameLabel] on pods of MPIJobs v2beta1.
const mpiOperator = "mpi-operator"

// operatorVersion is the version of MPIJob that the MPI operator knows.
var operatorVersion = schema.GroupVersion{Group: contract.KubeflowGroup, Version: contract.MPIOperatorVersion}

// When the MPI operator creates the launcher: together with the workers, or when all of them are ready.
const (
	launcherAtStartup    = "AtStartup"
	launcherAfterWorkers = "WaitForWorkersReady"
)

// Implementations returns those of MPI by which the MPI operator tells a launcher where the workers are, its
// default first.
func Implementations() []string { return []string{"OpenMPI", "Intel", "MPICH"} }

// defaultSSHPath is where pods have the keys by which a launcher reaches its workers, unless the job says otherwise.
const defaultSSHPath = "/root/.ssh"

// VersionOf returns the version of MPIJob that an object is written in, "" for the training operator's and for other
// kinds. A server that serves v1alpha1 beside others shows it under any version, so it is known by its shape.
func VersionOf(obj *unstructured.Unstructured) string {
	switch {
	case Alpha(obj):
		return contract.MPIAlphaVersion
	case obj.GroupVersionKind() == operatorVersion.WithKind(contract.MPIJobKind):
		return contract.MPIOperatorVersion
	}
	return ""
}

// toOperator gives an MPIJob of v1 what v2beta1 has beside it. Its pods get the label with their role by which those of
// the training operator are known. The launcher of a gang that runs with a part of its members cannot wait for all of them.
func (s Spec) toOperator(o *object) {
	o.APIVersion = operatorVersion.String()
	o.Spec.MPIImplementation, o.Spec.SSHAuthMountPath = s.MPIImplementation, s.SSHAuthMountPath
	o.Spec.LauncherCreationPolicy = launcherAfterWorkers
	if s.Gang && s.Minimum < s.Members() {
		o.Spec.LauncherCreationPolicy = launcherAtStartup
	}
	for name, replica := range o.Spec.MPI {
		replica.Template.Labels = merge(replica.Template.Labels, map[string]string{contract.JobReplicaTypeLabel: strings.ToLower(name)})
		o.Spec.MPI[name] = replica
	}
}

// completeMPI says what the MPI operator implies.
func (s *Spec) completeMPI() {
	if s.Framework != MPI {
		return
	}
	if s.MPIImplementation == "" {
		s.MPIImplementation = Implementations()[0]
	}
	if s.SSHAuthMountPath == "" {
		s.SSHAuthMountPath = defaultSSHPath
	}
}

// checkMPI holds the rules of what only the MPI operator knows.
func (s Spec) checkMPI(add report) {
	if s.Framework != MPI {
		for _, field := range [][2]string{{"mpi_implementation", s.MPIImplementation}, {"ssh_auth_mount_path", s.SSHAuthMountPath}} {
			if field[1] != "" {
				add("", field[0], "only jobs of framework %q have it: leave %s out", MPI, field[0])
			}
		}
		return
	}
	if s.MPIImplementation != "" && !slices.Contains(Implementations(), s.MPIImplementation) {
		add("", "mpi_implementation", "%q is not possible: use one of %s", short(s.MPIImplementation), strings.Join(Implementations(), ", "))
	}
	if s.SSHAuthMountPath != "" && (!path.IsAbs(s.SSHAuthMountPath) || strings.ContainsAny(s.SSHAuthMountPath, ":\x00")) {
		add("", "ssh_auth_mount_path", "%q is not a path in the container: start it with a slash, and leave out colons", short(s.SSHAuthMountPath))
	}
}

// VersionFaults lists what the version of an MPIJob cannot say of the job, in the order of [Spec.Check].
func (s Spec) VersionFaults() []Problem {
	s = s.Complete()
	var problems []Problem
	add := func(role, field, format string, args ...any) {
		problems = append(problems, Problem{Field: field, Role: role, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case s.Framework != MPI:
		return nil
	case s.Version == contract.MPIOperatorVersion:
		s.operatorFaults(add)
		return problems
	case s.Version == contract.MPIAlphaVersion:
		s.alphaFaults(add)
	}
	if s.MPIImplementation != Implementations()[0] {
		add("", "mpi_implementation", "its operator knows %s alone", Implementations()[0])
	}
	if s.SSHAuthMountPath != defaultSSHPath {
		add("", "ssh_auth_mount_path", "its launcher reaches the workers by kubectl, without keys")
	}
	return problems
}

func (s Spec) operatorFaults(add report) {
	if s.RestartPolicy != string(corev1.RestartPolicyNever) && s.RestartPolicy != string(corev1.RestartPolicyOnFailure) {
		add("", "restart_policy", "%q is not possible: use \"Never\" or \"OnFailure\"", s.RestartPolicy)
	}
	if s.TTLSecondsAfterFinished != nil {
		add("", "ttl_seconds_after_finished", "its operator deletes the launcher after it, and leaves the job and the workers")
	}
	if worker := s.Roles[contract.ReplicaWorker]; s.HostNetwork && len(worker.Command) == 0 && len(worker.Args) == 0 {
		add("", "host_network", "its workers run sshd on port 22, which is the node's own on the host's network: set host_network = false, or give the workers a command that runs it on another port")
	}
}

// operatorPod is a pod of an MPIJob v2beta1: a worker, or of the Job with its launcher.
func operatorPod(o *object, role string, index int, template corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace,
			Name:      objectName(o.Name, role, index),
			Labels: merge(template.Labels, map[string]string{
				contract.JobOperatorNameLabel: mpiOperator, contract.JobNameLabel: o.Name, contract.JobRoleLabel: role,
			}),
			Annotations: template.Annotations,
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if role == contract.ReplicaLauncher {
		p.Name = o.Name + "-" + role
		p.Labels[batchv1.JobNameLabel] = p.Name
	} else {
		p.Labels[contract.JobReplicaIndexLabel] = strconv.Itoa(index)
	}
	SetDefaults(&p.Spec)
	return p
}

// keepOperator is [Keep] for an MPIJob v2beta1: when its launcher comes is decided already, and the roles that someone
// else has written stay theirs, of which another description needs a new job.
func keepOperator(rendered, live *unstructured.Unstructured) error {
	if policy, found, _ := unstructured.NestedString(live.Object, "spec", "launcherCreationPolicy"); found {
		if err := unstructured.SetNestedField(rendered.Object, policy, "spec", "launcherCreationPolicy"); err != nil {
			return fmt.Errorf("render %s %s/%s: %w", live.GetKind(), live.GetNamespace(), live.GetName(), err)
		}
	}
	for _, role := range MPI.Roles() {
		at := []string{"spec", "mpiReplicaSpecs", camel(role)}
		labels, _, _ := unstructured.NestedStringMap(live.Object, slices.Concat(at, []string{"template", "metadata", "labels"})...)
		if labels[contract.ManagedByLabel] != contract.ManagedByValue {
			unstructured.RemoveNestedField(rendered.Object, at...)
		}
	}
	return nil
}
