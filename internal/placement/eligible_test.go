package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// some is a random part of a list.
func some(g *rand.Rand, list ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(string) bool { return g.IntN(2) == 0 })
}

// restricted is a role with random rules about nodes.
func restricted(g *rand.Rand) Role {
	r := Role{NodeSelector: map[string]string{}, Pools: some(g, "p", "q")}
	if g.IntN(3) == 0 {
		r.NodeSelector["model"] = []string{"T4", "A10", ""}[g.IntN(3)]
	}
	for range g.IntN(3) {
		var all []Requirement
		for range g.IntN(3) {
			all = append(all, Requirement{
				Key: []string{"model", "zone", FieldName}[g.IntN(3)], Operator: []string{"In", "NotIn", "Exists", "DoesNotExist"}[g.IntN(4)],
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
		rules := newRules(&role)
		text := role.Demand().Nodes
		alternatives, ok := eligibleNodes(text)
		require.Equal(t, text != "", ok, text)
		for i := range 20 {
			n := Node{Name: fmt.Sprintf("n%d", i), Pool: []string{"p", "q", "r"}[g.IntN(3)], Labels: map[string]string{}}
			for _, key := range some(g, "model", "zone") {
				n.Labels[key] = []string{"T4", "A10", "a", "b", ""}[g.IntN(5)]
			}
			want := rules.matches(&n) && (len(role.Pools) == 0 || slices.Contains(role.Pools, n.Pool))
			assert.Equal(t, want, text == "" || n.meetsOne(alternatives), "%q on %+v by %+v", text, n, role)
		}
	}
}

// The order in which rules are written is no difference, and what cannot be written is any node.
func TestEligibleNodesAreWrittenAlike(t *testing.T) {
	in := func(key string, values ...string) Requirement {
		return Requirement{Key: key, Operator: "In", Values: values}
	}
	for want, roles := range map[string][]Role{
		"": {
			{}, {Affinity: [][]Requirement{{in("model", string(make([]byte, longestEligible)))}}},
			{Pools: []string{"a pool", "p"}}, {Pools: []string{`""`}},
		},
		"field:pool DoesNotExist": {
			{Affinity: [][]Requirement{}}, {Affinity: [][]Requirement{{}}}, {Pools: []string{"p"}, Affinity: [][]Requirement{{}, {}}},
		},
		`role In ""`: {
			{NodeSelector: map[string]string{"role": ""}}, {Affinity: [][]Requirement{{}, {in("role", "")}}},
		},
		`role In ""|gpu`: {{Affinity: [][]Requirement{{in("role", "gpu", "")}}}},
		"model In A10|T4,zone In a": {
			{NodeSelector: map[string]string{"zone": "a"}, Affinity: [][]Requirement{{in("model", "T4", "A10")}}},
			{Affinity: [][]Requirement{{in("zone", "a"), in("model", "A10", "T4", "A10")}, {in("model", "A10", "T4"), in("zone", "a")}}},
		},
		"field:pool In p,model In T4;field:pool In p,zone Exists": {
			{Pools: []string{"p"}, Affinity: [][]Requirement{{{Key: "zone", Operator: "Exists"}}, {in("model", "T4")}}},
		},
	} {
		for _, role := range roles {
			assert.Equal(t, want, role.Demand().Nodes, "%+v", role)
		}
	}
	for _, text := range []string{"x", "a In b c", ";", "model In T4,"} {
		assert.False(t, Demand{Mode: ModeTopology, GPUs: 1, Nodes: text}.Valid(), text)
	}
}

// Records in which an empty value is not written mean it: no rule of Kubernetes is without values.
func TestEligibleNodesOfOldRecords(t *testing.T) {
	for text, meets := range map[string]map[string]bool{
		"role In":         {"": true, "gpu": false},
		"role NotIn":      {"": false, "gpu": true},
		"role In |gpu":    {"": true, "gpu": true, "cpu": false},
		"role Exists":     {"": true, "gpu": true},
		`role In ""`:      {"": true, "gpu": false},
		`role NotIn ""|a`: {"": false, "a": false, "gpu": true},
	} {
		alternatives, ok := eligibleNodes(text)
		require.True(t, ok, text)
		for value, want := range meets {
			n := Node{Labels: map[string]string{"role": value}}
			assert.Equal(t, want, n.meetsOne(alternatives), "%s on %q", text, value)
		}
	}
}

// A view that has changed knows of its nodes what a new one does.
func TestPricesFollowTheNodes(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	tables := []int{2, 4, 8}
	for range 200 {
		v, w := NewView(), Workload{}
		for i := range 40 {
			switch g.IntN(4) {
			case 0:
				v.RemoveNode(fmt.Sprintf("n%d", g.IntN(10)))
			case 1:
				role := restricted(g)
				role.Request, role.Members = Request{Mode: ModeTopology, GPUs: 1}, []string{"a", "b"}
				w.Count(Gang{ID: fmt.Sprintf("ns/%d", i), Roles: []Role{role}})
				v.SetWorkload(w)
			case 2:
				v.cluster()
			default:
				n := Node{
					Name: fmt.Sprintf("n%d", g.IntN(10)), Pool: []string{"p", "q"}[g.IntN(2)], Mode: ModeTopology,
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
		have, want := v.Clone().cluster(), fresh.cluster()
		assert.Equal(t, want.workload.prices, have.workload.prices)
		for i, n := range have.nodes {
			assert.Equal(t, want.nodes[i].free.eligible, n.free.eligible, n.Name)
		}
	}
}

// Requests that are rare are no reason to keep room.
func TestUsualDemands(t *testing.T) {
	gpus := func(n int) Demand { return Demand{Mode: ModeTopology, GPUs: n} }
	half := Demand{Mode: ModeShare, GPUs: 1, MemoryGiB: 8}
	w := Workload{gpus(1): 60, gpus(2): 35, half: 4, gpus(8): 1, {MilliCPU: 1}: 1000}
	assert.Equal(t, Workload{gpus(1): 60, gpus(2): 35, gpus(8): 1}, w.usual())
	assert.Equal(t, Workload{half: 1}, Workload{half: 1}.usual())
	assert.Empty(t, Workload{}.usual())
}
