package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Problem is one rule that a job breaks.
type Problem struct {
	// Field is the attribute, Role the role that it belongs to; "" for the job's own.
	Field, Role string
	// Text says what is wrong and what to do.
	Text string
}

// Check lists every rule that the job breaks, the job's own first, then by role. Roles of
// a framework that does not exist are not looked at.
func (s Spec) Check() []Problem {
	var problems []Problem
	add := func(role, field, format string, args ...any) {
		problems = append(problems, Problem{Field: field, Role: role, Text: fmt.Sprintf(format, args...)})
	}
	s.checkJob(add)
	s.checkSize(add)
	s.checkMarks(add)
	s.checkWhere(add)
	if !slices.Contains(Frameworks(), s.Framework) {
		return problems
	}
	for _, name := range s.RoleNames() {
		if name == "" {
			if s.Framework.AsJobSet() {
				add("", "roles", "a role has no name")
			} else {
				add("", "roles", "a role has no name: framework %q has the roles %s", s.Framework, strings.Join(s.Framework.Roles(), " and "))
			}
			continue
		}
		if !s.Framework.Has(name) {
			add(name, "", "framework %q has the roles %s; there is no role %q", s.Framework, strings.Join(s.Framework.Roles(), " and "), short(name))
			continue
		}
		s.checkRole(name, add)
		s.Roles[name].checkAmounts(name, add)
		s.Roles[name].checkContainer(name, add)
	}
	return problems
}

type report func(role, field, format string, args ...any)

func (s Spec) checkJob(add report) {
	s.checkName(add)
	for _, text := range validation.IsDNS1123Label(s.Namespace) {
		add("", "namespace", "%q cannot be a namespace: %s", short(s.Namespace), text)
	}
	if _, ok := s.Roles[contract.ReplicaWorker]; !ok && s.Framework == MPI {
		add("", "roles", "framework %q needs the role %q", s.Framework, contract.ReplicaWorker)
	}
	if _, ok := s.Roles[contract.ReplicaWorker]; !ok && s.Framework == Batch {
		add("", "roles", "framework %q needs the role %q", s.Framework, contract.ReplicaWorker)
	}
	if len(s.Roles) == 0 && s.Framework == PyTorch {
		add("", "roles", "framework %q needs the role %q or %q", s.Framework, contract.ReplicaMaster, contract.ReplicaWorker)
	}
	if len(s.Roles) == 0 && s.Framework.AsJobSet() {
		add("", "roles", "framework %q needs a role, such as %q", s.Framework, contract.ReplicaWorker)
	}
	if trains := slices.ContainsFunc(slices.Collect(maps.Values(s.Roles)), Role.asksForGPUs); len(s.Roles) > 0 && !trains {
		want := "gpus"
		if s.Mode == Shared {
			want = "memory_gib"
		}
		add("", "roles", "no role asks for GPUs: set %q on the roles that train", want)
	}
	if s.Queue && s.Suspend {
		add("", "suspend", "a queued job is suspended until the queue releases it: leave suspend out, or queue")
	}
	if s.Suspend && s.Labels[contract.KueueQueueLabel] != "" {
		add("", "suspend", "Kueue suspends a job with the label %s until it lets it start: leave suspend out, or the label", contract.KueueQueueLabel)
	}
	s.checkPods(add)
	s.checkCodeSync(add)
	s.checkTensorBoard(add)
	s.checkProcesses(add)
	s.checkMPI(add)
	s.checkBatch(add)
	s.checkJobSet(add)
	s.checkTrainJob(add)
	if !s.Gang && s.Mode == Topology && s.Members() > 1 {
		add("", "gang", "mode %q places all members together, so they are a gang: leave gang enabled, or use mode %q", Topology, Default)
	}
	s.checkMinima(add)
	if s.Minimum < 0 {
		add("", "gang", "at least 1 member must run, not %d: leave minimum out instead", s.Minimum)
	}
	if s.Gang && s.Minimum > s.Members() {
		replicas := "replicas ask"
		if s.Members() == 1 {
			replicas = "replica asks"
		}
		add("", "gang", "minimum is %d, but only %d %s for GPUs, and only those are members", s.Minimum, s.Members(), replicas)
	}
}

// checkName holds the rules of names: operators make Services of the job's name, Kubernetes only hosts.
// The roles of a JobSet are parts of the names of its Jobs.
func (s Spec) checkName(add report) {
	faults, called := validation.IsDNS1035Label, "pod name"
	if s.Framework == Batch {
		faults, called = validation.IsDNS1123Label, "host name"
	}
	for _, text := range faults(s.Name) {
		add("", "name", "%q cannot be the name of a job: %s", short(s.Name), text)
	}
	if s.Framework.AsJobSet() {
		for _, role := range s.RoleNames() {
			for _, text := range validation.IsDNS1123Label(role) {
				if role != "" {
					add(role, "", "%q cannot be the name of a role: %s", short(role), text)
				}
			}
		}
	}
	const most = validation.DNS1123LabelMaxLength
	if longest := s.longestPod(); len(s.Name) <= most && len(longest) > most {
		add("", "name", "the %s %q would have %d characters, at most %d are allowed: shorten the job's name by %d", called, longest, len(longest), most, len(longest)-most)
	}
}

// chance is what Kubernetes adds to names so that they are unique.
const chance = "-abcde"

// checkProcesses holds the rules of the processes that a replica starts.
func (s Spec) checkProcesses(add report) {
	switch n, err := strconv.Atoi(s.ProcessesPerNode); {
	case s.ProcessesPerNode == "":
	case s.Framework == Batch || s.Framework.AsJobSet():
		add("", "nproc_per_node", "nothing starts processes for framework %q but its command: leave nproc_per_node out", s.Framework)
	case s.Framework == MPI:
		add("", "nproc_per_node", "mpirun starts the processes of framework %q, as its command says: leave nproc_per_node out", MPI)
	case !slices.Contains([]string{autoProcesses, "cpu", "gpu"}, s.ProcessesPerNode) && (err != nil || n < 1):
		add("", "nproc_per_node", "%q is no number of processes: use one from 1, or \"auto\", \"gpu\" or \"cpu\"", short(s.ProcessesPerNode))
	}
}

// checkMinima holds the rules of roles with a minimum of their own.
func (s Spec) checkMinima(add report) {
	together := int32(0)
	for _, name := range s.RoleNames() {
		r := s.Roles[name]
		switch {
		case r.Minimum == 0 && s.needsMaster(name):
			together += r.Replicas
		case r.Minimum == 0:
		case r.Minimum < 0:
			add(name, "minimum", "at least 1 replica must run, not %d: leave minimum out instead", r.Minimum)
		case !s.Gang:
			add(name, "minimum", "the job is no gang, so every replica starts by itself: leave minimum out, or gang enabled")
		case s.Late(name):
			add(name, "minimum", "the role asks for no GPU, so it is no member of the gang: leave minimum out")
		case r.Minimum > r.Replicas:
			add(name, "minimum", "minimum is %d, but the role has %s", r.Minimum, replicas(r.Replicas))
		default:
			together += r.Minimum
		}
	}
	if s.Gang && s.Minimum > 0 && together > s.Minimum {
		add("", "gang", "minimum is %d, but the minima of the roles are %d together: raise it, or leave it out", s.Minimum, together)
	}
}

// needsMaster reports whether a role is the master of a gang that needs only some of its members:
// the others meet at it, so the gang always needs it ([inventory.Gang]).
func (s Spec) needsMaster(role string) bool {
	return role == contract.ReplicaMaster && !s.Late(role) && s.Gang && s.Minimum > 0 && s.Minimum < s.Members()
}

// Unlike lists in what replicas of other roles ask for something else than those of the first role, which
// ACK's scheduler cannot place in mode Topology ("GPU topology-aware scheduling": all pods of a job request the same,
// but for the launcher of an MPI job, which its own example has).
func (s Spec) Unlike() (problems []Problem) {
	roles := slices.DeleteFunc(s.RoleNames(), func(role string) bool { return s.Framework == MPI && role == contract.ReplicaLauncher })
	if s.Mode != Topology || len(roles) < 2 {
		return nil
	}
	plain := func(q resource.Quantity) string { return strconv.FormatInt(q.MilliValue(), 10) } // however it is spelled
	asks := func(role string) []struct{ field, amount, written string } {
		r := s.Roles[role]
		gpus, rdma := strconv.FormatInt(r.GPUs, 10), strconv.FormatBool(r.RDMA)
		return []struct{ field, amount, written string }{
			{"gpus", gpus, gpus}, {"cpu", plain(r.CPU), r.CPU.String()}, {"memory", plain(r.Memory), r.Memory.String()}, {"rdma", rdma, rdma},
		}
	}
	first := asks(roles[0])
	for _, name := range roles[1:] {
		for i, own := range asks(name) {
			if own.amount != first[i].amount {
				problems = append(problems, Problem{Field: own.field, Role: name, Text: fmt.Sprintf("%s is %s, and that of role %q is %s", own.field, own.written, roles[0], first[i].written)})
			}
		}
	}
	return problems
}

func replicas(n int32) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// checkPods holds the rules of what the pods get beside their containers.
func (s Spec) checkPods(add report) {
	if s.ServiceAccount != "" {
		for _, text := range validation.IsDNS1123Subdomain(s.ServiceAccount) {
			add("", "service_account", "%q cannot be a service account: %s", short(s.ServiceAccount), text)
		}
	}
	for _, name := range s.ImagePullSecrets {
		for _, text := range validation.IsDNS1123Subdomain(name) {
			add("", "image_pull_secrets", "%q cannot be a secret: %s", short(name), text)
		}
	}
	if fault := memoryFault(s.SharedMemory); fault != "" {
		add("", "shared_memory", "%s", fault)
	}
	taken := map[string]string{}
	if !s.SharedMemory.IsZero() {
		taken[sharedMemoryPath] = "shared_memory"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Volumes)) {
		v := s.Volumes[name]
		for _, text := range validation.IsDNS1123Label(name) {
			add("", "volumes", "%q cannot be the name of a volume: %s", short(name), text)
		}
		if name == sharedMemoryVolume {
			add("", "volumes", "the name %q is kept for shared_memory: choose another", name)
		}
		for _, text := range validation.IsDNS1123Subdomain(v.Claim) {
			add("", "volumes", "volume %q: %q cannot be a volume claim: %s", short(name), short(v.Claim), text)
		}
		if !strings.HasPrefix(v.MountPath, "/") || strings.ContainsAny(v.MountPath, ":\x00") {
			add("", "volumes", "volume %q: %q is not a path in the container: start it with a slash, and leave out colons", short(name), short(v.MountPath))
		}
		if other := taken[v.MountPath]; other != "" {
			add("", "volumes", "volume %q: %s is taken by %s", short(name), short(v.MountPath), other)
		}
		taken[v.MountPath] = fmt.Sprintf("volume %q", name)
	}
}

// longestPod is the longest name that pods have, or of a Job their hosts, whose pods' names are cut (Kubernetes:
// pkg/apis/batch/validation, ValidateJob; pkg/controller/job, podGenerateNameWithIndex). A JobSet is refused
// whose pods have names that would be cut (JobSet: pkg/webhooks/jobset_webhook.go).
func (s Spec) longestPod() string {
	last := func(role string) int { return int(max(s.Roles[role].Replicas-1, 0)) }
	if s.Framework == Batch {
		return s.Name + "-" + strconv.Itoa(last(contract.ReplicaWorker))
	}
	longest := ""
	for _, name := range slices.DeleteFunc(s.RoleNames(), func(name string) bool { return !s.Framework.Has(name) }) {
		pod := s.Name + "-" + MemberName(name, last(name))
		if s.Framework.AsJobSet() {
			pod = objectName(s.Name, name, 0) + "-" + strconv.Itoa(last(name)) + chance
		}
		if len(pod) > len(longest) {
			longest = pod
		}
	}
	return longest
}

func (s Spec) checkRole(name string, add report) {
	r := s.Roles[name]
	leading := !s.Framework.AsJobSet() && name != contract.ReplicaWorker
	switch {
	case r.Replicas < 1:
		add(name, "replicas", "a role has at least 1 replica, not %d: leave the role out instead", r.Replicas)
	case leading && r.Replicas != 1:
		add(name, "replicas", "a job has 1 %s, not %d: put the others into the role %q", name, r.Replicas, contract.ReplicaWorker)
	}
	if r.Image == "" {
		add(name, "image", "no image: set it here or for the whole job")
	}
	if s.Framework == MPI && name == contract.ReplicaLauncher && (r.GPUs > 0 || r.MemoryGiB > 0 || r.CorePercent > 0) {
		add(name, "gpus", "the launcher starts the workers' processes and gets no GPU: give the GPUs to the role %q", contract.ReplicaWorker)
		return
	}
	if s.Mode == Shared {
		s.checkShare(name, r, add)
		return
	}
	if r.MemoryGiB != 0 {
		add(name, "memory_gib", "mode %q asks for whole GPUs: use \"gpus\", or mode %q", s.Mode, Shared)
	}
	if r.CorePercent != 0 {
		add(name, "core_percent", "mode %q asks for whole GPUs: use \"gpus\", or mode %q", s.Mode, Shared)
	}
}

// checkShare holds the rules of shared GPUs (Alibaba Cloud: "Allocate computing
// power by scheduling shared GPU", "multi-GPU sharing").
func (s Spec) checkShare(name string, r Role, add report) {
	if r.MemoryGiB == 0 && (r.GPUs > 0 || r.CorePercent > 0) {
		add(name, "memory_gib", "mode %q needs the GPU memory in GiB", Shared)
	}
	if r.GPUs > 1 && r.MemoryGiB > 0 && r.MemoryGiB%r.GPUs != 0 {
		add(name, "memory_gib", "%d GiB cannot be spread evenly over %d GPUs: use a multiple of %d", r.MemoryGiB, r.GPUs, r.GPUs)
	}
	switch {
	case r.CorePercent == 0:
	case r.GPUs > 1:
		add(name, "core_percent", "a part of %d shared GPUs can limit memory only, not compute: leave core_percent out, or use 1 GPU", r.GPUs)
	case r.CorePercent%5 != 0 || r.CorePercent < 5 || r.CorePercent > 100:
		add(name, "core_percent", "%d is no multiple of 5 from 5 to 100: use %d", r.CorePercent, min(100, max(5, (r.CorePercent+2)/5*5)))
	}
}
