package nodegpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// limits hold unless the user sets others; create and update wait for the device plugins of the nodes.
var limits = lifecycle.Limits{Create: 5 * time.Minute, Update: 5 * time.Minute, Delete: 5 * time.Minute}

// object is the ledger's name of a node.
func object(node string) string { return "GPU mode of node " + node }

func (r *nodeGPU) add(ctx context.Context, of tfsdk.State, m *model) (exists bool, diags diag.Diagnostics) {
	diags = r.apply(ctx, of, change{to: m})
	return !diags.HasError(), diags
}

func (r *nodeGPU) change(ctx context.Context, of tfsdk.State, before, m *model) (changed bool, diags diag.Diagnostics) {
	diags = r.apply(ctx, of, change{from: before, to: m})
	return !diags.HasError(), diags
}

func (r *nodeGPU) remove(ctx context.Context, m *model) (diags diag.Diagnostics, err error) {
	client, err := r.Session.Kube()
	if err != nil {
		return nil, err
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	c := change{from: m}
	if diags = r.check(ctx, c, snapshot); diags.HasError() {
		return diags, nil
	}
	defer r.Session.Changed()
	return diags, r.drop(ctx, client, c)
}

// apply labels the nodes. One that breaks off leaves what it has done, and the next one goes on.
func (r *nodeGPU) apply(ctx context.Context, of tfsdk.State, c change) (diags diag.Diagnostics) {
	fail := func(err error) diag.Diagnostics {
		diags.AddError("Nodes were not labelled", session.Sentence(err))
		return diags
	}
	for _, name := range c.given() {
		if !r.Session.Ledger.Take(object(name)) {
			return fail(session.Taken(object(name)))
		}
	}
	client, err := r.Session.Kube()
	if err != nil {
		return fail(err)
	}
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		return fail(err)
	}
	if diags.Append(r.check(ctx, c, snapshot)...); diags.HasError() {
		return diags
	}
	fields, more := c.to.object(ctx, of, r.Session.Owner)
	if diags.Append(more...); diags.HasError() {
		return diags
	}
	defer r.Session.Changed()
	for _, name := range c.given() {
		if err := r.label(ctx, client, name, c, fields); err != nil {
			return fail(fmt.Errorf("%w; the next apply goes on with the nodes that are labelled already", err))
		}
	}
	if err := r.drop(ctx, client, c); err != nil {
		return fail(err)
	}
	given, _ := find(snapshot, c.given())
	c.to.kept.UIDs = lifecycle.UIDsOf(given...)
	if c.relabels() {
		diags.Append(c.await(ctx, client)...)
	}
	if open(c.to.Capacity) {
		diags.Append(r.readCapacity(context.WithoutCancel(ctx), c.to)...)
	}
	return diags
}

// label gives a node its labels.
func (r *nodeGPU) label(ctx context.Context, client *kube.Client, name string, c change, fields *unstructured.Unstructured) error {
	defer r.Session.Ledger.Begin(object(name))()
	return client.Amend(ctx, nodeKind, "", name, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		var n corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &n); err != nil {
			return nil, fmt.Errorf("read node %s: %w", name, err)
		}
		if diags := r.checkOwner(c, &n); diags.HasError() {
			return nil, fmt.Errorf("label node %s: %s", name, strings.TrimSuffix(diags[0].Detail(), "."))
		}
		return fields.DeepCopy(), nil
	}, c.takes(name)...)
}

// drop takes away what is the resource's of nodes, unless another one has them by now.
func (r *nodeGPU) drop(ctx context.Context, client *kube.Client, c change) error {
	for _, name := range c.dropped() {
		if err := r.dropOne(ctx, client, name, c.from); err != nil {
			return err
		}
	}
	return nil
}

// errTaken means that a node is another configuration's.
var errTaken = errors.New("the node is another configuration's")

func (r *nodeGPU) dropOne(ctx context.Context, client *kube.Client, name string, from *model) error {
	defer r.Session.Ledger.Begin(object(name))()
	if r.Session.Ledger.Taken(object(name)) {
		return nil
	}
	err := client.Amend(ctx, nodeKind, "", name, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if r.taken(from, live) {
			return nil, errTaken
		}
		return &unstructured.Unstructured{Object: map[string]any{}}, nil
	})
	if kube.IsNotFound(err) || errors.Is(err, errTaken) {
		return nil
	}
	return err
}

// await waits until the nodes offer their GPUs in their mode, and says which do not in time.
func (c change) await(ctx context.Context, client *kube.Client) (diags diag.Diagnostics) {
	if m, ok := catalog.LookupMode(c.to.Mode.ValueString()); !ok || len(m.Resources) == 0 {
		return nil // nothing here counts what it offers
	}
	var late []string
	for _, name := range c.given() {
		_, err := client.WaitFor(ctx, nodeKind, "", name, offering, func(status string) {
			tflog.Info(ctx, fmt.Sprintf("node %s: %s", name, status))
		})
		if err != nil {
			late = append(late, name)
		}
	}
	if len(late) > 0 {
		diags.AddWarning("Nodes do not offer their GPUs yet", fmt.Sprintf(
			"The labels are written, and no GPUs are offered in mode %[2]s on %[1]s. Jobs wait until there are. Is a device plugin on the nodes that follows the label? "+
				"`kubectl describe node %[3]s` shows what it offers.", nodesCalled(late), c.to.Mode.ValueString(), late[0]))
	}
	return diags
}

// offering is done when a node offers GPUs in its mode.
func offering(obj *unstructured.Unstructured) (bool, string, error) {
	var n corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &n); err != nil {
		return false, "", fmt.Errorf("read node %s: %w", obj.GetName(), err)
	}
	if inventory.OffersGPUs(&n) {
		return true, "offers its GPUs", nil
	}
	return false, "does not offer its GPUs in mode " + modeOf(n.Labels) + " yet", nil
}

// readCapacity reads what the nodes offer that a change has left.
func (r *nodeGPU) readCapacity(ctx context.Context, m *model) (diags diag.Diagnostics) {
	m.Capacity = types.ObjectNull(capacity.Type.AttrTypes)
	r.Session.Changed()
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil {
		diags.AddError("Capacity cannot be read", session.Sentence(err))
		return diags
	}
	nodes, _ := find(snapshot, m.names())
	return m.setCapacity(ctx, snapshot, nodes)
}
