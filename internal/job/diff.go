package job

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// field is one property of a job under the name of its Terraform attribute.
type field struct {
	name string
	// inPlace properties can change while the job exists; a change of any other makes a new job.
	inPlace bool
	get     func(Spec) any
}

func fields() []field {
	return []field{
		{"namespace", false, func(s Spec) any { return s.Namespace }},
		{"name", false, func(s Spec) any { return s.Name }},
		{"framework", false, func(s Spec) any { return s.Framework }},
		{"mode", false, func(s Spec) any { return s.Mode }},
		{"roles", false, func(s Spec) any { return s.Roles }},
		{"gang", false, func(s Spec) any { return []any{s.Gang, s.Minimum} }},
		{"quota", false, func(s Spec) any { return s.Quota }},
		{"preemptible", false, func(s Spec) any { return !s.NonPreemptible }},
		{"scheduler_name", false, func(s Spec) any { return s.SchedulerName }},
		{"priority_class", false, func(s Spec) any { return s.PriorityClass }},
		{"pools", false, func(s Spec) any { return s.Pools }},
		{"node_selector", false, func(s Spec) any { return s.NodeSelector }},
		{"tolerations", false, func(s Spec) any { return s.Tolerations }},
		{"host_network", false, func(s Spec) any { return s.HostNetwork }},
		{"host_ipc", false, func(s Spec) any { return s.HostIPC }},
		{"host_pid", false, func(s Spec) any { return s.HostPID }},
		{"dns_policy", false, func(s Spec) any { return s.DNSPolicy }},
		{"service_account", false, func(s Spec) any { return s.ServiceAccount }},
		{"image_pull_secrets", false, func(s Spec) any { return s.ImagePullSecrets }},
		{"shared_memory", false, func(s Spec) any { return s.SharedMemory }},
		{"volumes", false, func(s Spec) any { return s.Volumes }},
		{"port", false, func(s Spec) any { return s.Port }},
		{"restart_policy", false, func(s Spec) any { return s.RestartPolicy }},
		{"arena_compatible", true, func(s Spec) any { return s.Arena }},
		{"queue", false, func(s Spec) any { return s.Queue }},
		{"suspend", true, func(s Spec) any { return s.Suspend }},
		{"clean_pod_policy", true, func(s Spec) any { return s.CleanPodPolicy }},
		{"backoff_limit", true, func(s Spec) any { return s.BackoffLimit }},
		{"active_deadline_seconds", true, func(s Spec) any { return s.ActiveDeadlineSeconds }},
		{"ttl_seconds_after_finished", true, func(s Spec) any { return s.TTLSecondsAfterFinished }},
		{"labels", true, func(s Spec) any { return s.Labels }},
		{"annotations", true, func(s Spec) any { return s.Annotations }},
	}
}

// Properties returns the names of all properties that [Diff] compares.
func Properties() []string {
	var names []string
	for _, f := range fields() {
		names = append(names, f.name)
	}
	return names
}

// Diff returns the names of the properties in which two jobs differ, those that
// need a new job apart from those that can change in place.
func Diff(a, b Spec) (replace, inPlace []string) {
	a, b = a.Complete(), b.Complete()
	for _, f := range fields() {
		if apiequality.Semantic.DeepEqual(f.get(a), f.get(b)) {
			continue
		}
		if f.inPlace {
			inPlace = append(inPlace, f.name)
		} else {
			replace = append(replace, f.name)
		}
	}
	return replace, inPlace
}
