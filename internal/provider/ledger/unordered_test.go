package ledger_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// A job that names no pools has what it finds in the cluster, without what the plan takes away and without what it adds,
// whether it is visited before the job that names the pool or after it.
func TestJobsThatNothingOrdersAfterPools(t *testing.T) {
	taint := placement.Taint{Key: "team", Value: "a", Effect: "NoSchedule"}
	changed := func(n int, change func(*placement.Node)) []placement.Node {
		nodes := machines(t, "v100", n)
		for i := range nodes {
			change(&nodes[i])
		}
		return nodes
	}
	tainted := func(n *placement.Node) { n.Taints = []placement.Taint{taint} }
	labelled := func(n *placement.Node) { n.Labels = map[string]string{"team": "a"} }
	onLabel := func(j *ledger.Job) { j.Gang.Roles[0].NodeSelector = map[string]string{"team": "a"} }
	plain, misfit := func(*ledger.Job) {}, []string{"error Misfit default/b"}
	for name, test := range map[string]struct {
		live, planned []placement.Node
		workers       int
		job           func(*ledger.Job)
		want          []string
	}{
		"as it is":        {machines(t, "v100", 2), machines(t, "v100", 2), 12, plain, nil},
		"a node is added": {machines(t, "v100", 1), machines(t, "v100", 2), 12, plain, misfit},
		"a node is added to the pool of the job before it": {
			machines(t, "v100", 1), machines(t, "v100", 2), 12, func(j *ledger.Job) { j.After = []string{"default/a"} }, nil,
		},
		"a node goes":                   {machines(t, "v100", 2), machines(t, "v100", 1), 12, plain, misfit},
		"a node goes that it can spare": {machines(t, "v100", 2), machines(t, "v100", 1), 4, plain, nil},
		"nodes get a taint":             {machines(t, "v100", 2), changed(2, tainted), 4, plain, misfit},
		"nodes lose a taint":            {changed(2, tainted), machines(t, "v100", 2), 4, plain, misfit},
		"nodes get a label":             {machines(t, "v100", 2), changed(2, labelled), 4, onLabel, misfit},
		"nodes get a label that does not matter": {
			machines(t, "v100", 2), changed(2, labelled), 4, plain, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := job(test.planned, "a", 2), job(nil, "b", test.workers)
			a.Gang.Roles[0].Tolerations = []placement.Toleration{{Key: "team", Operator: "Exists"}}
			test.job(&b)
			first := func(l *ledger.Ledger) []ledger.Finding {
				l.UnsetOnNodes("v100", nil, []placement.Taint{taint})
				return plan(a)(l)
			}
			orders([]visit{first, plan(b)}, func(order []visit) {
				if len(b.After) > 0 {
					order = []visit{first, plan(b)}
				}
				found := look(cluster{nodes: test.live}, order)
				found = slices.DeleteFunc(found, func(f ledger.Finding) bool { return !f.Error })
				assert.Equal(t, test.want, describe(found))
			})
		})
	}
}

// Nodes that a job without pools does not have are none that refuse it.
func TestVerdictOnNodesToCome(t *testing.T) {
	found := look(cluster{nodes: machines(t, "v100", 1)}, []visit{plan(job(machines(t, "v100", 3), "a", 2)), plan(job(nil, "b", 12))})
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Detail, "one that waits for a gpuplan_node_gpu names that in depends_on")
	assert.NotContains(t, found[0].Detail, "another filter")
	assert.NotContains(t, found[0].Detail, "pool size")
}
