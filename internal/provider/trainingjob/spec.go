package trainingjob

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/amount"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// unknownImage stands for an image that is unknown until apply: which one it is
// says nothing about where the job runs.
const unknownImage = "(known after apply)"

// reader turns attributes into a job, and notes which of those that decide about
// the placement are unknown until apply.
type reader struct {
	ctx     context.Context
	unknown []string
	diags   diag.Diagnostics
}

// spec returns the job that the model describes. unknown names the attributes
// that decide about its placement and are unknown until apply; the job lacks them.
func (m model) spec(ctx context.Context) (spec job.Spec, unknown []string, diags diag.Diagnostics) {
	r := &reader{ctx: ctx}
	s := job.Spec{
		Namespace:      orDefault(r.text("namespace", m.Namespace), "default"),
		Name:           r.text("name", m.Name),
		Framework:      job.Framework(r.text("framework", m.Framework)),
		Mode:           job.Mode(orDefault(r.text("mode", m.Mode), string(job.Topology))),
		Gang:           true,
		Quota:          r.text("quota", m.Quota),
		NonPreemptible: !m.Preemptible.IsNull() && !r.flag("preemptible", m.Preemptible),
		SchedulerName:  orDefault(r.text("scheduler_name", m.SchedulerName), contract.SchedulerName),
		PriorityClass:  r.text("priority_class", m.PriorityClass),
		Pools:          r.pools(m.PoolNames),
		NodeSelector:   r.stringMap("node_selector", m.NodeSelector),
		Tolerations:    r.tolerations(m.Tolerations),
		HostNetwork:    r.flag("host_network", m.HostNetwork),
		HostIPC:        m.HostIPC.ValueBool(),
		HostPID:        m.HostPID.ValueBool(),
		DNSPolicy:      corev1.DNSPolicy(m.DNSPolicy.ValueString()),
		Suspend:        m.Suspend.ValueBool(),
		Queue:          m.Queue.ValueBool(),
		CleanPodPolicy: m.CleanPodPolicy.ValueString(),
		RestartPolicy:  m.RestartPolicy.ValueString(),
		BackoffLimit:   m.BackoffLimit.ValueInt32Pointer(),
		Arena:          m.ArenaCompatible.ValueBool(),
		Labels:         r.strings(m.Labels),
		Annotations:    r.strings(m.Annotations),

		ServiceAccount:   m.ServiceAccount.ValueString(),
		ImagePullSecrets: r.list(m.ImagePullSecrets),
		SharedMemory:     r.amount(path.Root("shared_memory"), m.SharedMemory),
		Volumes:          r.volumes(m.Volumes),

		ActiveDeadlineSeconds:   m.ActiveDeadlineSeconds.ValueInt64Pointer(),
		TTLSecondsAfterFinished: m.TTLSecondsAfterFinished.ValueInt32Pointer(),
	}
	if r.known("port", m.Port) {
		s.Port = m.Port.ValueInt32()
	}
	if r.known("gang", m.Gang) && !m.Gang.IsNull() {
		var g gangModel
		r.diags.Append(m.Gang.As(ctx, &g, basetypes.ObjectAsOptions{})...)
		s.Gang = g.Enabled.IsNull() || r.flag("gang", g.Enabled)
		if r.known("gang", g.Minimum) {
			s.Minimum = g.Minimum.ValueInt32()
		}
	}
	s.Roles = r.roles(m, s.Framework)
	return s.Complete(), r.unknown, r.diags
}

func (r *reader) roles(m model, framework job.Framework) map[string]job.Role {
	if !r.known("roles", m.Roles) {
		return nil
	}
	var models map[string]types.Object
	r.diags.Append(m.Roles.ElementsAs(r.ctx, &models, false)...)
	roles := map[string]job.Role{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if !r.known("roles", models[name]) {
			continue
		}
		var rm roleModel
		r.diags.Append(models[name].As(r.ctx, &rm, basetypes.ObjectAsOptions{})...)
		roles[name] = r.role(name, rm, m, framework)
	}
	if _, ok := roles[contract.ReplicaLauncher]; framework == job.MPI && !ok {
		roles[contract.ReplicaLauncher] = r.role(contract.ReplicaLauncher, roleModel{}, m, framework)
	}
	return roles
}

// role merges what the role says into what the job says for all roles.
func (r *reader) role(name string, rm roleModel, m model, framework job.Framework) job.Role {
	at := path.Root("roles").AtMapKey(name)
	role := job.Role{
		Replicas:    1,
		Image:       unknownImage,
		WorkingDir:  first(rm.WorkingDir, m.WorkingDir).ValueString(),
		GPUs:        r.count("roles", rm.GPUs),
		MemoryGiB:   r.count("roles", rm.MemoryGiB),
		CorePercent: r.count("roles", rm.CorePercent),
		CPU:         r.quantity(at.AtName("cpu"), rm.CPU),
		Memory:      r.quantity(at.AtName("memory"), rm.Memory),
		RDMA:        r.flag("roles", rm.RDMA),
	}
	if r.known("roles", rm.Replicas) && !rm.Replicas.IsNull() {
		role.Replicas = rm.Replicas.ValueInt32()
	}
	if r.known("roles", rm.Minimum) {
		role.Minimum = rm.Minimum.ValueInt32()
	}
	if image := first(rm.Image, m.Image); !image.IsUnknown() {
		role.Image = image.ValueString()
	}
	// The launcher of an MPI job starts the workers' processes; the workers wait for it.
	inherits := framework != job.MPI || name == contract.ReplicaLauncher
	role.Command, role.Args = r.list(rm.Command), r.list(rm.Args)
	if inherits && rm.Command.IsNull() {
		role.Command = r.list(m.Command)
	}
	if inherits && rm.Args.IsNull() {
		role.Args = r.list(m.Args)
	}
	role.Env = r.strings(m.Env)
	for key, value := range r.strings(rm.Env) {
		if role.Env == nil {
			role.Env = map[string]string{}
		}
		role.Env[key] = value
	}
	return role
}

func (r *reader) known(name string, value attr.Value) bool {
	if !value.IsUnknown() {
		return true
	}
	if !slices.Contains(r.unknown, name) {
		r.unknown = append(r.unknown, name)
	}
	return false
}

func (r *reader) text(name string, value types.String) string {
	r.known(name, value)
	return value.ValueString()
}

func (r *reader) flag(name string, value types.Bool) bool {
	r.known(name, value)
	return value.ValueBool()
}

func (r *reader) count(name string, value types.Int64) int64 {
	r.known(name, value)
	return value.ValueInt64()
}

// quantity reads an amount that decides about the placement.
func (r *reader) quantity(at path.Path, value types.String) resource.Quantity {
	r.known("roles", value)
	return r.amount(at, value)
}

func (r *reader) amount(at path.Path, value types.String) resource.Quantity {
	if value.IsNull() || value.IsUnknown() {
		return resource.Quantity{}
	}
	q, err := amount.Parse(value.ValueString())
	if err != nil {
		r.diags.AddAttributeError(at, "Malformed quantity", fmt.Sprintf("%s: %s.", at, err))
	}
	return q
}

// strings reads a map whose values do not decide about the placement.
func (r *reader) strings(value types.Map) map[string]string {
	var all map[string]types.String
	if !value.IsNull() && !value.IsUnknown() {
		r.diags.Append(value.ElementsAs(r.ctx, &all, false)...)
	}
	var out map[string]string
	for key, text := range all {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = text.ValueString()
	}
	return out
}

// stringMap reads a map that decides about the placement.
func (r *reader) stringMap(name string, value types.Map) map[string]string {
	if r.known(name, value) {
		for _, element := range value.Elements() {
			r.known(name, element)
		}
	}
	return r.strings(value)
}

func (r *reader) list(value types.List) []string {
	var all []types.String
	if !value.IsNull() && !value.IsUnknown() {
		r.diags.Append(value.ElementsAs(r.ctx, &all, false)...)
	}
	var out []string
	for _, text := range all {
		out = append(out, text.ValueString())
	}
	return out
}

func (r *reader) pools(names types.List) []string {
	r.known("pools", names)
	return r.list(names)
}

// poolNames returns the names of pools, sorted: their order means nothing.
func poolNames(pools []capacity.Capacity) types.List {
	names := make([]string, len(pools))
	for i, c := range pools {
		names[i] = c.Pool
	}
	slices.Sort(names)
	return listValue(slices.Compact(names))
}

func (r *reader) tolerations(value types.List) []corev1.Toleration {
	if value.IsNull() || !r.known("tolerations", value) {
		return nil
	}
	var models []tolerationModel
	r.diags.Append(value.ElementsAs(r.ctx, &models, false)...)
	var out []corev1.Toleration
	for _, t := range models {
		out = append(out, corev1.Toleration{
			Key:      r.text("tolerations", t.Key),
			Operator: corev1.TolerationOperator(orDefault(r.text("tolerations", t.Operator), string(corev1.TolerationOpEqual))),
			Value:    r.text("tolerations", t.Value),
			Effect:   corev1.TaintEffect(r.text("tolerations", t.Effect)),
		})
	}
	return out
}

func first(values ...types.String) types.String {
	for _, v := range values {
		if !v.IsNull() {
			return v
		}
	}
	return types.StringNull()
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
