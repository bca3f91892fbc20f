package trainingjob

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// drift takes over what someone changed in the job's object. Labels and
// annotations that others added are theirs.
func (m *model) drift(ctx context.Context, obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	live, err := job.Parse(obj)
	if err != nil {
		diags.AddError("Job cannot be read", session.Sentence(err))
		return diags
	}
	known, _, diags := m.spec(ctx)
	live.Labels, live.Annotations = shared(live.Labels, known.Labels), shared(live.Annotations, known.Annotations)
	replace, inPlace := job.Diff(known, live)
	m.take(ctx, live, slices.Concat(replace, inPlace), &diags)
	return diags
}

// takeOver fills in an imported job from its object.
func (m *model) takeOver(ctx context.Context, obj *unstructured.Unstructured) (diags diag.Diagnostics) {
	live, err := job.Parse(obj)
	if err != nil {
		diags.AddError("Job cannot be imported", session.Sentence(err))
		return diags
	}
	m.ID = types.StringValue(live.ID())
	m.Triggers = types.MapNull(types.StringType)
	m.take(ctx, live, job.Properties(), &diags)

	m.setPlanned(nil)
	switch record, ok, err := contract.PlannedPlacementFrom(obj.GetAnnotations()); {
	case err != nil:
		diags.AddWarning("Planned placement is lost", session.Sentence(err))
	case ok:
		m.setPlanned(assignment.FromRecord(record))
	}
	return diags
}

// take sets the attributes behind the named properties of a job.
func (m *model) take(ctx context.Context, s job.Spec, properties []string, diags *diag.Diagnostics) {
	for _, property := range properties {
		switch property {
		case "namespace":
			m.Namespace = types.StringValue(s.Namespace)
		case "name":
			m.Name = types.StringValue(s.Name)
		case "framework":
			m.Framework = types.StringValue(string(s.Framework))
		case "mode":
			m.Mode = types.StringValue(string(s.Mode))
		case "roles":
			m.takeRoles(ctx, s, diags)
		case "gang":
			m.Gang = gangValue(s)
		case "quota":
			m.Quota = optional(s.Quota)
		case "preemptible":
			m.Preemptible = types.BoolNull()
			if s.NonPreemptible {
				m.Preemptible = types.BoolValue(false)
			}
		case "scheduler_name":
			m.SchedulerName = implied(s.SchedulerName, contract.SchedulerName)
		case "priority_class":
			m.PriorityClass = optional(s.PriorityClass)
		case "pools":
			m.PoolNames = listValue(s.Pools)
		case "node_selector":
			m.NodeSelector = mapValue(s.NodeSelector)
		case "tolerations":
			m.Tolerations = tolerationsValue(ctx, s.Tolerations, diags)
		case "host_network":
			m.HostNetwork = set(s.HostNetwork)
		case "host_ipc":
			m.HostIPC = set(s.HostIPC)
		case "host_pid":
			m.HostPID = set(s.HostPID)
		case "dns_policy":
			m.DNSPolicy = implied(string(s.DNSPolicy), string(job.Spec{HostNetwork: s.HostNetwork}.Complete().DNSPolicy))
		case "service_account":
			m.ServiceAccount = optional(s.ServiceAccount)
		case "image_pull_secrets":
			m.ImagePullSecrets = listValue(s.ImagePullSecrets)
		case "shared_memory":
			m.SharedMemory = types.StringNull()
			if !s.SharedMemory.IsZero() {
				m.SharedMemory = types.StringValue(s.SharedMemory.String())
			}
		case "volumes":
			m.Volumes = volumesValue(s.Volumes)
		case "port":
			m.Port = types.Int32Null()
			if s.Port != 0 && s.Port != contract.PyTorchPort {
				m.Port = types.Int32Value(s.Port)
			}
		case "restart_policy":
			m.RestartPolicy = implied(s.RestartPolicy, job.Spec{Framework: s.Framework}.Complete().RestartPolicy)
		case "arena_compatible":
			m.ArenaCompatible = set(s.Arena)
		case "suspend":
			m.Suspend = set(s.Suspend)
		case "queue":
			m.Queue = set(s.Queue)
		case "clean_pod_policy":
			m.CleanPodPolicy = implied(s.CleanPodPolicy, job.Spec{}.Complete().CleanPodPolicy)
		case "backoff_limit":
			m.BackoffLimit = types.Int32PointerValue(s.BackoffLimit)
		case "active_deadline_seconds":
			m.ActiveDeadlineSeconds = types.Int64PointerValue(s.ActiveDeadlineSeconds)
		case "ttl_seconds_after_finished":
			m.TTLSecondsAfterFinished = types.Int32PointerValue(s.TTLSecondsAfterFinished)
		case "labels":
			m.Labels = mapValue(s.Labels)
		case "annotations":
			m.Annotations = mapValue(s.Annotations)
		}
	}
}

// takeRoles says for the whole job what all roles have in common.
func (m *model) takeRoles(ctx context.Context, s job.Spec, diags *diag.Diagnostics) {
	leading := s.Roles[s.RoleNames()[0]]
	same := func(get func(job.Role) any) bool {
		for _, r := range s.Roles {
			if !apiequality.Semantic.DeepEqual(get(r), get(leading)) {
				return false
			}
		}
		return true
	}
	image := same(func(r job.Role) any { return r.Image })
	dir := same(func(r job.Role) any { return r.WorkingDir })
	env := same(func(r job.Role) any { return r.Env })
	// The command of an MPI job is its launcher's, which comes first in the alphabet.
	command := s.Framework == job.MPI || same(func(r job.Role) any { return [][]string{r.Command, r.Args} })

	m.Image, m.WorkingDir, m.Env = types.StringNull(), types.StringNull(), types.MapNull(types.StringType)
	m.Command, m.Args = types.ListNull(types.StringType), types.ListNull(types.StringType)
	if image {
		m.Image = optional(leading.Image)
	}
	if dir {
		m.WorkingDir = optional(leading.WorkingDir)
	}
	if env {
		m.Env = mapValue(leading.Env)
	}
	if command {
		m.Command, m.Args = listValue(leading.Command), listValue(leading.Args)
	}
	roles := map[string]roleModel{}
	for name, r := range s.Roles {
		rm := roleModel{
			Replicas:    types.Int32Value(r.Replicas),
			Minimum:     types.Int32Null(),
			GPUs:        positive(r.GPUs),
			MemoryGiB:   positive(r.MemoryGiB),
			CorePercent: positive(r.CorePercent),
			Command:     types.ListNull(types.StringType),
			Args:        types.ListNull(types.StringType),
			Env:         types.MapNull(types.StringType),
		}
		if r.Minimum > 0 && (r.Minimum < r.Replicas || !minimumOfRoles(s)) {
			rm.Minimum = types.Int32Value(r.Minimum)
		}
		if !r.CPU.IsZero() {
			rm.CPU = types.StringValue(r.CPU.String())
		}
		if !r.Memory.IsZero() {
			rm.Memory = types.StringValue(r.Memory.String())
		}
		if r.RDMA {
			rm.RDMA = types.BoolValue(true)
		}
		if !image {
			rm.Image = optional(r.Image)
		}
		if !dir {
			rm.WorkingDir = optional(r.WorkingDir)
		}
		if !env {
			rm.Env = mapValue(r.Env)
		}
		if !command || s.Framework == job.MPI && name != contract.ReplicaLauncher {
			rm.Command, rm.Args = listValue(r.Command), listValue(r.Args)
		}
		roles[name] = rm
	}
	value, roleDiags := types.MapValueFrom(ctx, roleType, roles)
	diags.Append(roleDiags...)
	m.Roles = value
}

func gangValue(s job.Spec) types.Object {
	enabled, minimum := types.BoolNull(), types.Int32Null()
	switch {
	case !s.Gang:
		enabled = types.BoolValue(false)
	case s.Minimum != s.Members() && !minimumOfRoles(s):
		minimum = types.Int32Value(s.Minimum)
	default:
		return types.ObjectNull(gangType.AttrTypes)
	}
	return types.ObjectValueMust(gangType.AttrTypes, map[string]attr.Value{"enabled": enabled, "minimum": minimum})
}

// minimumOfRoles reports whether the minimum of the gang is what the minima of its roles imply.
func minimumOfRoles(s job.Spec) bool {
	without := s
	without.Minimum = 0
	without.Roles = maps.Clone(s.Roles)
	for name, r := range without.Roles {
		if r.Minimum == r.Replicas {
			r.Minimum = 0
			without.Roles[name] = r
		}
	}
	implied := without.Complete()
	return s.Minimum < s.Members() && implied.Minimum == s.Minimum && apiequality.Semantic.DeepEqual(implied.Roles, s.Roles)
}

func tolerationsValue(ctx context.Context, tolerations []corev1.Toleration, diags *diag.Diagnostics) types.List {
	if len(tolerations) == 0 {
		return types.ListNull(tolerationType)
	}
	models := make([]tolerationModel, len(tolerations))
	for i, t := range tolerations {
		models[i] = tolerationModel{
			Key:      optional(t.Key),
			Operator: implied(string(t.Operator), string(corev1.TolerationOpEqual)),
			Value:    optional(t.Value),
			Effect:   optional(string(t.Effect)),
		}
	}
	list, listDiags := types.ListValueFrom(ctx, tolerationType, models)
	diags.Append(listDiags...)
	return list
}

// shared returns the entries of all whose keys are in known.
func shared(all, known map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { _, ok := known[key]; return !ok })
	return out
}

func optional(text string) types.String { return implied(text, "") }

// implied is null for the value that an attribute without a value has.
func implied(text, without string) types.String {
	if text == "" || text == without {
		return types.StringNull()
	}
	return types.StringValue(text)
}

// set is null for what is off without being written.
func set(on bool) types.Bool {
	if !on {
		return types.BoolNull()
	}
	return types.BoolValue(true)
}

func positive(n int64) types.Int64 {
	if n == 0 {
		return types.Int64Null()
	}
	return types.Int64Value(n)
}

func mapValue(in map[string]string) types.Map {
	if len(in) == 0 {
		return types.MapNull(types.StringType)
	}
	elements := map[string]attr.Value{}
	for key, value := range in {
		elements[key] = types.StringValue(value)
	}
	return types.MapValueMust(types.StringType, elements)
}

func listValue(in []string) types.List {
	if len(in) == 0 {
		return types.ListNull(types.StringType)
	}
	elements := make([]attr.Value, len(in))
	for i, text := range in {
		elements[i] = types.StringValue(text)
	}
	return types.ListValueMust(types.StringType, elements)
}
