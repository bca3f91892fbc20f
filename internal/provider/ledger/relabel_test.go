package ledger_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Jobs that may run anywhere find nodes that exist as the plan makes them.
func TestRelabelledNodes(t *testing.T) {
	topology := machines(t, "v100", 1)
	whole := slices.Clone(topology)
	whole[0].Mode = placement.ModeDefault
	relabel := func(nodes []placement.Node) visit {
		return func(l *ledger.Ledger) []ledger.Finding { return l.RelabelNodes(nodes) }
	}
	misfit := []string{"error Misfit default/b"}
	j := plan(job(nil, "b", 8))
	for name, test := range map[string]struct {
		live   []placement.Node
		visits []visit
		want   []string
	}{
		"left as they are":                 {whole, []visit{j}, misfit},
		"switched to the mode of the job":  {whole, []visit{relabel(topology), j}, nil},
		"switched to another":              {topology, []visit{relabel(whole), j}, misfit},
		"switched to another after a look": {topology, []visit{j, relabel(whole)}, misfit},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, describe(look(cluster{nodes: test.live}, test.visits)))
		})
	}
	assert.Empty(t, ledger.New().RelabelNodes(whole), "where the cluster cannot be looked at")
}

func TestOneModeOfANode(t *testing.T) {
	l := ledger.New()
	assert.Empty(t, l.GiveMode("gpu-1", "a"))
	assert.Empty(t, l.GiveMode("gpu-1", "a"), "Terraform asks twice")
	assert.Equal(t, "a", l.GiveMode("gpu-1", "b"))
	assert.Empty(t, l.GiveMode("gpu-2", "b"))
}
