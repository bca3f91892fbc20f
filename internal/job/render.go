package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Render returns the object that the job's operator runs: a PyTorchJob, an MPIJob,
// a Job, a JobSet, or a TrainJob with its runtime ([Split]). The job must have passed [Spec.Check].
func (s Spec) Render() (*unstructured.Unstructured, error) {
	s = s.Complete()
	replicas := map[string]replicaSpec{}
	ours := map[string]string{contract.ManagedByLabel: contract.ManagedByValue}
	if s.Owner != "" {
		ours[contract.OwnerLabel] = s.Owner
	}
	for _, name := range s.RoleNames() {
		replicas[camel(name)] = s.replicaSpec(name, ours)
	}
	o := object{
		TypeMeta: metav1.TypeMeta{APIVersion: s.Framework.GVK().GroupVersion().String(), Kind: s.Framework.GVK().Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   s.Namespace,
			Name:        s.Name,
			Labels:      merge(s.Labels, ours, s.arenaLabels()),
			Annotations: merge(s.Annotations, s.arenaAnnotations(), s.queueAnnotations(), s.plannedAnnotations(), s.tensorBoardAnnotations()),
		},
		Spec: objectSpec{RunPolicy: runPolicy{
			CleanPodPolicy:          s.CleanPodPolicy,
			TTLSecondsAfterFinished: s.TTLSecondsAfterFinished,
			ActiveDeadlineSeconds:   s.ActiveDeadlineSeconds,
			BackoffLimit:            s.BackoffLimit,
			Suspend:                 ptr.To(s.Suspend || s.Queue),
		}},
	}
	if s.Gang {
		// Read only by an operator that makes PodGroups of its own; both then agree.
		o.Spec.RunPolicy.SchedulingPolicy = &schedulingPolicy{MinAvailable: ptr.To(s.Minimum)}
	}
	switch s.Framework {
	case MPI:
		o.Spec.MPI = replicas
		o.Spec.SlotsPerWorker = ptr.To(int32(max(1, s.Roles[contract.ReplicaWorker].GPUs)))
	case Batch, JobSet, TrainJob:
		o.Spec.Jobs = replicas
	default:
		o.Spec.PyTorch = replicas
		if s.ProcessesPerNode != autoProcesses { // not every CRD has the field
			o.Spec.NprocPerNode = s.ProcessesPerNode
		}
	}
	var typed any = &o
	switch {
	case s.Version == contract.MPIAlphaVersion:
		typed = toAlpha(&o)
	case s.Version == contract.MPIOperatorVersion:
		s.toOperator(&o)
	case s.Framework == Batch:
		typed = toBatch(&o)
	case s.Framework == JobSet:
		typed = toJobSet(&o, JobSet)
	case s.Framework == TrainJob:
		typed = toTrainJob(&o)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("render job %s: %w", s.ID(), err)
	}
	delete(content, "status") // says who runs the job
	return &unstructured.Unstructured{Object: content}, nil
}

func (s Spec) replicaSpec(role string, ours map[string]string) replicaSpec {
	r := s.Roles[role]
	container := corev1.Container{
		Name:       s.Framework.object().container,
		Image:      r.Image,
		Command:    r.Command,
		Args:       r.Args,
		WorkingDir: r.WorkingDir,
		Ports:      s.ports(role),
		Resources:  s.resources(r),

		ImagePullPolicy: s.ImagePullPolicy,
		SecurityContext: s.security(r),
	}
	var volumes []corev1.Volume
	volumes, container.VolumeMounts = s.storage()
	variables := s.variables(r)
	for _, key := range slices.Sorted(maps.Keys(variables)) {
		container.Env = append(container.Env, corev1.EnvVar{Name: key, Value: variables[key]})
	}
	spec := corev1.PodSpec{
		Containers:        []corev1.Container{container},
		SchedulerName:     s.SchedulerName,
		PriorityClassName: s.PriorityClass,
		NodeSelector:      s.NodeSelector,
		Tolerations:       s.Tolerations,
		HostNetwork:       s.HostNetwork,
		HostIPC:           s.HostIPC,
		HostPID:           s.HostPID,
		DNSPolicy:         s.DNSPolicy,

		ServiceAccountName: s.ServiceAccount,
		Volumes:            volumes,
	}
	s.syncCode(&spec, r)
	for _, name := range s.ImagePullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if len(s.Pools) > 0 && !s.Late(role) {
		spec.Affinity = inPools(s.Pools)
	}
	annotations := merge(s.Annotations, s.arenaAnnotations())
	if role == s.carrier() {
		annotations = merge(annotations, s.plannedAnnotations())
	}
	return replicaSpec{
		Replicas:      ptr.To(r.Replicas),
		RestartPolicy: s.RestartPolicy,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      merge(s.Labels, ours, s.gangLabels(), r.gangLabels(), s.quotaLabels(), s.shareLabels(r), s.arenaPodLabels(role)),
				Annotations: annotations,
			},
			Spec: spec,
		},
	}
}

// gangLabels say how many members the job has and how many of them must run. They are the same
// on every replica: the launcher of an MPI job carries them too, and the scheduler knows it by its asking for no GPU.
func (s Spec) gangLabels() map[string]string {
	labels := map[string]string{}
	if s.Mode == Topology {
		labels[contract.TopologyGroupLabel] = s.Name
	}
	if s.Mode == Topology || s.Gang && s.Minimum < s.Members() {
		labels[contract.TopologyReplicasLabel] = strconv.Itoa(int(s.Members()))
	}
	if s.Gang {
		labels[contract.LightGangLabel] = s.Name
		labels[contract.LightGangMinLabel] = strconv.Itoa(int(s.Minimum))
	}
	return labels
}

// gangLabels say how many replicas of the role must run.
func (r Role) gangLabels() map[string]string {
	if r.Minimum == 0 {
		return nil
	}
	return map[string]string{contract.RoleMinLabel: strconv.Itoa(int(r.Minimum))}
}

// queueAnnotations tell the job queue what a suspended job waits for.
func (s Spec) queueAnnotations() map[string]string {
	if !s.Queue && !s.Suspend {
		return nil
	}
	return map[string]string{contract.QueueAnnotation: strconv.FormatBool(s.Queue)}
}

// plannedAnnotations tell the scheduler, and a later import, where the plan puts the members.
func (s Spec) plannedAnnotations() map[string]string {
	if s.Planned == "" {
		return nil
	}
	return map[string]string{contract.PlannedPlacementAnnotation: s.Planned}
}

// carrier is the role whose pods carry the planned placement: the one with the fewest members.
func (s Spec) carrier() string {
	carrier := ""
	for _, role := range s.RoleNames() {
		if !s.Late(role) && s.Roles[role].Replicas > 0 && (carrier == "" || s.Roles[role].Replicas < s.Roles[carrier].Replicas) {
			carrier = role
		}
	}
	return carrier
}

func (s Spec) quotaLabels() map[string]string {
	labels := map[string]string{}
	if s.Quota != "" {
		labels[contract.QuotaLabel] = s.Quota
	}
	if s.NonPreemptible {
		labels[contract.PreemptibleLabel] = "false"
	}
	return labels
}

// shareLabels spread a shared request over several GPUs.
func (s Spec) shareLabels(r Role) map[string]string {
	if s.Mode != Shared || r.GPUs < 2 {
		return nil
	}
	return map[string]string{contract.ResourceGPUCount: strconv.FormatInt(r.GPUs, 10)}
}

// ports declares the master's port on every replica under the name that the
// operator looks for; it would add the master's port to the workers otherwise,
// and with the host's network a worker could then not share the master's node.
func (s Spec) ports(role string) []corev1.ContainerPort {
	if s.Framework != PyTorch {
		return nil
	}
	port := s.Port
	if _, hasMaster := s.Roles[contract.ReplicaMaster]; hasMaster && s.HostNetwork && role == contract.ReplicaWorker {
		port++
	}
	return []corev1.ContainerPort{{Name: contract.PyTorchPortName, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
}

// resources asks for as much as it limits: GPUs cannot be overcommitted, and a
// replica that is slowed down slows down the whole ring.
func (s Spec) resources(r Role) corev1.ResourceRequirements {
	amounts := corev1.ResourceList{}
	set := func(name string, amount int64) {
		if amount > 0 {
			amounts[corev1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	switch s.Mode {
	case Topology:
		set(contract.ResourceTopologyGPU, r.GPUs)
	case Shared:
		set(contract.ResourceGPUMemory, r.MemoryGiB)
		set(contract.ResourceCorePercent, r.CorePercent)
	default:
		set(contract.ResourceDefaultGPU, r.GPUs)
	}
	if r.RDMA {
		set(contract.ResourceERDMA, 1)
	}
	if !r.CPU.IsZero() {
		amounts[corev1.ResourceCPU] = r.CPU
	}
	if !r.Memory.IsZero() {
		amounts[corev1.ResourceMemory] = r.Memory
	}
	if len(amounts) == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Limits: amounts, Requests: maps.Clone(amounts)}
}

func inPools(pools []string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: contract.NodePoolNameLabel, Operator: corev1.NodeSelectorOpIn, Values: pools,
				}},
			}},
		},
	}}
}

// merge returns the union of the maps; later ones win. It is nil when all are empty.
func merge(parts ...map[string]string) map[string]string {
	var all map[string]string
	for _, part := range parts {
		if len(part) > 0 && all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, part)
	}
	return all
}

// camel returns the operator's spelling of a role, "Worker".
func camel(role string) string { return strings.ToUpper(role[:1]) + role[1:] }
