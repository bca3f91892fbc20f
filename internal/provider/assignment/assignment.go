// Package assignment is the Terraform form of a placement: where each member of a
// gang runs, as jobs and what-if questions show it.
package assignment

import (
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Model is where one member runs.
type Model struct {
	// Member is role and index, such as worker-0.
	Member string `tfsdk:"member"`
	Node   string `tfsdk:"node"`
	// Cards are NVML indexes, ascending.
	Cards []int64 `tfsdk:"cards"`
	// RingGBps is the bandwidth of the best ring among all cards of the gang on the
	// node, in GB/s and one direction.
	RingGBps    float64 `tfsdk:"ring_gbps"`
	NVLinkRings int64   `tfsdk:"nvlink_rings"`
}

// Type is the Terraform type of [Model].
var Type = types.ObjectType{AttrTypes: map[string]attr.Type{
	"member":       types.StringType,
	"node":         types.StringType,
	"cards":        types.ListType{ElemType: types.Int64Type},
	"ring_gbps":    types.Float64Type,
	"nvlink_rings": types.Int64Type,
}}

// Planned translates what the planner has assigned; cards returns the card table of a
// node that it planned on.
func Planned(assignments []placement.Assignment, cards func(node string) *gpu.Table) []Model {
	models := make([]Model, 0, len(assignments))
	for _, a := range assignments {
		own := a.Own
		for _, share := range a.Shares {
			own |= gpu.SetOf(share.Card)
		}
		models = append(models, Model{
			Member:      a.Member,
			Node:        a.Node,
			Cards:       int64s(inventory.Indexes(own, cards(a.Node))),
			RingGBps:    a.Ring.GBps,
			NVLinkRings: int64(a.Ring.NVLinkRings),
		})
	}
	return models
}

// Actual translates the allocation record of a member that runs.
func Actual(member, node string, record contract.Allocation) Model {
	cards := slices.Clone(record.Cards)
	for _, share := range record.Shares {
		cards = append(cards, share.Card)
	}
	slices.Sort(cards)
	return Model{
		Member:      member,
		Node:        node,
		Cards:       int64s(slices.Compact(cards)),
		RingGBps:    record.RingGBps,
		NVLinkRings: int64(record.NVLinkRings),
	}
}

func int64s(in []int) []int64 {
	out := make([]int64, 0, len(in))
	for _, i := range in {
		out = append(out, int64(i))
	}
	return out
}
