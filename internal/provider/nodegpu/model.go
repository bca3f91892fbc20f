package nodegpu

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// model is the resource in Terraform.
type model struct {
	ID              types.String   `tfsdk:"id"`
	Name            types.String   `tfsdk:"name"`
	Nodes           types.Set      `tfsdk:"nodes"`
	Mode            types.String   `tfsdk:"mode"`
	GPUPolicy       types.String   `tfsdk:"gpu_policy"`
	AllowDisruption types.Bool     `tfsdk:"allow_disruption"`
	DriftedNodes    types.Map      `tfsdk:"drifted_nodes"`
	Capacity        types.Object   `tfsdk:"capacity"`
	Timeouts        timeouts.Value `tfsdk:"timeouts"`

	kept lifecycle.Kept
}

// known reports whether it is known what labels which nodes get.
func (m model) known(ctx context.Context) bool {
	return known.Wholly(ctx, m.Name, m.Nodes, m.Mode, m.GPUPolicy)
}

// names are the names of the nodes, sorted.
func (m model) names() (names []string) {
	for _, element := range m.Nodes.Elements() {
		if text, ok := element.(types.String); ok {
			names = append(names, text.ValueString())
		}
	}
	slices.Sort(names)
	return names
}

func (m model) pool() capacity.Pool {
	return capacity.Pool{Name: m.Name.ValueString(), Mode: m.Mode.ValueString(), GPUPolicy: m.GPUPolicy.ValueString()}
}

// labels are those that the nodes get.
func (m model) labels() map[string]string {
	labels := m.pool().OwnLabels()
	if m.Name.IsNull() { // imported nodes that have none
		delete(labels, contract.NodePoolNameLabel)
	}
	return labels
}

// object is what is applied to a node: the labels, whose they are, and what they cannot tell of the resource.
func (m model) object(ctx context.Context, of tfsdk.State, owner string) (*unstructured.Unstructured, diag.Diagnostics) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(nodeKind)
	obj.SetLabels(m.labels())
	obj.SetAnnotations(map[string]string{contract.OwnerLabel: owner})
	var derived model
	diags := written.Blank(ctx, of, &derived)
	derived.Name, derived.Nodes, derived.Mode, derived.GPUPolicy = m.Name, m.Nodes, m.Mode, m.GPUPolicy
	derived.AllowDisruption = types.BoolValue(false)
	diags.Append(written.Note(ctx, of, obj, m, derived)...)
	return obj, diags
}

// imported makes a resource of the labels of a node.
func (m *model) imported(ctx context.Context, of tfsdk.State, n *corev1.Node) diag.Diagnostics {
	m.Name, m.GPUPolicy = types.StringNull(), types.StringNull()
	if name, ok := n.Labels[contract.NodePoolNameLabel]; ok {
		m.Name = types.StringValue(name)
	}
	if policy, ok := n.Labels[contract.NodeGPUPolicyLabel]; ok {
		m.GPUPolicy = types.StringValue(policy)
	}
	m.Mode = types.StringValue(modeOf(n.Labels))
	m.AllowDisruption = types.BoolValue(false)
	return written.Restore(ctx, of, n.Annotations[contract.SettingsAnnotation], m)
}

// modeOf is the mode that a node has by its labels.
func modeOf(labels map[string]string) string {
	return cmp.Or(labels[contract.NodeModeLabel], string(placement.ModeDefault))
}

// refresh takes over what the nodes are.
func (m *model) refresh(ctx context.Context, snapshot *cluster.Snapshot, nodes []*corev1.Node) (diags diag.Diagnostics) {
	var names []string
	drifted := map[string]string{}
	for _, n := range nodes {
		names = append(names, n.Name)
		if text := m.drift(n); text != "" {
			drifted[n.Name] = text
		}
	}
	nodeSet, more := types.SetValueFrom(ctx, types.StringType, names)
	diags.Append(more...)
	differences, more := types.MapValueFrom(ctx, types.StringType, drifted)
	diags.Append(more...)
	m.ID, m.Nodes, m.DriftedNodes = types.StringValue(strings.Join(names, ",")), nodeSet, differences
	return append(diags, m.setCapacity(ctx, snapshot, nodes)...)
}

// drift says in what a node is not as it should be, "" for nothing.
func (m model) drift(n *corev1.Node) string {
	var texts []string
	want := m.labels()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch value, ok := n.Labels[key]; {
		case !ok:
			texts = append(texts, fmt.Sprintf("label %s is missing, should be %s", key, want[key]))
		case value != want[key]:
			texts = append(texts, fmt.Sprintf("label %s is %s, should be %s%s", key, value, want[key], setBy(n, key)))
		}
	}
	return strings.Join(texts, "; ")
}

// setBy says who has set a label of a node, "" where the API server does not tell.
func setBy(n *corev1.Node, key string) string {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return ""
	}
	managers := kube.Managers(&unstructured.Unstructured{Object: content}, labelField(key))
	if len(managers) == 0 {
		return ""
	}
	return ", set by " + join(managers)
}

// setCapacity reads what the nodes offer, null where the catalogue does not describe them.
func (m *model) setCapacity(ctx context.Context, snapshot *cluster.Snapshot, nodes []*corev1.Node) (diags diag.Diagnostics) {
	m.Capacity = types.ObjectNull(capacity.Type.AttrTypes)
	p := m.pool()
	p.InstanceType = instanceType(nodes)
	if p.InstanceType == "" || p.Name == "" {
		return nil
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	live, err := p.Live(snapshot.Hardware(names), snapshot.PodsOn)
	if err != nil {
		diags.AddError("Capacity cannot be read", session.Sentence(err))
		return diags
	}
	m.Capacity, diags = live.Value(ctx)
	return diags
}

// instanceType is that of all nodes, "" where they differ, or the catalogue does not have it.
func instanceType(nodes []*corev1.Node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Labels[contract.InstanceTypeLabel])
	}
	if slices.Sort(all); len(all) == 0 || len(slices.Compact(all)) > 1 {
		return ""
	}
	if _, ok := catalog.Lookup(all[0]); !ok {
		return ""
	}
	return all[0]
}

// find returns the nodes of these names, sorted as these are, and the names of those that the cluster lacks.
func find(snapshot *cluster.Snapshot, names []string) (nodes []*corev1.Node, missing []string) {
	for _, name := range names {
		at := slices.IndexFunc(snapshot.Nodes, func(n corev1.Node) bool { return n.Name == name })
		if at < 0 {
			missing = append(missing, name)
			continue
		}
		nodes = append(nodes, &snapshot.Nodes[at])
	}
	return nodes, missing
}

// named is how many nodes a text lists that has no need of all.
const named = 8

// unknown says that the cluster lacks nodes, and which it has.
func unknown(snapshot *cluster.Snapshot, missing []string) string {
	var have []string
	for i := range snapshot.Nodes {
		have = append(have, snapshot.Nodes[i].Name)
	}
	slices.Sort(have)
	text := "it has none"
	if more := len(have) - named; more > 0 {
		text = fmt.Sprintf("its nodes are %s and %d more", join(have[:named]), more)
	} else if len(have) > 0 {
		text = "its nodes are " + join(have)
	}
	return fmt.Sprintf("The cluster has no node %s; %s. Take the names of nodes that have left out of nodes. The data source gpuplan_gpu_nodes finds nodes by their labels.", join(missing), text)
}

func join(names []string) string { return strings.Join(names, ", ") }
