package placement

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

func TestDemandsThatNoMachineServes(t *testing.T) {
	for _, mode := range []Mode{ModeTopology, ModeDefault, ModeShare} {
		d := Demand{Mode: mode, GPUs: 64}
		if mode == ModeShare {
			d.MemoryGiB = 8
		}
		assert.True(t, d.Valid(), mode)
		d.GPUs = 65
		assert.False(t, d.Valid(), mode)
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
		alternatives, ok := EligibleNodes(text)
		require.True(t, ok, text)
		for value, want := range meets {
			n := Node{Labels: map[string]string{"role": value}}
			assert.Equal(t, want, n.MeetsOne(alternatives), "%s on %q", text, value)
		}
	}
}
