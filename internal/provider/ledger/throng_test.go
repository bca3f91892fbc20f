package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Three jobs without an order of which two have room on the node where each of them is planned are told, also when one comes after another,
// and when a launcher is the third.
func TestThrongs(t *testing.T) {
	nodes := machines(t, "v100", 3)
	for i := range nodes {
		nodes[i].Mode = placement.ModeDefault
	}
	asking := func(name string, gpus int, cores int64, after ...string) ledger.Job {
		j := job(nodes, name, 1, after...)
		j.Gang.Roles[0].Request = placement.Request{Mode: placement.ModeDefault, GPUs: gpus, Resources: placement.Resources{MilliCPU: 1000 * cores}}
		return j
	}
	for name, test := range map[string]struct {
		jobs []ledger.Job
		want []string
	}{
		"room for all":                {[]ledger.Job{asking("a", 3, 0), asking("b", 3, 0), asking("c", 2, 0)}, nil},
		"room for two":                {[]ledger.Job{asking("a", 4, 0), asking("b", 4, 0), asking("c", 4, 0)}, []string{"default/a", "default/b", "default/c"}},
		"CPU for two":                 {[]ledger.Job{asking("a", 1, 30), asking("b", 1, 30), asking("c", 1, 30)}, []string{"default/a", "default/b", "default/c"}},
		"one after another":           {[]ledger.Job{asking("a", 4, 0), asking("c", 4, 0, "default/a"), asking("b", 4, 0)}, []string{"default/a", "default/b", "default/c"}},
		"all one after the other":     {[]ledger.Job{asking("a", 3, 0), asking("b", 3, 0, "default/a"), asking("c", 3, 0, "default/b")}, nil},
		"one that is never in it":     {[]ledger.Job{asking("a", 1, 0), asking("b", 3, 0), asking("c", 4, 0), asking("d", 4, 0)}, []string{"default/a", "default/b", "default/c", "default/d"}},
		"two that exclude each other": {[]ledger.Job{asking("a", 3, 0), asking("b", 6, 0), asking("c", 3, 0), asking("d", 3, 0)}, []string{"default/a", "default/b", "default/c", "default/d"}},
		"a launcher beside two":       {[]ledger.Job{launching(asking("a", 2, 20), 20), asking("b", 2, 30), asking("c", 2, 30)}, []string{"default/a", "default/b", "default/c"}},
		"a launcher that has room":    {[]ledger.Job{launching(asking("a", 2, 20), 10), asking("b", 2, 20), asking("c", 2, 30)}, nil},
		"more than are tried apart":   {[]ledger.Job{asking("a", 1, 0), asking("b", 1, 0), asking("c", 1, 0), asking("d", 1, 0), asking("e", 2, 0), asking("f", 2, 0), asking("g", 1, 0)}, []string{"default/a", "default/b", "default/c", "default/d", "default/e", "default/f", "default/g"}},
	} {
		t.Run(name, func(t *testing.T) {
			visits := 0
			orders(test.jobs, func(order []ledger.Job) {
				if visits++; visits > 24 || !inTurn(order) {
					return
				}
				assert.Equal(t, test.want, namedIn(t, order))
			})
		})
	}
}

// inTurn reports whether each job comes after those that it names.
func inTurn(jobs []ledger.Job) bool {
	seen := map[string]bool{}
	for _, j := range jobs {
		seen[j.Gang.ID] = true
		if slices.ContainsFunc(j.After, func(id string) bool { return !seen[id] }) {
			return false
		}
	}
	return true
}

// namedIn are the jobs that may get another place than planned, by what a walk says.
func namedIn(t *testing.T, jobs []ledger.Job) (named []string) {
	t.Helper()
	l := ledger.New()
	for _, j := range jobs {
		result, found := l.PlanJob(j)
		require.NotNil(t, result.Placement, "%s", result.Verdict)
		for _, f := range found {
			require.Equal(t, ledger.SameGPUs, f.Kind, "%s", f.Detail)
			named = append(named, f.Jobs...)
		}
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// left is what is left of a node.
type left struct{ gpus, cores int64 }

// Whoever can lose its planned place in some order of starts is named, and nobody where none can: every order is tried, with launchers
// and those that lose their places wherever there is room.
func TestGeneratedThrongs(t *testing.T) {
	chance := rand.New(rand.NewPCG(11, 0))
	displacing, quiet := 0, 0
	for n := range 100 {
		nodes := machines(t, "v100", 3)
		for i := range nodes {
			nodes[i].Mode = placement.ModeDefault
		}
		var jobs []ledger.Job
		for i := range 3 + chance.IntN(2) {
			j := job(nodes, fmt.Sprint(i), 1)
			j.Gang.Roles[0].Request = placement.Request{Mode: placement.ModeDefault, GPUs: 1 + chance.IntN(4), Resources: placement.Resources{MilliCPU: 1000 * int64(chance.IntN(30))}}
			if i > 0 && chance.IntN(4) == 0 {
				j.After = []string{fmt.Sprintf("default/%d", chance.IntN(i))}
			}
			if chance.IntN(4) == 0 {
				j = launching(j, int64(1+chance.IntN(30)))
			}
			jobs = append(jobs, j)
		}
		l := ledger.New()
		planned := map[string]int{}
		for _, j := range jobs {
			result, _ := l.PlanJob(j)
			require.NotNil(t, result.Placement)
			planned[j.Gang.ID] = slices.IndexFunc(nodes, func(n placement.Node) bool { return n.Name == result.Placement.Assignments[0].Node })
		}
		loses := map[string]bool{}
		var begin func(free []left, waiting []ledger.Job, launchers []int64)
		begin = func(free []left, waiting []ledger.Job, launchers []int64) {
			for at, cores := range launchers {
				for node := range free {
					if free[node].cores >= cores {
						next := slices.Clone(free)
						next[node].cores -= cores
						begin(next, waiting, slices.Delete(slices.Clone(launchers), at, at+1))
					}
				}
			}
			for at, j := range waiting {
				if slices.ContainsFunc(waiting, func(other ledger.Job) bool { return slices.Contains(j.After, other.Gang.ID) }) {
					continue
				}
				worker := j.Gang.Roles[len(j.Gang.Roles)-1].Request
				own := launchers
				if len(j.Gang.Roles) > 1 {
					own = append(slices.Clone(launchers), j.Gang.Roles[0].Request.MilliCPU/1000)
				}
				room := func(node int) bool {
					return free[node].gpus >= int64(worker.GPUs) && free[node].cores >= worker.MilliCPU/1000
				}
				on := []int{planned[j.Gang.ID]}
				if !room(on[0]) {
					loses[j.Gang.ID], on = true, []int{0, 1, 2}
				}
				for _, node := range on {
					if room(node) {
						next := slices.Clone(free)
						next[node].gpus, next[node].cores = next[node].gpus-int64(worker.GPUs), next[node].cores-worker.MilliCPU/1000
						begin(next, slices.Delete(slices.Clone(waiting), at, at+1), own)
					}
				}
			}
		}
		begin([]left{{8, 80}, {8, 80}, {8, 80}}, jobs, nil)
		named := namedIn(t, jobs)
		for id := range loses {
			require.Contains(t, named, id, "%d: %v", n, describeJobs(jobs))
		}
		if len(loses) == 0 {
			quiet++
			require.Empty(t, named, "%d: %v", n, describeJobs(jobs))
		} else {
			displacing++
		}
	}
	t.Logf("%d with displacements, %d without", displacing, quiet)
	assert.Greater(t, min(displacing, quiet), 10)
}

func describeJobs(jobs []ledger.Job) (all []string) {
	for _, j := range jobs {
		text := j.Gang.ID
		for _, role := range j.Gang.Roles {
			text += fmt.Sprintf(" %s %d GPUs %dm", role.Name, role.Request.GPUs, role.Request.MilliCPU)
		}
		all = append(all, fmt.Sprint(text, " after ", j.After))
	}
	return all
}
