// Package assignment is the Terraform form of a placement: where each member of a
// gang runs, one line per node, as jobs and what-if questions show it.
package assignment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	Member string
	Node   string
	// GPUs are NVML indexes, ascending; none where the device plugin picks them.
	GPUs []int64
	// RingGBps is the bandwidth of the best ring among all GPUs of the gang on the
	// node, in GB/s and one direction.
	RingGBps    float64
	NVLinkRings int64
}

// Type is the Terraform type of a placement: a map from node to what [Value] says of it.
var Type = types.MapType{ElemType: types.StringType}

// Description explains the text to users.
const Description = "by node: the members, the GPUs as `nvidia-smi` numbers them, and the bandwidth of the best ring among all GPUs of the gang on that node, " +
	"as in `\"v100[0]\" = \"worker-0..3 GPU 0,3,5,6: 50 GB/s, 2 NVLink rings\"`, where each of the four workers has one GPU, in that order. " +
	"In mode `default` the node's device plugin picks the GPUs, so none are named, and the bandwidth is what is guaranteed"

// Value is the Terraform value of a placement.
func Value(models []Model) types.Map {
	elements := map[string]attr.Value{}
	for node, line := range Lines(models) {
		elements[node] = types.StringValue(line)
	}
	return types.MapValueMust(types.StringType, elements)
}

// inOrder orders members by role, then by index.
func inOrder(a, b string) int {
	roleA, indexA := split(a)
	roleB, indexB := split(b)
	return cmp.Or(cmp.Compare(roleA, roleB), cmp.Compare(indexA, indexB), cmp.Compare(a, b))
}

func split(member string) (role string, index int) {
	at := strings.LastIndex(member, "-")
	index, err := strconv.Atoi(member[at+1:])
	if at < 0 || err != nil {
		return member, -1
	}
	return member[:at], index
}

// Ranges writes ascending numbers the short way, "0-3,6".
func Ranges(numbers []int64) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		switch end {
		case i:
			parts = append(parts, strconv.FormatInt(numbers[i], 10))
		case i + 1:
			parts = append(parts, strconv.FormatInt(numbers[i], 10), strconv.FormatInt(numbers[end], 10))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", numbers[i], numbers[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// FromRanges reads what [Ranges] wrote; "" is none.
func FromRanges(text string) ([]int64, error) {
	numbers := []int64{}
	if text == "" {
		return numbers, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 8)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(last, 10, 8)
		}
		if err != nil || to < from {
			return nil, fmt.Errorf("%q is not a list of GPUs such as \"0-3,6\"", text)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, int64(n))
		}
	}
	return numbers, nil
}

// Planned translates what the planner has assigned; GPUs returns the GPU table of a
// node that it planned on.
func Planned(assignments []placement.Assignment, gpus func(node string) *gpu.Table) []Model {
	models := make([]Model, 0, len(assignments))
	for _, a := range assignments {
		own := a.Own
		for _, share := range a.Shares {
			own |= gpu.SetOf(share.GPU)
		}
		models = append(models, Model{
			Member:      a.Member,
			Node:        a.Node,
			GPUs:        int64s(inventory.Indexes(own, gpus(a.Node))),
			RingGBps:    a.Ring.GBps,
			NVLinkRings: int64(a.Ring.NVLinkRings),
		})
	}
	return models
}

// Actual translates the allocation record of a member that runs.
func Actual(member, node string, record contract.Allocation) Model {
	return Model{
		Member:      member,
		Node:        node,
		GPUs:        int64s(inventory.RecordedGPUs(record)),
		RingGBps:    record.RingGBps,
		NVLinkRings: int64(record.NVLinkRings),
	}
}

// On is the member on the GPUs that it was given: the ones that nobody had chosen, or others, of which the bandwidth is not known.
func (m Model) On(gpus []int) Model {
	if len(m.GPUs) > 0 {
		m.RingGBps, m.NVLinkRings = 0, 0
	}
	m.GPUs = int64s(gpus)
	return m
}

// Record is the placement as it travels with the job.
func Record(models []Model) contract.PlannedPlacement {
	var record contract.PlannedPlacement
	at := map[string]int{}
	for _, m := range models {
		i, known := at[m.Node]
		if !known {
			i = len(record.Nodes)
			at[m.Node] = i
			record.Nodes = append(record.Nodes, contract.PlannedNode{
				Node: m.Node, Members: map[string][]int{},
			})
		}
		gpus := make([]int, len(m.GPUs))
		for j, device := range m.GPUs {
			gpus[j] = int(device)
		}
		if n := &record.Nodes[i]; m.RingGBps > n.RingGBps { // of who has whole GPUs; others have none
			n.RingGBps, n.NVLinkRings = m.RingGBps, int(m.NVLinkRings)
		}
		record.Nodes[i].Members[m.Member] = gpus
	}
	return record
}

// FromRecord reads what [Record] made, in the order of roles and indexes.
func FromRecord(record contract.PlannedPlacement) []Model {
	var models []Model
	for _, n := range record.Nodes {
		for member, gpus := range n.Members {
			models = append(models, Model{
				Member: member, Node: n.Node, GPUs: int64s(gpus), RingGBps: n.RingGBps, NVLinkRings: int64(n.NVLinkRings),
			})
		}
	}
	slices.SortFunc(models, func(a, b Model) int { return inOrder(a.Member, b.Member) })
	return models
}

func int64s(in []int) []int64 {
	out := make([]int64, 0, len(in))
	for _, i := range in {
		out = append(out, int64(i))
	}
	return out
}
