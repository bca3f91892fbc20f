package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Parse reads a job back from its object: the inverse of [Spec.Render]. What
// [Spec] cannot say, such as volumes of the host, is left out.
func Parse(obj *unstructured.Unstructured) (Spec, error) {
	o, framework, err := decode(obj)
	if err != nil {
		return Spec{}, err
	}
	s := specOf(o, framework)
	s.Version = VersionOf(obj)
	return s, nil
}

func specOf(o *object, framework Framework) Spec {
	run := o.Spec.RunPolicy
	s := Spec{
		Namespace:               o.Namespace,
		Name:                    o.Name,
		Framework:               framework,
		Mode:                    Default,
		Roles:                   map[string]Role{},
		Queue:                   o.Annotations[contract.QueueAnnotation] == "true",
		CleanPodPolicy:          run.CleanPodPolicy,
		BackoffLimit:            run.BackoffLimit,
		ActiveDeadlineSeconds:   run.ActiveDeadlineSeconds,
		TTLSecondsAfterFinished: run.TTLSecondsAfterFinished,
		ProcessesPerNode:        o.Spec.NprocPerNode,
		MPIImplementation:       o.Spec.MPIImplementation,
		SSHAuthMountPath:        o.Spec.SSHAuthMountPath,
		RDMADefaults:            true, // unless a role lacks them
		Owner:                   o.Labels[contract.OwnerLabel],
		Arena:                   o.Labels[contract.ArenaReleaseLabel] != "",
		TensorBoard:             parseTensorBoard(o.Annotations),
		Labels:                  users(framework, o.Labels),
		Annotations:             users(framework, o.Annotations),
	}
	// Whether a queued job is suspended is for the queue to say.
	s.Suspend = !Queued(o) && ptr.Deref(run.Suspend, false)
	if s.Arena {
		s.Labels = others(s.Labels, slices.Collect(maps.Keys(s.arenaLabels()))...)
	}
	replicas := o.Spec.replicas(framework)
	for _, name := range slices.Sorted(maps.Keys(replicas)) { // of what the job has once, the last role's counts
		replica := replicas[name]
		role := strings.ToLower(name)
		s.Roles[role] = s.parseRole(replica)
		if !s.Late(role) || s.SchedulerName == "" {
			s.parseTemplate(replica)
		}
		if port := masterPort(replica.Template.Spec); port != 0 && (s.Port == 0 || port < s.Port) {
			s.Port = port
		}
	}
	return s.Complete()
}

func (s *Spec) parseRole(replica replicaSpec) Role {
	r := Role{Replicas: ptr.Deref(replica.Replicas, 1)}
	if len(replica.Template.Spec.Containers) == 0 {
		return r
	}
	c := replica.Template.Spec.Containers[0]
	r.Image, r.Command, r.Args, r.WorkingDir = c.Image, c.Command, c.Args, c.WorkingDir
	for _, e := range c.Env {
		if r.Env == nil {
			r.Env = map[string]string{}
		}
		r.Env[e.Name] = e.Value
	}
	for name, amount := range c.Resources.Limits {
		switch string(name) {
		case contract.ResourceTopologyGPU:
			s.Mode, r.GPUs = Topology, amount.Value()
		case contract.ResourceDefaultGPU:
			r.GPUs = amount.Value()
		case contract.ResourceGPUMemory:
			s.Mode, r.MemoryGiB = Shared, amount.Value()
		case contract.ResourceCorePercent:
			s.Mode, r.CorePercent = Shared, amount.Value()
		case contract.ResourceERDMA:
			r.RDMA = true
		case string(corev1.ResourceCPU):
			r.CPU = amount
		case string(corev1.ResourceMemory):
			r.Memory = amount
		}
	}
	s.RDMADefaults = s.RDMADefaults && hasRDMADefaults(c, r)
	if n, err := strconv.ParseInt(replica.Template.Labels[contract.ResourceGPUCount], 10, 64); err == nil {
		r.GPUs = n
	}
	if n, err := strconv.ParseInt(replica.Template.Labels[contract.RoleMinLabel], 10, 32); err == nil {
		r.Minimum = int32(n)
	}
	return r
}

// parseTemplate reads what all replicas have in common.
func (s *Spec) parseTemplate(replica replicaSpec) {
	labels, pod := replica.Template.Labels, replica.Template.Spec
	s.RestartPolicy = replica.RestartPolicy
	s.parseGang(labels)
	s.Quota = labels[contract.QuotaLabel]
	s.NonPreemptible = labels[contract.PreemptibleLabel] == "false"
	s.SchedulerName, s.PriorityClass = pod.SchedulerName, pod.PriorityClassName
	s.NodeSelector, s.Tolerations = pod.NodeSelector, pod.Tolerations
	s.HostNetwork, s.HostIPC, s.HostPID = pod.HostNetwork, pod.HostIPC, pod.HostPID
	s.DNSPolicy = pod.DNSPolicy
	s.ServiceAccount, s.ImagePullSecrets = pod.ServiceAccountName, nil
	for _, secret := range pod.ImagePullSecrets {
		s.ImagePullSecrets = append(s.ImagePullSecrets, secret.Name)
	}
	if len(pod.Containers) > 0 {
		s.ImagePullPolicy = pod.Containers[0].ImagePullPolicy
	}
	s.parseStorage(pod)
	s.CodeSync = parseCodeSync(pod)
	if pools := poolsOf(pod.Affinity); pools != nil {
		s.Pools = pools
	}
}

// parseGang reads the first of the three spellings of a gang that the labels have, in the
// scheduler's order. How many members must run the label of a PodGroup does not say: all. The
// provider writes the topology labels on pods that are no gang, too.
func (s *Spec) parseGang(labels map[string]string) {
	spellings := []struct{ name, minimum string }{
		{contract.PodGroupLabel, ""},
		{contract.LightGangLabel, contract.LightGangMinLabel},
		{contract.TopologyGroupLabel, contract.TopologyReplicasLabel},
	}
	if labels[contract.ManagedByLabel] == contract.ManagedByValue {
		spellings = spellings[:2]
	}
	for _, spelling := range spellings {
		if name := labels[spelling.name]; name == "" || name == "false" {
			continue
		}
		s.Gang = true
		if n, err := strconv.ParseInt(labels[spelling.minimum], 10, 32); err == nil && n > 0 {
			s.Minimum = int32(n)
		}
		return
	}
}

// poolsOf returns the pools of the affinity that [inPools] makes, nil for any other.
func poolsOf(a *corev1.Affinity) []string {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == contract.NodePoolNameLabel && e.Operator == corev1.NodeSelectorOpIn {
				return e.Values
			}
		}
	}
	return nil
}

func masterPort(pod corev1.PodSpec) int32 {
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			if p.Name == contract.PyTorchPortName {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// users returns the entries that a user may have set on a framework's job, nil when there are none: what the
// provider, Kubernetes, kubectl and operators write is left out.
func users(framework Framework, all map[string]string) map[string]string {
	return others(all, slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(key string) bool { return reservedFor(framework, key) == "" })...)
}

// others returns the entries whose keys are not ours, nil when none is left.
func others(all map[string]string, ours ...string) map[string]string {
	var rest map[string]string
	for key, value := range all {
		if slices.Contains(ours, key) {
			continue
		}
		if rest == nil {
			rest = map[string]string{}
		}
		rest[key] = value
	}
	return rest
}
