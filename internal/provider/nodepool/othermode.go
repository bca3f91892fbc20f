package nodepool

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/mode"
)

// What mode_change_policy has become of nodes that are labelled with another mode, which no label changes.
const (
	reportNodes  = "report"
	replaceNodes = "replace"
)

// otherMode is the mode that the labels of a node say where that is another than the pool's and no label switches
// between the two, "" otherwise.
func otherMode(labels map[string]string, p capacity.Pool) string {
	if live := cmp.Or(labels[contract.NodeModeLabel], string(placement.ModeDefault)); mode.Replaces(live, p.Mode) {
		return live
	}
	return ""
}

// readOtherModes notes which nodes are labelled with another mode that no label changes, and returns the others.
func (m *model) readOtherModes(nodes []*corev1.Node, p capacity.Pool) (rest []*corev1.Node) {
	modes := map[string]attr.Value{}
	for _, n := range nodes {
		if other := otherMode(n.Labels, p); other != "" {
			modes[n.Name] = types.StringValue(other)
		} else {
			rest = append(rest, n)
		}
	}
	m.OtherModeNodes = types.MapValueMust(types.StringType, modes)
	return rest
}

// replaced are the pool's nodes of another mode that the change replaces.
func (c change) replaced() (names []string) {
	if c.to.ModeChangePolicy.ValueString() != replaceNodes {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.from.OtherModeNodes.Elements())) {
		if !slices.Contains(c.leaving(), name) {
			names = append(names, name)
		}
	}
	return names
}

// going are the nodes that the change removes by their names.
func (c change) going() []string { return append(c.leaving(), c.replaced()...) }

// otherModesLeft are the nodes of another mode that stay.
func (c change) otherModesLeft() types.Map {
	if len(c.going()) == 0 {
		return c.from.OtherModeNodes
	}
	left := maps.Clone(c.from.OtherModeNodes.Elements())
	for _, name := range c.going() {
		delete(left, name)
	}
	return types.MapValueMust(types.StringType, left)
}

// sayOtherModes warns of nodes of another mode, and says what becomes of them.
func (c change) sayOtherModes() (diags diag.Diagnostics) {
	say := func(names []string, becomes string) {
		if len(names) == 0 {
			return
		}
		diags.AddAttributeWarning(path.Root("mode_change_policy"), "Nodes are of another mode than their pool", fmt.Sprintf(
			"Nodes of pool %s, which is in mode %s, are labelled with another one (%s): %s. No label switches a node to or from core_mem or mig, so that none is written. %s",
			c.after.Name, c.after.Mode, contract.NodeModeLabel, describeModes(c.from.OtherModeNodes, names), becomes))
	}
	say(c.replaced(), "The apply drains and releases them, and the pool gets new ones.")
	say(slices.Sorted(maps.Keys(c.otherModesLeft().Elements())), "They stay as they are, and count for nothing in the pool's capacity: set mode_change_policy = \"replace\" to have new ones in their place.")
	return diags
}

// describeModes lists nodes with their modes.
func describeModes(modes types.Map, names []string) string {
	var parts []string
	for _, name := range names {
		if text, ok := modes.Elements()[name].(types.String); ok {
			parts = append(parts, fmt.Sprintf("%s (%s)", name, text.ValueString()))
		}
	}
	return join(parts)
}

// readOtherModesNow is [model.readOtherModes] for a pool that no state tells of, as far as the cluster can be looked at.
func (r *pool) readOtherModesNow(ctx context.Context, m *model, p capacity.Pool) {
	if snapshot, err := r.Session.Snapshot(ctx); err == nil {
		m.readOtherModes(nodesOf(snapshot, m.NodePoolID.ValueString()), p)
	}
}
