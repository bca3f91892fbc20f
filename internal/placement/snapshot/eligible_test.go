package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
)

// some is a random part of a list.
func some(g *rand.Rand, list ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(string) bool { return g.IntN(2) == 0 })
}

// restricted is a role with random rules about nodes.
func restricted(g *rand.Rand) placement.Role {
	r := placement.Role{NodeSelector: map[string]string{}, Pools: some(g, "p", "q")}
	if g.IntN(3) == 0 {
		r.NodeSelector["model"] = []string{"T4", "A10", ""}[g.IntN(3)]
	}
	for range g.IntN(3) {
		var all []placement.Requirement
		for range g.IntN(3) {
			all = append(all, placement.Requirement{
				Key: []string{"model", "zone", placement.FieldName}[g.IntN(3)], Operator: []string{"In", "NotIn", "Exists", "DoesNotExist"}[g.IntN(4)],
				Values: append(some(g, "T4", "A10", "a", "b", "n1"), []string{"T4", "a", ""}[g.IntN(3)]),
			})
		}
		r.Affinity = append(r.Affinity, all)
	}
	return r
}

// What a demand says about nodes is true of the nodes that its role may use, and of no others.
func TestEligibleNodesOfADemand(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		role := restricted(g)
		rules := admission.RulesOf(&role)
		text := role.Demand().Nodes
		alternatives, ok := placement.EligibleNodes(text)
		require.Equal(t, text != "", ok, text)
		for i := range 20 {
			n := placement.Node{Name: fmt.Sprintf("n%d", i), Pool: []string{"p", "q", "r"}[g.IntN(3)], Labels: map[string]string{}}
			for _, key := range some(g, "model", "zone") {
				n.Labels[key] = []string{"T4", "A10", "a", "b", ""}[g.IntN(5)]
			}
			want := rules.Matches(&n) && (len(role.Pools) == 0 || slices.Contains(role.Pools, n.Pool))
			assert.Equal(t, want, text == "" || n.MeetsOne(alternatives), "%q on %+v by %+v", text, n, role)
		}
	}
}

// A view that has changed knows of its nodes what a new one does.
func TestPricesFollowTheNodes(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	tables := []int{2, 4, 8}
	for range 200 {
		v, w := NewView(), placement.Workload{}
		for i := range 40 {
			switch g.IntN(4) {
			case 0:
				v.RemoveNode(fmt.Sprintf("n%d", g.IntN(10)))
			case 1:
				role := restricted(g)
				role.Request, role.Members = placement.Request{Mode: placement.ModeTopology, GPUs: 1}, []string{"a", "b"}
				w.Count(placement.Gang{ID: fmt.Sprintf("ns/%d", i), Roles: []placement.Role{role}})
				v.SetWorkload(w)
			case 2:
				v.Cluster()
			default:
				n := placement.Node{
					Name: fmt.Sprintf("n%d", g.IntN(10)), Pool: []string{"p", "q"}[g.IntN(2)], Mode: placement.ModeTopology,
					GPUs: plainTable(t, tables[g.IntN(len(tables))]), Labels: map[string]string{"model": []string{"T4", "A10"}[g.IntN(2)]},
				}
				v.SetNode(n)
			}
		}
		fresh := NewView()
		for _, n := range v.order {
			fresh.SetNode(n.Node)
		}
		fresh.SetWorkload(w)
		if fresh.workload == nil {
			continue
		}
		have, want := v.Clone().Cluster(), fresh.Cluster()
		assert.Equal(t, want.Workload.Prices, have.Workload.Prices)
		for i, n := range have.Nodes {
			assert.Equal(t, want.Nodes[i].Free.Eligible, n.Free.Eligible, n.Name)
		}
	}
}
