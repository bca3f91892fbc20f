package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// plannedFor reads where a plan puts the pods of a gang. Those that carry it carry the same.
func plannedFor(pods []*corev1.Pod) (planned []placement.Planned, problems []Problem) {
	var carrier *corev1.Pod
	invalid := func(text string) []Problem {
		return []Problem{{Reason: ReasonInvalidPlan, Text: text + "; the gang is placed as if there was none"}}
	}
	for _, p := range pods {
		text, ok := p.Annotations[contract.PlannedPlacementAnnotation]
		switch {
		case !ok:
		case carrier == nil:
			carrier = p
		case text != carrier.Annotations[contract.PlannedPlacementAnnotation]:
			return nil, invalid("pods of one gang differ in annotation " + contract.PlannedPlacementAnnotation)
		}
	}
	if carrier == nil {
		return nil, nil
	}
	record, _, err := contract.PlannedPlacementFrom(carrier.Annotations)
	if err != nil {
		return nil, invalid(err.Error())
	}
	return PlannedMembers(record.Nodes), nil
}

// PlannedMembers are the places of members in a plan, the members in their order.
func PlannedMembers(nodes []contract.PlannedNode) (planned []placement.Planned) {
	for _, n := range nodes {
		for member, gpus := range n.Members {
			planned = append(planned, placement.Planned{Member: member, Node: n.Node, GPUs: gpus, RingGBps: n.RingGBps})
		}
	}
	slices.SortFunc(planned, func(a, b placement.Planned) int { return natural.Compare(a.Member, b.Member) })
	return planned
}
