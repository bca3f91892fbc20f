package nodegpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/running"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// check refuses a change that the cluster does not allow, at plan and once more at apply.
func (r *nodeGPU) check(ctx context.Context, c change, snapshot *cluster.Snapshot) (diags diag.Diagnostics) {
	given, missing := find(snapshot, c.given())
	if len(missing) > 0 {
		diags.AddAttributeError(path.Root("nodes"), "No such node", unknown(snapshot, missing))
		return diags
	}
	for _, n := range given {
		diags.Append(r.checkOwner(c, n)...)
	}
	if diags.HasError() {
		return diags
	}
	moves := slices.DeleteFunc(c.moves(snapshot), func(m move) bool { return m.dropped && r.taken(c.from, m.node) })
	diags.Append(c.checkFixed(moves)...)
	if diags.Append(r.checkConflicts(ctx, c, given)...); diags.HasError() {
		return diags
	}
	return append(diags, r.checkUse(c, moves, snapshot)...)
}

// checkOwner refuses nodes whose labels are a node pool's, or another configuration's.
func (r *nodeGPU) checkOwner(c change, n *corev1.Node) (diags diag.Diagnostics) {
	at := path.Root("nodes")
	if id := n.Labels[contract.NodePoolIDLabel]; id != "" {
		diags.AddAttributeError(at, "Node belongs to a node pool", fmt.Sprintf(
			"Node %s is of ACK's node pool %s, which gives its nodes their labels, also those that join later. Set mode of the gpuplan_node_pool, which can be imported, and take the node out of nodes here.", n.Name, id))
	}
	if r.foreign(n) && (!slices.Contains(c.before(), n.Name) || r.taken(c.from, n)) {
		diags.AddAttributeError(at, "Node belongs to another configuration", fmt.Sprintf("Node %s has its GPU mode from a gpuplan_node_gpu already: %s.", n.Name,
			r.Session.Advice(session.Foreign{Stamp: n.Annotations[contract.OwnerLabel], Resource: "gpuplan_node_gpu", ID: n.Name})))
	}
	return diags
}

// foreign reports whether a node carries the stamp of another configuration.
func (r *nodeGPU) foreign(n metav1.Object) bool {
	return r.Session.Theirs(n.GetAnnotations()[contract.OwnerLabel])
}

// taken reports whether a node that a resource has had is another configuration's by now: it has left the cluster, and
// was labelled there when it had joined again. On the same node, another stamp is that of this configuration before it moved.
func (r *nodeGPU) taken(m *model, n metav1.Object) bool { return r.foreign(n) && m.kept.UIDs.Other(n) }

// checkFixed refuses to switch nodes to or from a mode that no label switches.
func (c change) checkFixed(moves []move) (diags diag.Diagnostics) {
	var texts []string
	for _, m := range moves {
		if !m.dropped && mode.Replaces(m.from(), m.to()) {
			texts = append(texts, fmt.Sprintf("%s (%s)", m.node.Name, m.from()))
		}
	}
	if len(texts) > 0 {
		diags.AddAttributeError(path.Root("mode"), "Nodes cannot be switched to the mode", fmt.Sprintf(
			"No label switches a node that exists to or from core_mem or mig (Alibaba Cloud: \"Allocate computing power by scheduling shared GPU\"), and these are of another mode than %s: %s. "+
				"Remove each from the cluster and let it join again with the label %s=%[1]s (--node-labels of the kubelet, or what makes the node), choose the mode that they have, or take them out of nodes.",
			c.to.Mode.ValueString(), join(texts), contract.NodeModeLabel))
	}
	return diags
}

// checkConflicts refuses to change labels that someone else has set, and names who. What cannot be asked the apply tells.
func (r *nodeGPU) checkConflicts(ctx context.Context, c change, nodes []*corev1.Node) (diags diag.Diagnostics) {
	client, err := r.Session.Kube()
	if err != nil {
		return nil // who looks at the cluster has said so
	}
	texts := map[string][]string{} // by the label
	names := map[string][]string{}
	for _, n := range nodes {
		takes := c.takes(n.Name)
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(nodeKind)
		obj.SetName(n.Name)
		obj.SetUID(n.UID)
		wanted := map[string]string{}
		for key, value := range c.to.labels() {
			if have, ok := n.Labels[key]; ok && have != value && !slices.ContainsFunc(takes, func(f kube.Field) bool { return f.String() == labelField(key).String() }) {
				wanted[key] = value
			}
		}
		if obj.SetLabels(wanted); len(wanted) == 0 {
			continue
		}
		var conflict *kube.ConflictError
		if !errors.As(client.TryApply(ctx, obj), &conflict) {
			continue
		}
		for _, other := range conflict.Conflicts {
			for key := range wanted {
				if labelField(key).String() == other.Field {
					texts[key] = append(texts[key], fmt.Sprintf("on node %s it is %q, set by %q", n.Name, n.Labels[key], other.Manager))
					names[key] = append(names[key], n.Name)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		diags.AddAttributeError(path.Root(attributeOf[key]), "Label belongs to someone else", fmt.Sprintf(
			"The plan wants the label %s to be %q, and it belongs to someone else: %s. Have the owner give it that value or give it up (`kubectl label node %s %[1]s-`), "+
				"take the nodes out of nodes, or take them over as they are with `terraform import gpuplan_node_gpu.NAME %[5]s`, after which a plan shows what it changes.",
			key, c.to.labels()[key], strings.Join(texts[key], "; "), strings.Join(names[key], " "), strings.Join(names[key], ",")))
	}
	return diags
}

// checkUse refuses to take away what running pods need, at plan unless their jobs belong to this configuration and do not
// stay: that shows when Terraform visits them.
func (r *nodeGPU) checkUse(c change, moves []move, snapshot *cluster.Snapshot) (diags diag.Diagnostics) {
	at, consent := path.Root("nodes"), "set allow_disruption = true"
	switch {
	case c.to == nil:
		at, consent = path.Empty(), "set allow_disruption = true and apply that before"
	case c.from != nil && !c.from.Mode.Equal(c.to.Mode):
		at = path.Root("mode")
	case c.from != nil && !c.from.Name.Equal(c.to.Name):
		at = path.Root("name")
	}
	applying := r.Session.Ledger.Applying()
	for _, e := range effects(moves, snapshot) {
		if c.allowed() {
			if !applying {
				diags.Append(diag.WithPath(at, diag.NewWarningDiagnostic(e.summary, fmt.Sprintf(
					"The plan %s, which allow_disruption permits, and pods there are not done with it: %s. %s", e.text, running.Describe(e.pods), e.why))))
			}
			continue
		}
		refused := e.pods
		if !applying {
			refused = running.Foreign(e.pods, r.Session.Owns)
			diags.Append(session.Diagnostics(r.Session.Ledger.DisplaceJobs(e.text, consent, running.Owners(e.pods)))...)
		}
		if len(refused) > 0 {
			diags.Append(diag.WithPath(at, diag.NewErrorDiagnostic(e.summary, fmt.Sprintf(
				"The plan %s, and pods there are not done with it: %s. %s Wait until they have finished, delete them first, or %s.", e.text, running.Describe(refused), e.why, consent))))
		}
	}
	return diags
}
