package ledger_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

var ordersSeeds = flag.Int("orders.seeds", 20, "generated sets of jobs, and of visits, that are tried in every order, of each kind of world")

// Whether a plan passes, what fails it, and which jobs it says may wait, evict others or be placed
// elsewhere, does not depend on the order in which Terraform visits the jobs.
func TestGeneratedJobsInEveryOrder(t *testing.T) {
	v, h := machines(t, "v100", 2), machines(t, "h100", 1)
	nodes := [][]placement.Node{v, h, slices.Concat(v, h)}
	worlds := map[string]*cluster{
		"no cluster":    nil,
		"empty cluster": {nodes: nodes[2]},
		"quota":         {nodes: nodes[2], limits: tree(t, "vision", 10)},
	}
	for name, members := range map[string]int{"a meek gang": 8, "two meek gangs": 5} {
		c := cluster{nodes: nodes[2]}
		for i := 8; i >= members; i -= 3 {
			c = c.runs(fmt.Sprintf("default/x%d", i), members, func(p *placement.Pod) { p.Priority = -1 })
		}
		worlds[name] = &c
	}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(*ordersSeeds) {
				r := rand.New(rand.NewPCG(17, seed))
				var jobs []ledger.Job
				for i := range 3 + r.IntN(2) {
					j := job(nodes[r.IntN(3)], string(rune('a'+i)), 1+r.IntN(9))
					if i > 0 && r.IntN(5) == 0 {
						j.After = []string{jobs[r.IntN(i)].Gang.ID}
					}
					if r.IntN(4) == 0 {
						j.Gang.Minimum = 1 + r.IntN(len(j.Gang.Roles[0].Members))
					}
					if world != nil && world.limits != nil && r.IntN(2) == 0 {
						j = inLeaf(j, "vision")
					}
					j.MayPreempt, j.RequireImmediate = true, r.IntN(2) == 0
					jobs = append(jobs, j)
				}
				var first []string
				var one []ledger.Job
				orders(jobs, func(visits []ledger.Job) {
					visited := map[string]bool{}
					for _, j := range visits {
						if len(j.After) > 0 && !visited[j.After[0]] {
							return
						}
						visited[j.Gang.ID] = true
					}
					l := ledger.New()
					if world != nil {
						l.Observe(world.live)
					}
					var found []ledger.Finding
					for _, j := range visits {
						_, more := l.PlanJob(j)
						found = append(found, more...)
					}
					if said := outcome(found); one == nil {
						first, one = said, slices.Clone(visits)
					} else {
						require.Equal(t, first, said, "seed %d: %s, then %s", seed, names(one), names(visits))
					}
				})
			}
		})
	}
}

// outcome is what findings come to: what fails the plan, and which jobs are spoken of. Of a job
// that may be displaced by several, any of them is named.
func outcome(found []ledger.Finding) []string {
	var all []string
	for _, f := range found {
		if f.Kind == ledger.InPart {
			f.Jobs = f.Jobs[:1]
		}
		if f.Error || f.Kind != ledger.SameGPUs {
			all = append(all, describe([]ledger.Finding{f})...)
			continue
		}
		for _, id := range f.Jobs {
			all = append(all, "may be placed elsewhere: "+id)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func names(jobs []ledger.Job) (ids []string) {
	for _, j := range jobs {
		ids = append(ids, j.Gang.ID)
	}
	return ids
}

// inEveryOrder makes visits in every order: passes means that some order has no error, fails are the errors of one that has.
func inEveryOrder(c cluster, list []visit) (passes bool, fails []string) {
	orders(list, func(order []visit) {
		var errors []string
		for _, f := range look(c, order) {
			if f.Error {
				errors = append(errors, describe([]ledger.Finding{f})...)
			}
		}
		if len(errors) == 0 {
			passes = true
		} else {
			fails = errors
		}
	})
	return passes, fails
}

// Whether a plan passes does not depend either on when Terraform visits what runs already, whether
// that stays or leaves.
func TestGeneratedVisitsInEveryOrder(t *testing.T) {
	v, h := machines(t, "v100", 2), machines(t, "h100", 1)
	nodes := [][]placement.Node{v, h, slices.Concat(v, h)}
	for seed := range uint64(2 * *ordersSeeds) {
		r := rand.New(rand.NewPCG(19, seed))
		c := cluster{nodes: nodes[2]}
		if r.IntN(3) == 0 {
			c.limits = tree(t, "vision", 12)
		}
		var list []visit
		var told []string
		for _, id := range []string{"default/k", "default/l"} {
			c = c.runs(id, 1+r.IntN(10), func(p *placement.Pod) { p.Priority = int32(-r.IntN(2)) })
			c.own = append(c.own, id)
			if r.IntN(3) == 0 {
				list, told = append(list, leave(id)), append(told, "leave "+id)
			} else {
				list, told = append(list, keep(id)), append(told, "keep "+id)
			}
		}
		for i := range 1 + r.IntN(3) {
			j := job(nodes[r.IntN(3)], string(rune('a'+i)), 1+r.IntN(9))
			if c.limits != nil && r.IntN(2) == 0 {
				j = inLeaf(j, "vision")
			}
			if r.IntN(4) == 0 {
				j.Gang.Minimum = 1 + r.IntN(len(j.Gang.Roles[0].Members))
			}
			j.MayPreempt, j.RequireImmediate, j.AllowPreemption = true, r.IntN(2) == 0, r.IntN(2) == 0
			j.Gang.Priority = int32(r.IntN(2))
			list, told = append(list, plan(j)), append(told, fmt.Sprintf("%s: %d on %v, minimum %d, %q", j.Gang.ID, len(j.Gang.Roles[0].Members), j.Pools, j.Gang.Minimum, j.Gang.Leaf))
		}
		passes, fails := inEveryOrder(c, list)
		assert.False(t, passes && fails != nil, "seed %d: %q: %q", seed, told, fails)
	}
}

// Whether a plan passes does not depend on whether a job that names no pools is visited before or after those that name
// the pools which the plan makes larger or smaller, gives labels and taints, or takes taints from.
func TestGeneratedPoolsInEveryOrder(t *testing.T) {
	taint, label := placement.Taint{Key: "team", Value: "a", Effect: "NoSchedule"}, map[string]string{"team": "a"}
	passed, failed := 0, 0
	for seed := range uint64(5 * *ordersSeeds) {
		r := rand.New(rand.NewPCG(29, seed))
		some := func(pool string, n int) ([]placement.Node, string) {
			nodes, tainted, labelled := machines(t, pool, n), r.IntN(4) == 0, r.IntN(3) == 0
			for i := range nodes {
				if tainted {
					nodes[i].Taints = []placement.Taint{taint}
				}
				if labelled {
					nodes[i].Labels = label
				}
			}
			return nodes, fmt.Sprintf("%d nodes of %s, tainted %t, labelled %t", n, pool, tainted, labelled)
		}
		var c cluster
		var told []string
		pools := map[string][]placement.Node{}
		for _, pool := range []string{"v100", "h100"} {
			live, is := some(pool, r.IntN(3))
			planned, becomes := some(pool, 1+r.IntN(2))
			c.nodes, pools[pool], told = append(c.nodes, live...), planned, append(told, is+" become "+becomes)
		}
		c = c.runs("default/k", min(8*len(c.nodes), r.IntN(6)))
		var list []visit
		for i := range 2 + r.IntN(2) {
			pool := []string{"v100", "h100", ""}[r.IntN(3)]
			j := job(pools[pool], string(rune('a'+i)), 1+r.IntN(12))
			j.MayPreempt, j.RequireImmediate, j.AllowPreemption = true, r.IntN(2) == 0, r.IntN(2) == 0
			if r.IntN(3) == 0 {
				j.Gang.Roles[0].NodeSelector = label
			}
			if pool != "" || r.IntN(3) == 0 {
				j.Gang.Roles[0].Tolerations = []placement.Toleration{{Key: "team", Operator: "Exists"}}
			}
			told = append(told, fmt.Sprintf("%s: %d on %q, %v, %v", j.Gang.ID, len(j.Gang.Roles[0].Members), pool, j.Gang.Roles[0].NodeSelector, j.Gang.Roles[0].Tolerations))
			list = append(list, func(l *ledger.Ledger) []ledger.Finding {
				if pool != "" && len(pools[pool][0].Taints) == 0 {
					l.UnsetOnNodes(pool, nil, []placement.Taint{taint})
				}
				return plan(j)(l)
			})
		}
		passes, fails := inEveryOrder(c, list)
		if passes {
			passed++
		}
		if fails != nil {
			failed++
		}
		assert.False(t, passes && fails != nil, "seed %d: %q: %q", seed, told, fails)
	}
	assert.Greater(t, passed, 0)
	assert.Greater(t, failed, 0)
}

// A job that has to wait in some order in which the jobs can come to the scheduler is one of which the plan says so, and
// the plan says it of no other.
func TestGeneratedJobsThatStartInEveryOrder(t *testing.T) {
	nodes := machines(t, "v100", 3)
	crowded := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(23, seed))
		stay := func(p *placement.Pod) { p.Preemptible = false }
		left := cluster{nodes: nodes}.runs("default/x", r.IntN(10), stay)
		c := left.runs("default/a", r.IntN(7), stay) // the old one of the first job
		c.own = []string{"default/a"}
		l := ledger.New()
		l.Observe(c.live)
		l.ReplaceJob("default/a", "default/a")
		var found []ledger.Finding
		var told []string
		var gangs []placement.Gang
		after := map[string]string{}
		for i := range 2 + r.IntN(3) {
			j := job(nodes, string(rune('a'+i)), 1+r.IntN(6))
			j.Gang.Roles[0].Request.GPUs = 1 + r.IntN(4)
			if r.IntN(3) == 0 {
				j = elastic(j, 1+r.IntN(len(j.Gang.Roles[0].Members)))
			}
			if i > 0 && r.IntN(5) == 0 {
				j.After = []string{gangs[r.IntN(i)].ID}
				after[j.Gang.ID] = j.After[0]
			}
			for _, p := range c.pods {
				if p.Job != "default/a" || i > 0 && j.After == nil {
					j.Occupants = append(j.Occupants, p.Pod)
				}
			}
			j.MayPreempt, j.AllowPreemption = true, r.IntN(4) == 0
			result, more := l.PlanJob(j)
			found = append(found, more...)
			g := j.Gang
			if l.Promised(g.ID) {
				g.Planned = spots(result.Placement)
			}
			gangs = append(gangs, g)
			told = append(told, fmt.Sprintf("%s: %d × %d GPUs, minimum %d, after %v, planned %v", g.ID, len(g.Roles[0].Members), g.Roles[0].Request.GPUs, g.Minimum, j.After, g.Planned))
		}
		said := map[string]bool{}
		for _, f := range found {
			for _, id := range f.Jobs {
				said[id] = said[id] || f.Kind == ledger.Waits && !strings.Contains(f.Summary, "another order") || f.Kind == ledger.Misfit
			}
			said[f.Jobs[0]] = said[f.Jobs[0]] || f.Kind == ledger.Waits
		}
		waits := waitInSomeOrder(left, gangs, after)
		if len(waits) > 0 {
			crowded++
		}
		for _, g := range gangs {
			require.False(t, waits[g.ID] && !said[g.ID], "seed %d: %s waits without a word:\n%s\nof\n%s\nbeside %d", seed, g.ID, describe(found), strings.Join(told, "\n"), len(left.pods))
		}
		for _, f := range found {
			if f.Kind == ledger.Waits {
				require.NotEmpty(t, waits, "seed %d: nobody waits, but %v:\n%s", seed, f, strings.Join(told, "\n"))
			}
		}
	}
	assert.Greater(t, crowded, 100)
}

// waitInSomeOrder are the gangs that find no place when they start in some order on a cluster, each after the one that it names,
// and with all the members that find room at once.
func waitInSomeOrder(c cluster, gangs []placement.Gang, after map[string]string) map[string]bool {
	waits := map[string]bool{}
	orders(gangs, func(order []placement.Gang) {
		view, started := c.live().View, map[string]bool{}
		for _, g := range order {
			if first, named := after[g.ID]; named && !started[first] {
				return
			}
			started[g.ID] = true
			placed := planner.Plan(view, g).Placement
			if placed == nil {
				waits[g.ID] = true
				continue
			}
			view.Apply(g, *placed)
			g.Running, g.Planned = placed.Assignments, nil
			if more := planner.Place(view, g); more != nil {
				view.Apply(g, *more)
			}
		}
	})
	return waits
}

// spots are the places of a gang's members on nodes whose GPUs have their positions as indexes.
func spots(placed *placement.Placement) (all []placement.Planned) {
	for _, a := range placed.Assignments {
		all = append(all, placement.Planned{Member: a.Member, Node: a.Node, GPUs: a.Own.GPUs()})
	}
	return all
}
