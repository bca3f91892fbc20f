// Package drain is the action gpuplan_drain_nodes: it cordons nodes and evicts their pods, gangs as a whole.
package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// New returns the action.
func New() action.Action { return &drainNodes{session.Action{Type: "gpuplan_drain_nodes"}} }

type drainNodes struct{ session.Action }

type model struct {
	Nodes   types.List     `tfsdk:"nodes"`
	Pool    types.String   `tfsdk:"pool"`
	Force   types.Bool     `tfsdk:"force"`
	Timeout duration.Value `tfsdk:"timeout"`
}

// Bounds of timeout, and its default.
const (
	least       = time.Second
	most        = 24 * time.Hour
	unlessTold  = 15 * time.Minute
	defaultText = "15m"
)

func (a *drainNodes) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Cordons nodes, and evicts the pods on them, as before they are upgraded, replaced or taken away. Terraform 1.14 and later has actions; OpenTofu has none.\n\n" +
			"- PodDisruptionBudgets are kept to. The members of a gang leave together: all of them, those on other nodes too, unless as many as the gang needs would be left, " +
			"and only once the budgets let all of them go. What waits is said, and why.\n" +
			"- Pods of DaemonSets and static pods stay. Pods that no controller has made are refused before anything is done, unless `force` is set. What pods have in an `emptyDir` is lost.\n" +
			"- The job's operator makes evicted members again, and the scheduler places the gang on other nodes, where there is room. A job whose pods are not to start again (`restart_policy = \"Never\"` of a PyTorchJob) may fail.\n" +
			"- When the time is over, the action fails and names the pods that stay. The nodes stay cordoned in any case; `kubectl uncordon` lets pods on them again.\n\n" +
			"A plan that invokes the action warns with the names of those that are evicted. The kubeconfig's user needs the rights to list and patch `nodes`, to list and get `pods`, to create `pods/eviction`, " +
			"and to list `gpunodes`, `elasticquotatrees` and `podgroups`, where the cluster has these.",
		Attributes: map[string]schema.Attribute{
			"nodes": schema.ListAttribute{
				MarkdownDescription: "Names of the nodes. Either this or `pool`.",
				Optional:            true, ElementType: types.StringType,
				Validators: []validator.List{
					listvalidator.ExactlyOneOf(path.MatchRoot("pool")), listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1)),
				},
			},
			"pool": schema.StringAttribute{
				MarkdownDescription: "Name of a `gpuplan_node_pool` or `gpuplan_node_gpu`, all of whose nodes are drained.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"force": schema.BoolAttribute{
				MarkdownDescription: "Evicts pods that no controller has made, too, which nobody makes again. Default `false`.",
				Optional:            true,
			},
			"timeout": schema.StringAttribute{
				MarkdownDescription: "How long it may take until all pods have ended, such as `30m`. Default `" + defaultText + "`.",
				Optional:            true, CustomType: duration.Type{},
				Validators: []validator.String{duration.Between{Least: least, Most: most}},
			},
		},
	}
}

// ModifyPlan says who is evicted, as far as that is known.
func (a *drainNodes) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	if a.Session == nil || a.Session.Ledger.Applying() || !known.Wholly(ctx, m.Nodes) || m.Pool.IsUnknown() {
		return
	}
	resp.Diagnostics.Append(a.Session.EvictionRights(ctx)...)
	snapshot, err := a.Session.Snapshot(ctx)
	if a.Session.NotChecked(err, &resp.Diagnostics) {
		return
	}
	if err != nil {
		resp.Diagnostics.AddError("Nodes cannot be looked at", session.Sentence(err))
		return
	}
	nodes, missing := m.nodes(ctx, snapshot.Nodes)
	if len(missing) > 0 {
		resp.Diagnostics.AddAttributeError(path.Root("nodes"), "No such node", fmt.Sprintf("The cluster has no node %s. Write names that `kubectl get nodes` shows.", strings.Join(missing, ", ")))
		return
	}
	if len(nodes) == 0 {
		resp.Diagnostics.AddAttributeWarning(path.Root("pool"), "Nothing to drain", fmt.Sprintf(
			"The cluster has no node of pool %s now, so the action will do nothing. Check the name of the pool.", m.Pool.ValueString()))
		return
	}
	now := departuresOf(snapshot.Objects, nodes)
	if bare := now.bare(); len(bare) > 0 && !m.Force.ValueBool() {
		resp.Diagnostics.AddAttributeWarning(path.Root("force"), "Pods are in the way of the drain", fmt.Sprintf(
			"Nobody makes these pods again, because no controller has made them, so the action will fail: %s. Move them, or evict them as well with force = true.", namesOf(bare)))
	}
	if len(now.groups) > 0 {
		resp.Diagnostics.AddWarning("Running jobs would be evicted", fmt.Sprintf(
			"The action drains %s, and evicts what runs there, gangs as a whole: %s.", strings.Join(nodes, ", "), running.Describe(running.All(now.evicted()))))
	}
}

// Invoke drains the nodes.
func (a *drainNodes) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	timeout := unlessTold
	if !m.Timeout.IsNull() {
		var err error
		if timeout, err = m.Timeout.Length(); err != nil {
			resp.Diagnostics.AddAttributeError(path.Root("timeout"), "Nodes were not drained", session.Sentence(err))
			return
		}
	}
	a.Session.Ledger.StartApplying()
	defer a.Session.Changed()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := a.Session.Kube()
	if err != nil {
		resp.Diagnostics.AddError("Nodes were not drained", session.Sentence(err))
		return
	}
	snapshot, err := a.Session.Snapshot(limited)
	if err != nil {
		resp.Diagnostics.AddError("Nodes were not drained", session.Sentence(err))
		return
	}
	nodes, missing := m.nodes(ctx, snapshot.Nodes)
	if len(missing) > 0 {
		resp.Diagnostics.AddAttributeError(path.Root("nodes"), "Nodes were not drained", fmt.Sprintf("The cluster has no node %s. Write names that `kubectl get nodes` shows.", strings.Join(missing, ", ")))
		return
	}
	say := func(format string, args ...any) {
		resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf(format, args...)})
	}
	if len(nodes) == 0 {
		say("Pool %s has no nodes.", m.Pool.ValueString())
		return
	}
	d := drain{client: client, nodes: nodes, force: m.Force.ValueBool(), say: say}
	if err := d.run(limited); err != nil {
		resp.Diagnostics.AddError("Nodes are not drained", session.Sentence(err))
	}
}

// nodes are those that are to be drained, sorted, and those of them that the cluster does not have.
func (m model) nodes(ctx context.Context, live []corev1.Node) (nodes, missing []string) {
	var wanted []string
	_ = m.Nodes.ElementsAs(ctx, &wanted, false) // strings, which the schema wants
	for _, n := range live {
		if m.Pool.ValueString() != "" && n.Labels[contract.NodePoolNameLabel] == m.Pool.ValueString() || slices.Contains(wanted, n.Name) {
			nodes = append(nodes, n.Name)
		}
	}
	slices.Sort(nodes)
	for _, name := range wanted {
		if !slices.Contains(nodes, name) {
			missing = append(missing, name)
		}
	}
	return nodes, missing
}
