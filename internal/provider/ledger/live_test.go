package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// cluster is what runs when a walk begins.
type cluster struct {
	nodes []placement.Node
	pods  []ledger.Pod
	own   []string
	// waiting are those that wait, in the order of the queue.
	waiting []ledger.Waiting
	limits  *quota.Tree
	// ownTree means that the tree belongs to the configuration.
	ownTree bool
}

// runs adds a gang with one GPU per member, the first on the first node.
func (c cluster) runs(gang string, members int, change ...func(*placement.Pod)) cluster {
	c.pods = slices.Clone(c.pods)
	taken := map[string]int{}
	for _, p := range c.pods {
		taken[p.Node]++
	}
	for i := range members {
		node := slices.IndexFunc(c.nodes, func(n placement.Node) bool { return taken[n.Name] < 8 })
		name := c.nodes[node].Name
		pod := placement.Pod{
			ID: fmt.Sprintf("%s-%d", gang, i), Node: name, Gang: gang, Preemptible: true,
			Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}, Own: gpu.SetOf(taken[name]),
		}
		for _, f := range change {
			f(&pod)
		}
		taken[name]++
		c.pods = append(c.pods, ledger.Pod{Pod: pod, Namespace: "default", Job: gang, Name: gang})
	}
	return c
}

// waits adds a gang that waits, of one GPU per member, behind those that do already.
func (c cluster) waits(gang string, members int, priority int32) cluster {
	role := placement.Role{Name: "worker", Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}}
	for i := range members {
		role.Members = append(role.Members, fmt.Sprintf("worker-%d", i))
	}
	c.waiting = append(slices.Clone(c.waiting), ledger.Waiting{Name: gang, Gang: placement.Gang{
		ID: gang, Roles: []placement.Role{role}, Priority: priority, Preemptible: true,
	}})
	return c
}

// reserved has the scheduler keep capacity for the last gang that waits.
func (c cluster) reserved() cluster {
	c.waiting = slices.Clone(c.waiting)
	c.waiting[len(c.waiting)-1].Reserved = true
	return c
}

// below leaves a gang its first members only, and gives the others to a gang of lower priority.
func (c cluster) below(gang string, members int) cluster {
	c.pods = slices.Clone(c.pods)
	kept := 0
	for i := range c.pods {
		if p := &c.pods[i]; p.Job == gang {
			if kept++; kept > members {
				p.Gang, p.Job, p.Name, p.Priority = "default/low", "default/low", "default/low", -1
			}
		}
	}
	return c
}

// from makes the last gang that waits a job of this configuration.
func (c cluster) from(job string) cluster {
	c.waiting = slices.Clone(c.waiting)
	c.waiting[len(c.waiting)-1].Job = job
	c.own = append(slices.Clone(c.own), job)
	return c
}

// partly reports whether the last gang that waits runs with the members that it has, which are enough.
func (c cluster) partly() cluster {
	c.waiting = slices.Clone(c.waiting)
	w := &c.waiting[len(c.waiting)-1]
	for _, p := range c.pods {
		if p.Gang == w.ID {
			w.Running = append(w.Running, placement.Assignment{Member: w.Roles[0].Members[w.Minimum], Node: p.Node, Own: p.Own})
			w.Minimum++
		}
	}
	return c
}

func (c cluster) live() ledger.Live {
	live := ledger.Live{Waiting: c.waiting, View: snapshot.NewView(), Pods: c.pods, Limits: c.limits, Own: map[string]bool{}, OwnTree: c.ownTree}
	for _, n := range c.nodes {
		live.View.SetNode(n)
	}
	for _, p := range c.pods {
		live.View.AddPod(p.Pod)
	}
	live.View.SetQuota(c.limits)
	for _, id := range c.own {
		live.Own[id] = true
	}
	return live
}

func charged(leaf string) func(*placement.Pod) { return func(p *placement.Pod) { p.Leaf = leaf } }

// visit is what Terraform's visit of one resource tells the ledger.
type visit func(*ledger.Ledger) []ledger.Finding

func plan(j ledger.Job) visit {
	return func(l *ledger.Ledger) []ledger.Finding {
		_, found := l.PlanJob(j)
		return found
	}
}

func keep(id string) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return l.KeepJob(id) }
}

func leave(id string) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return l.DeleteJob(id) }
}

func suspend(id string) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return l.SuspendJob(id) }
}

func planTree(tree *quota.Tree) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return l.RecordTree(tree) }
}

func displace(jobs ...string) visit {
	return func(l *ledger.Ledger) []ledger.Finding {
		return l.DisplaceJobs("shrinks node pool v100", "set allow_disruption = true", jobs)
	}
}

func shrink(pool string) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return l.ShrinkPool(pool, "shrinks node pool "+pool) }
}

// replaceLater replaces a job by one whose place is known after apply.
func replaceLater(id string) visit {
	return func(l *ledger.Ledger) []ledger.Finding {
		l.ReplaceJob(id, id)
		return l.PlaceLater()
	}
}

// look makes a walk see a cluster, and then visits; it returns what the visits find.
func look(c cluster, order []visit) (found []ledger.Finding) {
	l := ledger.New()
	l.Observe(c.live)
	for _, v := range order {
		found = append(found, v(l)...)
	}
	return found
}

// both are visits in an order, as a reference makes it.
func both(a, b ledger.Job) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return append(plan(a)(l), plan(b)(l)...) }
}

// replace is the visit of one resource: the old job goes, the new one is planned.
func replace(id string, j ledger.Job) visit {
	return func(l *ledger.Ledger) []ledger.Finding { l.ReplaceJob(id, j.Gang.ID); return plan(j)(l) }
}

// force is the visit of a resource that Terraform replaces by its own decision.
func force(j ledger.Job) visit {
	return func(l *ledger.Ledger) []ledger.Finding { return append(keep(j.Gang.ID)(l), plan(j)(l)...) }
}

// claims makes a job of the gpuplan scheduler with a priority.
func claims(j ledger.Job, priority int32) ledger.Job {
	j.MayPreempt, j.Gang.Priority = true, priority
	return j
}

// elastic makes a job run with fewer members.
func elastic(j ledger.Job, minimum int) ledger.Job { j.Gang.Minimum = minimum; return j }

// anyPlace leaves out that jobs start elsewhere, of those whose capacity does not say what runs.
func anyPlace(found []ledger.Finding) []ledger.Finding {
	return slices.DeleteFunc(found, func(f ledger.Finding) bool { return f.Kind == ledger.Elsewhere })
}

func consents(j ledger.Job) ledger.Job { j.AllowPreemption = true; return j }

func immediately(j ledger.Job) ledger.Job { j.RequireImmediate = true; return j }

func queued(j ledger.Job) ledger.Job { j.Queued = true; return j }

func checked(j ledger.Job, check ledger.Check) ledger.Job { j.Check = check; return j }

// A job of the queue waits for its quota also where those who use the quota have all GPUs of its pools.
func TestQueuedBehindFullPools(t *testing.T) {
	two := machines(t, "v100", 2)
	total := quota.Resources{"aliyun.com/gpu": 24}
	one, err := quota.New(quota.Spec{Name: "root", Min: total, Max: total, Children: []quota.Spec{{Name: "vision", MaxJobs: 1}}})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		cluster cluster
		members int
		want    []string
	}{
		"those who use the quota":  {cluster{nodes: two, limits: tree(t, "vision", 16)}.runs("default/x", 16, charged("vision")), 4, []string{"warning WaitsForQuota default/b"}},
		"others":                   {cluster{nodes: two, limits: tree(t, "vision", 16)}.runs("default/x", 16), 4, []string{"error Misfit default/b"}},
		"both":                     {cluster{nodes: two, limits: tree(t, "vision", 8)}.runs("default/x", 8, charged("vision")).runs("default/y", 8), 4, []string{"warning WaitsForQuota default/b"}},
		"others, for all of it":    {cluster{nodes: two, limits: tree(t, "vision", 16)}.runs("default/x", 8, charged("vision")).runs("default/y", 8), 12, []string{"error Misfit default/b"}},
		"quota is left, no GPU is": {cluster{nodes: two, limits: tree(t, "vision", 24)}.runs("default/x", 16, charged("vision")), 4, []string{"error Misfit default/b"}},
		"as many jobs as may":      {cluster{nodes: two, limits: one}.runs("default/x", 16, charged("vision")), 4, []string{"warning WaitsForQuota default/b"}},
		"as many, beside others":   {cluster{nodes: two, limits: one}.runs("default/x", 1, charged("vision")).runs("default/y", 15), 4, []string{"error Misfit default/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := queued(job(two, "b", test.members))
			j.Gang.Leaf = "vision"
			for _, p := range test.cluster.pods {
				j.Occupants = append(j.Occupants, p.Pod)
			}
			l := ledger.New()
			l.Observe(test.cluster.live)
			_, found := l.PlanJob(j)
			assert.Equal(t, test.want, describe(found))
		})
	}
}

// What the cluster and the visits of a walk come to together does not depend on the order
// of the visits, but for what is said of quota while that is open.
func TestLiveInEveryOrder(t *testing.T) {
	two := machines(t, "v100", 2)
	full := cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 16)
	foreign := cluster{nodes: two}.runs("default/x", 16)
	eight := func(own bool) cluster {
		return cluster{nodes: two, limits: tree(t, "vision", 8), ownTree: own}.runs("default/x", 8, charged("vision"))
	}
	vision := eight(false)
	vision.own = []string{"default/x"}
	besidePods := func(c cluster, j ledger.Job) ledger.Job {
		for _, p := range c.pods {
			j.Occupants = append(j.Occupants, p.Pod)
		}
		return j
	}
	// Most of the GPUs that both leaves own are with the guest.
	borrowed := cluster{nodes: two, limits: shared(t, 8)}.runs("default/x", 6, charged("guest")).runs("default/y", 8, charged("guest"))
	anywhere := func(j ledger.Job) ledger.Job {
		j.Nodes, j.Pools, j.Gang.Roles[0].Pools = nil, nil, nil
		return j
	}
	nodesOf := func(pools ...string) (nodes []placement.Node) {
		for _, pool := range pools {
			nodes = append(nodes, machines(t, pool, 1)...)
		}
		return nodes
	}
	const needs = "warning NeedsOthers default/b default/a"
	for name, test := range map[string]struct {
		cluster cluster
		visits  []visit
		want    []string
		// open are warnings while it is not known what becomes of the quota tree.
		open []string
	}{
		"room beside what runs": {
			cluster: cluster{nodes: two}.runs("default/x", 8), visits: []visit{plan(job(two, "b", 8))},
		},
		"quota in use, the cluster's tree": {
			cluster: eight(false), visits: []visit{plan(inLeaf(job(two, "b", 1), "vision"))},
			want: []string{"warning WaitsForQuota default/b"},
		},
		"quota in use, a tree of this configuration": {
			cluster: eight(true), visits: []visit{plan(inLeaf(job(two, "b", 1), "vision")), planTree(tree(t, "vision", 8))},
			want: []string{"warning WaitsForQuota default/b"},
		},
		"quota in use, without pools": {
			cluster: eight(true), visits: []visit{plan(anywhere(inLeaf(job(two, "b", 1), "vision"))), planTree(tree(t, "vision", 8))},
			want: []string{"warning WaitsForQuota default/b"},
		},
		"quota in use, and no time to wait": {
			cluster: eight(false), visits: []visit{plan(immediately(inLeaf(job(two, "b", 1), "vision")))},
			want: []string{"error WaitsForQuota default/b"},
		},
		"quota in use of a leaf that the plan raises": {
			cluster: eight(true), visits: []visit{plan(immediately(inLeaf(job(two, "b", 1), "vision"))), planTree(tree(t, "vision", 9))},
			open: []string{"warning WaitsForQuota default/b"},
		},
		"quota in use under a tree that is new": {
			cluster: cluster{nodes: two}.runs("default/x", 8, charged("vision")),
			visits:  []visit{plan(immediately(inLeaf(job(two, "b", 1), "vision"))), planTree(tree(t, "vision", 8))},
			want:    []string{"error WaitsForQuota default/b"},
		},
		"a leaf that the plan adds": {
			cluster: cluster{nodes: two, limits: tree(t, "sound", 8), ownTree: true},
			visits:  []visit{plan(inLeaf(job(two, "b", 1), "vision")), planTree(tree(t, "vision", 8))},
		},
		"more than the quota, beside one that leaves": {
			cluster: vision, visits: []visit{leave("default/x"), plan(besidePods(vision, inLeaf(job(two, "b", 9), "vision")))},
			want: []string{"error ExceedsQuota default/b"},
		},
		"members beyond the minimum have no quota": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)},
			visits:  []visit{plan(inLeaf(elastic(job(two, "b", 12), 6), "vision"))},
			want:    []string{"warning InPart default/b"},
		},
		"members beyond the minimum have no quota beside what runs": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)}.runs("default/x", 2, charged("vision")),
			visits:  []visit{plan(immediately(inLeaf(elastic(job(two, "b", 8), 6), "vision")))},
			want:    []string{"error InPart default/b"},
		},
		"members beyond the minimum have no quota beside another job": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)},
			visits:  []visit{plan(inLeaf(job(two, "b", 4), "vision")), plan(inLeaf(elastic(job(two, "c", 6, "default/b"), 2), "vision"))},
			want:    []string{"warning InPart default/c default/b"},
		},
		"the queue needs quota for all members": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)},
			visits:  []visit{plan(queued(inLeaf(elastic(job(two, "b", 12), 6), "vision")))},
			want:    []string{"error ExceedsQuota default/b"},
		},
		"the queue needs quota for all members, and some is used": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)}.runs("default/x", 2, charged("vision")),
			visits:  []visit{plan(queued(inLeaf(elastic(job(two, "b", 8), 6), "vision")))},
			want:    []string{"warning WaitsForQuota default/b"},
		},
		"more than the quota, beside one that fits": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)},
			visits:  []visit{plan(inLeaf(job(two, "b", 9), "vision")), plan(inLeaf(job(two, "c", 4, "default/b"), "vision"))},
			want:    []string{"error ExceedsQuota default/b"},
		},
		"two that fit into what is left of the quota one at a time": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8)}.runs("default/x", 4, charged("vision")),
			visits:  []visit{plan(inLeaf(job(two, "b", 4), "vision")), plan(inLeaf(job(two, "c", 4, "default/b"), "vision"))},
			want:    []string{"warning Waits default/c default/b"},
		},
		"two anywhere that fit one at a time": {
			cluster: cluster{nodes: two}.runs("default/x", 8),
			visits:  []visit{plan(anywhere(job(two, "b", 8))), plan(anywhere(job(two, "c", 8)))},
			want:    []string{"warning Waits default/c default/b"},
		},
		"more than fits behind one that comes first": {
			cluster: cluster{nodes: two}, visits: []visit{both(job(two, "b", 10), job(two, "c", 10, "default/b"))},
			want: []string{"error Misfit default/c"},
		},
		"one is deleted, another created": {
			cluster: full, visits: []visit{leave("default/a"), plan(job(two, "b", 16))}, want: []string{needs},
		},
		"one is suspended, another created": {
			cluster: full, visits: []visit{suspend("default/a"), plan(job(two, "b", 16))},
			want: []string{needs},
		},
		"one is renamed": {
			cluster: full, visits: []visit{replace("default/a", job(two, "b", 16))},
		},
		"one is renamed and grows": {
			cluster: full, visits: []visit{replace("default/a", job(two, "b", 17))},
			want: []string{"error Misfit default/b"},
		},
		"one is renamed within a quota that it uses up": {
			cluster: cluster{nodes: two, own: []string{"default/a"}, limits: tree(t, "vision", 8)}.runs("default/a", 8, charged("vision")),
			visits:  []visit{replace("default/a", immediately(inLeaf(job(two, "b", 8), "vision")))},
		},
		"one is renamed, and needs the place of another that leaves": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/c"}}.runs("default/a", 8).runs("default/c", 8),
			visits:  []visit{replace("default/a", job(two, "b", 16)), leave("default/c")},
			want:    []string{"warning NeedsOthers default/b default/c"},
		},
		"one is renamed, another comes after it": {
			cluster: full, visits: []visit{func(l *ledger.Ledger) []ledger.Finding {
				return append(replace("default/a", job(two, "b", 8))(l), plan(job(two, "c", 8, "default/b"))(l)...)
			}},
		},
		"two swap their names": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/c"}}.runs("default/a", 8).runs("default/c", 8),
			visits: []visit{func(l *ledger.Ledger) []ledger.Finding {
				return append(replace("default/a", job(two, "c", 6))(l), replace("default/c", job(two, "a", 10, "default/c"))(l)...)
			}},
		},
		"one is replaced by itself": {
			cluster: full, visits: []visit{replace("default/a", job(two, "a", 16))},
		},
		"one is replaced by a smaller one, another takes the rest": {
			cluster: full, visits: []visit{replace("default/a", job(two, "a", 8)), plan(job(two, "b", 8, "default/a"))},
		},
		"one is replaced by a smaller one, another needs more than the rest": {
			cluster: full, visits: []visit{replace("default/a", job(two, "a", 8)), plan(job(two, "b", 9))},
			want: []string{"warning Waits default/b default/a"},
		},
		"one stays, another does not fit": {
			cluster: full, visits: []visit{keep("default/a"), plan(job(two, "b", 16))},
			want: []string{"error Misfit default/b"},
		},
		"one leaves, one stays, and only one of them has to": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/k"}}.runs("default/a", 8).runs("default/k", 8),
			visits:  []visit{keep("default/k"), leave("default/a"), plan(job(two, "b", 8))},
			want:    []string{needs},
		},
		"one leaves, one stays, and both would have to leave": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/k"}}.runs("default/a", 8).runs("default/k", 8),
			visits:  []visit{keep("default/k"), leave("default/a"), plan(job(two, "b", 16))},
			want:    []string{"error Misfit default/b"},
		},
		"quota of one that leaves": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8), own: []string{"default/a"}}.runs("default/a", 8, charged("vision")),
			visits:  []visit{leave("default/a"), plan(inLeaf(job(two, "b", 8), "vision"))},
			want:    []string{needs},
		},
		"quota of one that stays": {
			cluster: cluster{nodes: two, limits: tree(t, "vision", 8), own: []string{"default/a"}}.runs("default/a", 8, charged("vision")),
			visits:  []visit{keep("default/a"), plan(inLeaf(job(two, "b", 8), "vision"))},
			want:    []string{"warning WaitsForQuota default/b"},
		},
		"someone else's of no lower priority": {
			cluster: foreign, visits: []visit{plan(claims(job(two, "b", 8), 0))}, want: []string{"error Misfit default/b"},
		},
		"someone else's of lower priority": {
			cluster: foreign, visits: []visit{plan(claims(job(two, "b", 8), 1))}, want: []string{"error Preempts default/b"},
		},
		"the same with consent": {
			cluster: foreign, visits: []visit{plan(consents(claims(job(two, "b", 8), 1)))}, want: []string{"warning Preempts default/b"},
		},
		"the same of a job that is only warned of": {
			cluster: foreign, visits: []visit{plan(checked(claims(job(two, "b", 8), 1), ledger.Warn))}, want: []string{"warning Preempts default/b"},
		},
		"the same of a job that is not checked": {
			cluster: foreign, visits: []visit{plan(checked(claims(job(two, "b", 8), 1), ledger.Ignore))}, want: []string{"warning Preempts default/b"},
		},
		"a job that is not checked and does not fit": {
			cluster: foreign, visits: []visit{plan(checked(claims(job(two, "b", 8), 0), ledger.Ignore))},
		},
		"an elastic job that starts beside others, and grows at their expense": {
			cluster: borrowed, visits: []visit{plan(claims(inLeaf(elastic(job(two, "b", 8), 2), "owner"), 0))}, want: []string{"error Preempts default/b"},
		},
		"the same of a job that agrees": {
			cluster: borrowed, visits: []visit{plan(consents(claims(inLeaf(elastic(job(two, "b", 8), 2), "owner"), 0)))}, want: []string{"warning Preempts default/b"},
		},
		"an elastic job whose leaf has no more minimum": {
			cluster: borrowed, visits: []visit{plan(claims(inLeaf(elastic(job(two, "b", 8), 2), "guest"), 0))},
		},
		"one of lower priority that stays": {
			cluster: full, visits: []visit{keep("default/a"), plan(claims(job(two, "b", 8), 1))},
			want: []string{"error Preempts default/b"},
		},
		"one of lower priority that leaves": {
			cluster: full, visits: []visit{leave("default/a"), plan(claims(job(two, "b", 8), 1))},
			want: []string{needs},
		},
		"two that each find room, of which the second evicts": {
			cluster: cluster{nodes: two}.runs("default/x", 8),
			visits:  []visit{plan(claims(job(two, "b", 8), 1)), plan(claims(job(two, "c", 8, "default/b"), 1))},
			want:    []string{"error Preempts default/c default/b"},
		},
		"two of which one waits, of the priority of someone who may be evicted instead": {
			cluster: cluster{nodes: two}.runs("default/x", 8, func(p *placement.Pod) { p.Priority = -1 }),
			visits:  []visit{plan(claims(job(two, "a", 8), -1)), plan(claims(job(two, "b", 8), 0))},
			want:    []string{"warning Preempts default/b default/a", "warning Waits default/b default/a"},
		},
		"two that find room, of which one evicts when the other is placed first": {
			cluster: cluster{nodes: slices.Concat(two, machines(t, "h100", 1))}.runs("default/x", 2, func(p *placement.Pod) { p.Priority = -1 }),
			visits:  []visit{plan(claims(job(two, "a", 12), 0)), plan(job(slices.Concat(two, machines(t, "h100", 1)), "b", 4))},
			want:    []string{"warning Preempts default/a default/b"},
		},
		"the same when the other has room elsewhere, but not where it is planned": {
			cluster: cluster{nodes: slices.Concat(machines(t, "z100", 1), two)}.runs("default/y", 4).
				runs("default/x", 2, func(p *placement.Pod) { p.Priority, p.Node = -1, "v100[0]" }),
			visits: []visit{plan(claims(job(two, "a", 12), 0)), plan(claims(job(slices.Concat(two, machines(t, "z100", 1)), "b", 4), 0))},
			want:   []string{"warning Preempts default/a default/b", "warning SameGPUs default/a default/b"},
		},
		"three that find room, of which one evicts when the others are placed before it, the second first": {
			cluster: cluster{nodes: nodesOf("p1", "p2", "p3", "p4")}.runs("default/x", 1, func(p *placement.Pod) { p.Priority, p.Node = -1, "p3[0]" }),
			visits: []visit{
				plan(claims(job(nodesOf("p2", "p3"), "a", 8), 0)), plan(claims(job(nodesOf("p1", "p2", "p4"), "b", 8), 0)), plan(claims(job(nodesOf("p1", "p4"), "c", 8), 0)),
			},
			want: []string{"warning Preempts default/a default/b", "warning SameGPUs default/a default/b", "warning SameGPUs default/b default/c"},
		},
		"the same of one that comes first": {
			cluster: cluster{nodes: slices.Concat(two, machines(t, "h100", 1))}.runs("default/x", 2, func(p *placement.Pod) { p.Priority = -1 }),
			visits:  []visit{plan(claims(job(two, "a", 12), 0)), plan(job(slices.Concat(two, machines(t, "h100", 1)), "b", 4, "default/a"))},
		},
		"a job is replaced, and someone of its priority waits for its place": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{replace("default/a", claims(job(two, "a", 16), 0))},
			want: []string{"error Overtaken default/a"},
		},
		"a job is renamed, and someone of its priority waits for its place": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{replace("default/a", claims(job(two, "b", 16), 0))},
			want: []string{"error Overtaken default/b"},
		},
		"a job is renamed, and one that waits for its place is suspended": {
			cluster: full.waits("default/x", 16, 0).from("default/x"), visits: []visit{replace("default/a", claims(job(two, "b", 16), 0)), suspend("default/x")},
			want: []string{"warning Overtaken default/b"},
		},
		"a job is renamed, and one that waits for more than there is, is suspended": {
			cluster: full.waits("default/x", 17, 0).from("default/x"), visits: []visit{replace("default/a", claims(job(two, "b", 16), 0)), suspend("default/x")},
		},
		"someone of lower priority does": {
			cluster: full.waits("default/x", 8, -1), visits: []visit{replace("default/a", claims(job(two, "a", 16), 0))},
			want: []string{"error Preempts default/a"},
		},
		"a job is replaced by Terraform and waits for its quota": {
			cluster: cluster{nodes: two, own: []string{"default/a"}, limits: tree(t, "vision", 8)}.runs("default/a", 4, charged("vision")).runs("default/x", 4, charged("vision")),
			visits:  []visit{force(inLeaf(job(two, "a", 6), "vision"))},
			want:    []string{"error WaitsForQuota default/a"},
		},
		"a job is replaced by Terraform and needs the place of another that leaves": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/c"}}.runs("default/a", 8).runs("default/c", 8),
			visits:  []visit{force(job(two, "a", 16)), leave("default/c")},
			want:    []string{"error NeedsOthers default/a default/c"},
		},
		"the same with consent to evictions": {
			cluster: full.waits("default/x", 8, -1), visits: []visit{replace("default/a", consents(claims(job(two, "a", 16), 0)))},
			want: []string{"warning Preempts default/a"},
		},
		"a job is replaced, and someone waits for more than there is": {
			cluster: full.waits("default/x", 17, 0), visits: []visit{replace("default/a", claims(job(two, "a", 16), 0))},
		},
		"a job is replaced by a smaller one, and who waits fits beside it": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{replace("default/a", claims(job(two, "a", 8), 0))},
			want: []string{"warning Overtaken default/a"},
		},
		"a job is replaced that has room beside itself, and someone waits for both": {
			cluster: cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 8).waits("default/x", 12, -1),
			visits:  []visit{replace("default/a", claims(job(two, "a", 8), 0))},
			want:    []string{"error Preempts default/a"},
		},
		"the same of a job that evicts nobody": {
			cluster: cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 8).waits("default/x", 12, 0),
			visits:  []visit{replace("default/a", claims(job(two, "a", 8), 0))},
			want:    []string{"error Overtaken default/a"},
		},
		"the same when what waits needs the place of another, too": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/b"}}.runs("default/a", 4).runs("default/b", 8).waits("default/x", 16, -1),
			visits:  []visit{replace("default/a", claims(job(two, "a", 4), 0)), leave("default/b")},
			want:    []string{"warning Overtaken default/a"},
		},
		"a job is replaced by Terraform, has room beside itself, and someone waits for both": {
			cluster: cluster{nodes: two, own: []string{"default/a", "default/x"}}.runs("default/a", 8).waits("default/x", 12, -1).from("default/x"),
			visits:  []visit{force(claims(job(two, "a", 8), 0)), keep("default/x")},
			want:    []string{"error Preempts default/a"},
		},
		"a job is replaced by Terraform, and nothing is in its way": {
			cluster: full, visits: []visit{force(claims(job(two, "a", 16), 0))},
		},
		"a job is replaced by Terraform, and evicts who waits with consent": {
			cluster: full.waits("default/x", 8, -1), visits: []visit{force(consents(claims(job(two, "a", 16), 0)))},
			want: []string{"error Preempts default/a"},
		},
		"a job is replaced by Terraform, and another of higher priority comes": {
			cluster: full, visits: []visit{force(job(two, "a", 16)), plan(consents(claims(job(two, "0", 4), 1)))},
			want: []string{"error Waits default/a default/0"},
			open: []string{"warning Preempts default/0"},
		},
		"a job that is only warned of is replaced by Terraform, and another comes": {
			cluster: full, visits: []visit{force(checked(job(two, "a", 16), ledger.Warn)), plan(checked(consents(claims(job(two, "0", 4), 1)), ledger.Warn))},
			want: []string{"warning Waits default/a default/0"},
			open: []string{"warning Preempts default/0"},
		},
		"a job is replaced by Terraform, and others are in each other's way": {
			cluster: cluster{nodes: slices.Concat(machines(t, "h100", 1), two), own: []string{"default/a"}}.runs("default/a", 4),
			visits:  []visit{force(job(machines(t, "h100", 1), "a", 4)), plan(job(two, "b", 10)), plan(job(two, "c", 10))},
			want:    []string{"warning Waits default/c default/b"},
		},
		"a job is replaced by Terraform, and who waits evicts someone in the meantime": {
			cluster: full.below("default/a", 8).waits("default/x", 16, 0), visits: []visit{force(job(two, "a", 8))},
			want: []string{"error Preempts default/x"},
		},
		"one is deleted, another created, and someone waits for the place": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{leave("default/a"), plan(claims(job(two, "b", 16), 0))},
			want: []string{"error Overtaken default/b", needs},
		},
		"someone waits for it who comes later": {
			cluster: full.waits("default/x", 8, -1), visits: []visit{leave("default/a"), plan(claims(job(two, "b", 16), 0))},
			want: []string{"warning Overtaken default/b", needs},
		},
		"someone waits for what is freed and what the job finds free": {
			cluster: cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 8).waits("default/x", 16, 0),
			visits:  []visit{leave("default/a"), plan(claims(job(two, "b", 8), 0))},
			want:    []string{"warning Overtaken default/b"},
		},
		"someone waits, and nothing is freed": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{keep("default/a"), plan(claims(job(two, "b", 16), 0))},
			want: []string{"error Misfit default/b"},
		},
		"a job of this configuration waits, and is deleted": {
			cluster: full.waits("default/x", 8, 0).from("default/x"), visits: []visit{leave("default/x"), replace("default/a", claims(job(two, "a", 16), 0))},
		},
		"a job of this configuration waits, and stays": {
			cluster: full.waits("default/x", 8, 0).from("default/x"), visits: []visit{keep("default/x"), replace("default/a", claims(job(two, "a", 16), 0))},
			want: []string{"error Overtaken default/a"},
		},
		"a job of this configuration waits, and evicts someone once another has left": {
			cluster: full.below("default/a", 8).waits("default/x", 16, 0).from("default/x"), visits: []visit{leave("default/x"), leave("default/a")},
			want: []string{"warning Preempts default/x"},
		},
		"a job of this configuration waits for more members, and leaves with those that run": {
			cluster: cluster{nodes: two}.runs("default/a", 2).runs("default/y", 14, func(p *placement.Pod) { p.Priority = -1 }).
				waits("default/a", 3, 0).from("default/a").partly(),
			visits: []visit{leave("default/a")},
		},
		"someone waits who evicts someone once the first of two has left": {
			cluster: cluster{nodes: machines(t, "v100", 3), own: []string{"default/a", "default/b"}}.runs("default/a", 8).runs("default/b", 8).
				runs("default/y", 8, func(p *placement.Pod) { p.Priority = -1 }).waits("default/x", 16, 0),
			visits: []visit{leave("default/a"), leave("default/b")},
			want:   []string{"warning Preempts default/x"},
		},
		"two of lower priority come first, and the third evicts someone": {
			cluster: cluster{nodes: two}.runs("default/y", 1, func(p *placement.Pod) { p.Priority = -10 }),
			visits:  []visit{plan(claims(job(two, "a", 8), 0)), plan(claims(job(two, "b", 4), -10)), plan(claims(job(two, "c", 4), -10))},
			want: []string{
				"warning Preempts default/a default/b default/c", "warning Waits default/c default/a default/b",
				"warning SameGPUs default/a default/b", "warning SameGPUs default/a default/c", "warning SameGPUs default/b default/c",
			},
		},
		"someone waits who evicts nobody when another leaves": {
			cluster: full.below("default/a", 8).waits("default/x", 17, 0), visits: []visit{leave("default/a")},
		},
		"someone waits who has room once another has left": {
			cluster: full.below("default/a", 8).waits("default/x", 8, 0), visits: []visit{leave("default/a")},
		},
		"a pool grows, and who waits takes part of it": {
			cluster: cluster{nodes: two}.runs("default/x", 16).waits("default/y", 8, 0), visits: []visit{plan(claims(job(machines(t, "v100", 4), "b", 8), 0))},
			want: []string{"warning Overtaken default/b"},
		},
		"a pool grows by what is waited for": {
			cluster: cluster{nodes: two}.runs("default/x", 16).waits("default/y", 8, 0), visits: []visit{plan(claims(job(machines(t, "v100", 3), "b", 8), 0))},
			want: []string{"error Overtaken default/b"},
		},
		"a pool shrinks under a gang that is replaced by a smaller one": {
			cluster: cluster{nodes: machines(t, "v100", 3), own: []string{"default/a"}}.runs("default/a", 24),
			visits:  []visit{displace("default/a"), replace("default/a", job(two, "a", 16))},
		},
		"a pool shrinks under a gang that is replaced by one that does not fit": {
			cluster: cluster{nodes: machines(t, "v100", 3), own: []string{"default/a"}}.runs("default/a", 24),
			visits:  []visit{displace("default/a"), replace("default/a", job(two, "a", 17))},
			want:    []string{"error Misfit default/a"},
		},
		"a pool shrinks that a gang which waits may start on, once another has left": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{shrink("v100"), leave("default/a")}, want: []string{"warning PoolTaken default/x"},
		},
		"a pool shrinks that a gang which waits may start on, once another has left for one that is placed later": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{shrink("v100"), replaceLater("default/a")}, want: []string{"warning PoolTaken default/x"},
		},
		"a pool shrinks that a gang which waits does not get": {
			cluster: full.waits("default/x", 17, 0), visits: []visit{shrink("v100"), leave("default/a")},
		},
		"a pool shrinks while its gang stays, and another waits": {
			cluster: full.waits("default/x", 8, 0), visits: []visit{shrink("v100"), keep("default/a")},
		},
		"a pool shrinks for which a gang waits that is deleted": {
			cluster: full.waits("default/x", 8, 0).from("default/x"), visits: []visit{shrink("v100"), leave("default/a"), leave("default/x")},
		},
		"a pool shrinks under a gang that stays": {
			cluster: full, visits: []visit{displace("default/a"), keep("default/a")}, want: []string{"error PoolTaken default/a"},
		},
		"a pool shrinks under a gang that is suspended after it": {
			cluster: full, visits: []visit{displace("default/a"), suspend("default/a")}, want: []string{"error PoolTaken default/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.visits, func(order []visit) {
				found := look(test.cluster, order)
				decided := slices.DeleteFunc(describe(anyPlace(found)), func(text string) bool { return slices.Contains(test.open, text) })
				assert.ElementsMatch(t, test.want, decided)
			})
		})
	}
}

// Of many jobs, each is looked at as the one that is placed last, too.
func TestLastOfManyEvicts(t *testing.T) {
	v, h := machines(t, "v100", 2), machines(t, "h100", 2)
	world := cluster{nodes: slices.Concat(v, h)}.runs("default/x", 2, func(p *placement.Pod) { p.Priority = -1 })
	jobs := []ledger.Job{claims(job(v, "a", 12), 0), job(slices.Concat(v, h), "b", 4)}
	for i := range 6 {
		jobs = append(jobs, job(h, fmt.Sprintf("c%d", i), 1))
	}
	for range 2 {
		l := ledger.New()
		l.Observe(world.live)
		var found []ledger.Finding
		for _, j := range jobs {
			found = append(found, plan(j)(l)...)
		}
		evictions := slices.DeleteFunc(describe(found), func(text string) bool { return !strings.Contains(text, string(ledger.Preempts)) })
		assert.NotEmpty(t, evictions, "visited as %s", names(jobs))
		slices.Reverse(jobs)
	}
}

// What a walk does not visit, with -target, stays as it is. That it may leave all the same is said
// of jobs that can wait for it.
func TestPartOfAConfiguration(t *testing.T) {
	two := machines(t, "v100", 2)
	own := func(jobs ...string) cluster {
		c := cluster{nodes: two, own: jobs}
		for _, job := range jobs {
			c = c.runs(job, 4)
		}
		return c
	}
	four := own("default/k", "default/l", "default/m", "default/n")
	for name, test := range map[string]struct {
		cluster cluster
		visits  []visit
		want    []string
	}{
		"one comes that evicts":       {four, []visit{plan(claims(job(two, "b", 6), 1))}, []string{"error Preempts default/b"}},
		"the same with consent":       {four, []visit{plan(consents(claims(job(two, "b", 6), 1)))}, []string{"warning Preempts default/b"}},
		"one comes that waits":        {four, []visit{plan(claims(job(two, "b", 6), 0))}, []string{"warning NeedsOthers default/b default/m default/n"}},
		"one comes that has no place": {four, []visit{plan(job(two, "b", 17))}, []string{"error Misfit default/b"}},
		"two come, of which the second evicts": {
			own("default/k", "default/l", "default/m"), []visit{plan(claims(job(two, "b", 4), 1)), plan(claims(job(two, "c", 4, "default/b"), 1))},
			[]string{"error Preempts default/c default/b"},
		},
		"two come, of which the second waits": {
			own("default/k", "default/l", "default/m"), []visit{plan(job(two, "b", 4)), plan(job(two, "c", 4, "default/b"))},
			[]string{"warning Waits default/c default/b"},
		},
		"one comes whose leaf the tree of the configuration lacks so far": {
			cluster{nodes: two, limits: tree(t, "vision", 8), ownTree: true}, []visit{plan(inLeaf(job(two, "b", 1), "sound"))},
			[]string{"warning NoSuchLeaf default/b"},
		},
		"one comes that must not wait, and another stays": {
			cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 16), []visit{plan(immediately(job(two, "b", 16)))},
			[]string{"error NeedsOthers default/b default/a"},
		},
		"one comes that fits where another leaves": {
			four, []visit{both(job(two, "k", 2), job(two, "b", 2, "default/k"))}, nil,
		},
		"one is replaced, and another waits that stays": {
			own("default/a", "default/k").waits("default/x", 13, -1).from("default/x"), []visit{replace("default/a", claims(job(two, "a", 4), 0))},
			nil,
		},
		"one is replaced, and someone waits for its place": {
			own("default/a", "default/k", "default/l").waits("default/x", 8, -1).from("default/x"), []visit{replace("default/a", claims(job(two, "a", 4), 0))},
			[]string{"error Preempts default/a"},
		},
		"one is deleted, and who waits evicts one that stays": {
			own("default/a").runs("default/y", 12).below("default/y", 8).waits("default/x", 8, 0), []visit{leave("default/a")},
			[]string{"warning Preempts default/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.visits, func(order []visit) {
				l := ledger.New()
				l.ExpectPart()
				l.Observe(test.cluster.live)
				var found []ledger.Finding
				for _, v := range order {
					found = append(found, v(l)...)
				}
				assert.ElementsMatch(t, test.want, describe(anyPlace(found)))
			})
		})
	}
}

// A pool that was not read since it was made calls its nodes by their planned names: they
// are the nodes that exist.
func TestNodesThatWereNotReadSince(t *testing.T) {
	exist := machines(t, "v100", 2)
	for i := range exist {
		exist[i].Name = fmt.Sprintf("node-%d", i)
	}
	l := ledger.New()
	l.Observe(cluster{nodes: exist}.runs("default/x", 16).live)
	_, found := l.PlanJob(job(machines(t, "v100", 2), "b", 1))
	assert.Equal(t, []string{"error Misfit default/b"}, describe(found))

	l = ledger.New()
	l.Observe(cluster{nodes: exist}.runs("default/x", 16).live)
	_, found = l.PlanJob(job(machines(t, "v100", 3), "b", 8))
	assert.Empty(t, found, "the pool grows by a third")
}

// launching adds a launcher, which asks for so many cores.
func launching(j ledger.Job, cores int64) ledger.Job {
	launcher := placement.Role{Name: "launcher", Members: []string{"launcher"}, Late: true}
	launcher.Request.Mode, launcher.Request.MilliCPU = placement.ModeNone, 1000*cores
	j.Gang.Roles = append([]placement.Role{launcher}, j.Gang.Roles...)
	return j
}

// A launcher needs its disk, too.
func TestDiskOfALauncher(t *testing.T) {
	for disk, want := range map[int64][]string{5 << 30: nil, 6 << 30: {"error LateMisfit default/b"}} {
		nodes := machines(t, "v100", 1)
		nodes[0].Allocatable.Extended = map[string]int64{"ephemeral-storage": 5 << 30}
		j := launching(job(nodes, "b", 8), 1)
		j.Gang.Roles[0].Request.Extended = map[string]int64{"ephemeral-storage": disk}
		l := ledger.New()
		l.Observe(cluster{nodes: nodes}.live)
		_, found := l.PlanJob(j)
		assert.ElementsMatch(t, want, describe(found), disk)
	}
}

// Capacity that the scheduler keeps for a gang that waits is not there for a job.
func TestReservedCapacity(t *testing.T) {
	one, two := machines(t, "v100", 1), machines(t, "v100", 2)
	leaving := func(p *placement.Pod) { p.Leaving = true }
	for name, test := range map[string]struct {
		cluster cluster
		visits  []visit
		want    []string
	}{
		"for one that waits for others to end": {
			cluster{nodes: one}.runs("default/x", 4).waits("default/w", 8, 0).reserved(), []visit{plan(job(one, "b", 4))}, []string{"warning Overtaken default/b"},
		},
		"and the job is waited for": {
			cluster{nodes: one}.runs("default/x", 4).waits("default/w", 8, 0).reserved(), []visit{plan(immediately(job(one, "b", 4)))}, []string{"error Overtaken default/b"},
		},
		"none": {cluster{nodes: one}.runs("default/x", 4).waits("default/w", 8, 0), []visit{plan(job(one, "b", 4))}, nil},
		"beside it, but where": {
			cluster{nodes: two}.runs("default/x", 12).waits("default/w", 8, 0).reserved(), []visit{plan(job(two, "b", 4))}, []string{"warning Overtaken default/b"},
		},
		"in another pool": {
			cluster{nodes: append(machines(t, "p100", 1), one...)}.runs("default/x", 12).waits("default/w", 8, 0).reserved(), []visit{plan(job(one, "b", 4))}, nil,
		},
		"on a pool that grows":     {cluster{nodes: one}.runs("default/x", 4).waits("default/w", 8, 0).reserved(), []visit{plan(job(two, "b", 4))}, []string{"warning Overtaken default/b"}},
		"that pods leave":          {cluster{nodes: one}.runs("default/x", 8, leaving).waits("default/w", 8, 0).reserved(), []visit{plan(claims(job(one, "b", 8), 0))}, []string{"error Overtaken default/b"}},
		"that pods leave for none": {cluster{nodes: one}.runs("default/x", 8, leaving), []visit{plan(claims(job(one, "b", 8), 0))}, nil},
		"for one that leaves": {
			cluster{nodes: one}.runs("default/x", 4).waits("default/w", 8, 0).from("default/w").reserved(),
			[]visit{plan(job(one, "b", 4)), leave("default/w")}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.visits, func(order []visit) {
				assert.Equal(t, test.want, describe(look(test.cluster, order)))
			})
		})
	}
}

// Where the launchers of jobs do not fit beside each other, kube-scheduler may also evict pods of lower
// priority for one of them, which are named.
func TestLaunchersThatMayEvict(t *testing.T) {
	nodes := machines(t, "v100", 1) // 80 cores
	cores := func(n int64, priority int32) func(*placement.Pod) {
		return func(p *placement.Pod) { p.Request.MilliCPU, p.Priority = 1000*n, priority }
	}
	for name, test := range map[string]struct {
		priority int32
		says     string
	}{
		"a lower priority": {-1, "one of them will wait until the others finish, or kube-scheduler evicts pods of lower priority for what starts once its members run: of default/x."},
		"the same":         {0, "one of them will wait until the others finish."},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{nodes: nodes}.runs("default/x", 1, cores(60, test.priority))
			found := look(c, []visit{plan(launching(job(nodes, "b", 1), 11)), plan(immediately(launching(job(nodes, "c", 1, "default/b"), 11)))})
			require.Len(t, found, 1)
			assert.Equal(t, ledger.Waits, found[0].Kind)
			assert.Contains(t, found[0].Detail, test.says)
		})
	}
}

// What starts once a job runs has room beside it, when others have left for the job.
func TestLaunchersOnTheCluster(t *testing.T) {
	nodes := machines(t, "v100", 1) // 80 cores
	cores := func(n int64) func(*placement.Pod) {
		return func(p *placement.Pod) { p.Request.MilliCPU = 1000 * n }
	}
	foreign := cluster{nodes: nodes}.runs("default/x", 1, cores(60))
	own := cluster{nodes: nodes, own: []string{"default/a"}}.runs("default/a", 1, cores(60))
	for name, test := range map[string]struct {
		cluster cluster
		visits  []visit
		want    []string
	}{
		"two, with room for one": {
			foreign, []visit{plan(launching(job(nodes, "b", 1), 11)), plan(immediately(launching(job(nodes, "c", 1, "default/b"), 11)))},
			[]string{"error Waits default/c default/b"},
		},
		"two, with room for both":            {foreign, []visit{plan(launching(job(nodes, "b", 1), 10)), plan(launching(job(nodes, "c", 1, "default/b"), 10))}, nil},
		"room":                               {foreign, []visit{plan(launching(job(nodes, "b", 1), 20))}, nil},
		"no room":                            {foreign, []visit{plan(launching(job(nodes, "b", 1), 21))}, []string{"error LateMisfit default/b"}},
		"no room for the members either":     {foreign, []visit{plan(launching(job(nodes, "b", 8), 21))}, []string{"error Misfit default/b"}},
		"room once another has left":         {own, []visit{plan(launching(job(nodes, "b", 1), 21)), leave("default/a")}, []string{"warning NeedsOthers default/b default/a"}},
		"room, which another keeps":          {own, []visit{plan(launching(job(nodes, "b", 1), 21)), keep("default/a")}, []string{"error LateMisfit default/b"}},
		"room that is its own":               {own, []visit{replace("default/a", launching(job(nodes, "a", 1), 80))}, nil},
		"more than there is when it is gone": {own, []visit{replace("default/a", launching(job(nodes, "a", 1), 81))}, []string{"error LateMisfit default/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.visits, func(order []visit) {
				found := look(test.cluster, order)
				assert.Equal(t, test.want, describe(found))
			})
		})
	}
}

// A node that exists has the labels and taints that its pool will have given it.
func TestNodesAsTheirPoolWillHaveThem(t *testing.T) {
	taint := placement.Taint{Key: "dedicated", Value: "pool", Effect: "NoSchedule"}
	with := func(nodes []placement.Node, label string, taints ...placement.Taint) []placement.Node {
		nodes = slices.Clone(nodes)
		for i := range nodes {
			nodes[i].Taints, nodes[i].Labels = taints, map[string]string{"zone": "a"}
			if label != "" {
				nodes[i].Labels["team"] = label
			}
		}
		return nodes
	}
	nodes := machines(t, "v100", 1)
	selecting := func(nodes []placement.Node, key, value string) ledger.Job {
		j := job(nodes, "b", 1)
		j.Gang.Roles[0].NodeSelector = map[string]string{key: value}
		return j
	}
	misfit := []string{"error Misfit default/b"}
	for name, test := range map[string]struct {
		live []placement.Node
		job  ledger.Job
		want []string
	}{
		"a taint that was taken away comes back":        {with(nodes, ""), job(with(nodes, "", taint), "b", 1), misfit},
		"a taint that the pool gives up":                {with(nodes, "", taint), job(with(nodes, ""), "b", 1), nil},
		"a taint that kubectl has set":                  {with(nodes, "", placement.Taint{Key: "x", Effect: "NoSchedule"}), job(with(nodes, ""), "b", 1), misfit},
		"a label that the pool gives up":                {with(nodes, "vision"), selecting(with(nodes, ""), "team", "vision"), misfit},
		"a label that the pool changes":                 {with(nodes, "vision"), selecting(with(nodes, "speech"), "team", "speech"), nil},
		"a label that the pool has never given to them": {with(nodes, ""), selecting(with(nodes, ""), "zone", "a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.UnsetOnNodes("v100", []string{"team"}, []placement.Taint{taint})
			l.Observe(cluster{nodes: test.live}.live)
			_, found := l.PlanJob(test.job)
			assert.Equal(t, test.want, describe(found))
		})
	}
}

// The nodes of a pool that is replaced are new: what those of its name have and lack is nothing to them.
func TestNodesOfAPoolThatIsReplaced(t *testing.T) {
	planned := machines(t, "v100", 1)
	old := machines(t, "v100", 2)
	for i := range old {
		old[i].Name, old[i].Unschedulable = fmt.Sprintf("old-%d", i), true
		old[i].Allocatable.MilliCPU = 1000
		old[i].Taints = []placement.Taint{{Key: "x", Effect: "NoSchedule"}}
	}
	asks := job(planned, "b", 8)
	asks.Gang.Roles[0].Request.MilliCPU = 4000
	live := cluster{nodes: old, own: []string{"default/a"}}.runs("default/a", 8)
	pool := func(l *ledger.Ledger) []ledger.Finding { return l.ReplacePool("v100") }
	before := ledger.New()
	pool(before)
	before.Observe(live.live)
	_, found := before.PlanJob(asks)
	assert.Empty(t, describe(found), "told before anybody looks at the cluster")

	assert.Empty(t, describe(look(live, []visit{pool, pool, plan(asks), keep("default/a")})))
	two := job(planned, "b", 9)
	assert.Equal(t, []string{"error Misfit default/b"}, describe(look(live, []visit{pool, plan(two), keep("default/a")})), "the old nodes are gone")
	assert.Equal(t, []string{"error Misfit default/b"}, describe(look(live, []visit{plan(anywhere(asks)), pool, keep("default/a")})), "and were so for nobody")
	assert.Equal(t, []string{"error Misfit default/b"}, describe(look(live, []visit{plan(asks), keep("default/a")})), "nodes that stay are as they are")
}

// A capacity that is older than the cluster, as one from another configuration's state can be, says of
// GPUs that they are free on which a job runs by now.
func TestCapacityThatIsOlderThanTheCluster(t *testing.T) {
	planned := machines(t, "v100", 2)
	named := machines(t, "v100", 2)
	for i := range named {
		named[i].Name, named[i].Since = fmt.Sprintf("node-%d", i), int64(i)
	}
	live := cluster{nodes: named, own: []string{"default/a"}}.runs("default/a", 4)
	elsewhere := []string{"warning Elsewhere default/b"}
	b := func(nodes []placement.Node) visit { return plan(claims(job(nodes, "b", 4), 0)) }
	for name, nodes := range map[string][]placement.Node{"planned nodes": planned, "nodes that exist": named} {
		t.Run(name, func(t *testing.T) {
			orders([]visit{b(nodes), keep("default/a")}, func(order []visit) {
				assert.Equal(t, elsewhere, describe(look(live, order)))
			})
			orders([]visit{b(nodes), leave("default/a")}, func(order []visit) {
				assert.NotContains(t, describe(look(live, order)), elsewhere[0], "the place is left")
			})
			assert.Empty(t, look(live, []visit{plan(checked(claims(job(nodes, "b", 4), 0), ledger.Ignore)), keep("default/a")}))
			assert.Empty(t, look(live, []visit{plan(job(nodes, "b", 4)), keep("default/a")}), "its scheduler keeps to no plan")
		})
	}
	assert.Empty(t, look(live, []visit{b(named[1:]), keep("default/a")}), "on another node")
	said := look(live, []visit{keep("default/a"), b(named)})
	require.Len(t, said, 1)
	assert.Contains(t, said[0].Detail, "Job default/b fits, but not where it is planned: ")
	forced := look(live, []visit{keep("default/a"), force(claims(job(named, "b", 4), 0))})
	assert.Equal(t, []string{"error Elsewhere default/b"}, describe(forced), "Terraform shows no warning of it")
}

// The mark of a job is the same at plan and at apply, also where the plan does not promise its place because Terraform
// replaces the job by its own decision.
func TestMarkOfAReplacedJob(t *testing.T) {
	two := machines(t, "v100", 2)
	nodes := cluster{nodes: two}.live
	j := claims(job(two, "b", 8), 0)
	larger := j.Gang
	larger.ExcludeNodes = map[string]bool{two[0].Name: true}
	j.Admitted = &larger

	atPlan, atApply := ledger.New(), ledger.New()
	atPlan.Observe(nodes)
	atPlan.KeepJob("default/b")
	atPlan.PlanJob(j)
	atApply.StartApplying()
	atApply.PlanJob(j)
	assert.False(t, atPlan.Promised("default/b"))
	assert.True(t, atApply.Promised("default/b"))
	assert.Equal(t, atApply.Mark("default/b"), atPlan.Mark("default/b"))
	assert.NotEqual(t, ledger.Unplanned, atPlan.Mark("default/b"))
}

// What is found by a tree that this plan has yet to say something of does not read like what is found
// by the planned one.
func TestQuotaOfATreeThatIsStillToCome(t *testing.T) {
	two := machines(t, "v100", 2)
	c := cluster{nodes: two, limits: tree(t, "vision", 8), ownTree: true}
	said := look(c, []visit{plan(inLeaf(job(two, "b", 9), "vision")), planTree(tree(t, "vision", 8))})
	require.Equal(t, []string{"error ExceedsQuota default/b", "warning ExceedsQuota default/b"}, describe(said))
	assert.Equal(t, "Job exceeds its quota, as the cluster has it", said[0].Summary)
	assert.Contains(t, said[0].Detail, "what this plan makes of the tree was not known yet")
	assert.Equal(t, "Job default/b: job exceeds its quota", said[1].Summary)
	assert.NotContains(t, said[1].Detail, "not known yet")
	said = look(c, []visit{planTree(tree(t, "vision", 8)), plan(inLeaf(job(two, "b", 9), "vision"))})
	require.Equal(t, []string{"error ExceedsQuota default/b"}, describe(said))
	assert.Equal(t, "Job exceeds its quota", said[0].Summary)
}

// Pods that name no leaf are charged to that which has their namespace in the tree as it is planned, also
// when another leaf has it now.
func TestNamespaceMovesToAnotherLeaf(t *testing.T) {
	two := machines(t, "v100", 2)
	owner := func(leaf string) *quota.Tree {
		amounts := quota.Resources{"aliyun.com/gpu": 8}
		tree, err := quota.New(quota.Spec{Children: []quota.Spec{{Name: leaf, Max: amounts, Namespaces: []string{"default"}}}})
		require.NoError(t, err)
		return tree
	}
	c := cluster{nodes: two, limits: owner("a"), ownTree: true}.runs("default/x", 8)
	starts, moves := plan(inLeaf(job(two, "b", 1), "b")), planTree(owner("b"))
	for _, order := range [][]visit{{starts, moves}, {moves, starts}} {
		said := look(c, order)
		require.NotEmpty(t, said)
		last := said[len(said)-1]
		assert.Equal(t, ledger.WaitsForQuota, last.Kind, last.Detail)
		assert.Contains(t, last.Detail, "quota root/b: max of aliyun.com/gpu is 8, 8 is used")
	}
}

// What is announced says who has to leave, who is evicted, and for whom a job waits.
func TestLiveFindingsNameTheOthers(t *testing.T) {
	two := machines(t, "v100", 2)
	say := func(c cluster, j ledger.Job) string {
		l := ledger.New()
		l.Observe(c.live)
		_, found := l.PlanJob(j)
		require.Len(t, found, 1)
		return found[0].Detail
	}
	lower := func(p *placement.Pod) { p.Leaf, p.Priority = "vision", -5 }

	l := ledger.New()
	l.Observe(cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 16).live)
	assert.Empty(t, plan(job(two, "b", 8))(l), "the walk will say what becomes of the other")
	found := leave("default/a")(l)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Detail, "Job default/b does not fit beside what runs now. It starts once this plan has taken default/a away.")
	l = ledger.New()
	l.ExpectPart()
	l.Observe(cluster{nodes: two, own: []string{"default/a"}}.runs("default/a", 16).live)
	found = plan(job(two, "b", 8))(l)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Detail, "It starts only once default/a, of this configuration, no longer runs. This plan is about a part of the configuration (-target)")
	assert.Contains(t, say(cluster{nodes: two}.runs("default/x", 16, lower), claims(job(two, "b", 8), 0)),
		"the scheduler would evict for it: default/x (16 pods, priority -5, quota vision).")
	quotaText := say(cluster{nodes: two, limits: tree(t, "vision", 8)}.runs("default/x", 8, charged("vision")), inLeaf(job(two, "b", 1), "vision"))
	assert.Contains(t, quotaText, "Job default/b fits on its pools, but not into its quota beside what runs now: 0 of 1 members fit: quota root/vision: max of aliyun.com/gpu is 8, 8 is used")
	assert.Contains(t, quotaText, "It waits until enough of what uses this quota has ended: default/x.")
}

// The cluster decides between fits, waits and evicts, and never where a job is planned.
func TestTheClusterDoesNotChangeThePlacement(t *testing.T) {
	two := machines(t, "v100", 2)
	alone, _ := ledger.New().PlanJob(job(two, "b", 4))
	l := ledger.New()
	l.Observe(cluster{nodes: two}.runs("default/x", 3).live)
	beside, _ := l.PlanJob(job(two, "b", 4))
	assert.Equal(t, alone.Placement, beside.Placement)
}

// A walk that changes things does not look at the cluster: what it misses may be what it uses.
func TestNothingIsSaidWhileApplying(t *testing.T) {
	two := machines(t, "v100", 2)
	l := ledger.New()
	l.Observe(cluster{nodes: two}.runs("default/x", 16).live)
	l.StartApplying()
	_, found := l.PlanJob(job(two, "b", 16))
	assert.Empty(t, found)
}

// Each contention names those who contend.
func TestNobodyWaitsForNobody(t *testing.T) {
	two := machines(t, "v100", 2)
	jobs := []ledger.Job{
		inLeaf(job(two, "a", 9), "vision"), inLeaf(job(two, "b", 3), "vision"), job(machines(t, "h100", 1), "c", 8), job(two, "d", 14),
	}
	orders(jobs, func(jobs []ledger.Job) {
		l := ledger.New()
		var found []ledger.Finding
		for _, j := range jobs {
			_, more := l.PlanJob(j)
			found = append(found, more...)
		}
		found = append(found, l.RecordTree(tree(t, "vision", 8))...)
		for _, f := range found {
			assert.NotContains(t, f.Detail, "at the same time as :")
			assert.False(t, f.Kind == ledger.Waits && len(f.Jobs) < 2, strings.Join(f.Jobs, " "))
		}
	})
}

func TestAJobWithoutPoolsIsNotJudgedWithoutACluster(t *testing.T) {
	_, findings := ledger.New().PlanJob(job(nil, "a", 2))
	assert.Empty(t, findings)
}

// The nearest fix counts the quota that is in use, wherever in the cluster it is used.
func TestMisfitNamesQuotaThatIsInUse(t *testing.T) {
	pool, elsewhere := machines(t, "v100", 1), machines(t, "other", 1)
	for name, test := range map[string]struct {
		walk []visit
		tree *quota.Tree
	}{
		"the cluster's tree": {nil, tree(t, "vision", 12)},
		"the planned tree":   {[]visit{planTree(tree(t, "vision", 12))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{nodes: slices.Concat(elsewhere, pool), limits: test.tree}.runs("default/x", 8, charged("vision"))
			l := ledger.New()
			l.Observe(c.live)
			for _, v := range test.walk {
				v(l)
			}
			found := plan(inLeaf(job(pool, "big", 12), "vision"))(l)
			require.Len(t, found, 1)
			assert.Equal(t, ledger.Misfit, found[0].Kind)
			assert.Contains(t, found[0].Detail, "max of aliyun.com/gpu is 12, 8 is used")
			assert.Contains(t, found[0].Detail, "Nearest fix: pool size 2 (now 1) for pool v100 and quota max 20 (now 12) of aliyun.com/gpu for root/vision.")
		})
	}
}

// A job that is by itself more than its quota is told so with what is used of it, and only
// where there is room for the job.
func TestJobThatExceedsItsQuota(t *testing.T) {
	four := machines(t, "v100", 4)
	onNode := func(j ledger.Job) ledger.Job {
		for i := range 4 {
			j.Occupants = append(j.Occupants, placement.Pod{ID: fmt.Sprintf("default/x-%d", i), Node: "v100[0]", Gang: "default/x", Leaf: "vision",
				Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}, Own: gpu.SetOf(i), Preemptible: true})
		}
		return j
	}
	for name, test := range map[string]struct {
		used int
		job  ledger.Job
		kind ledger.Kind
		says []string
	}{
		"on its pools": {7, job(four, "b", 20), ledger.ExceedsQuota, []string{
			"fits on its pools, but can never run within its quota: ", "max of aliyun.com/gpu is 16, 7 is used and 20 is asked for",
			"Nearest fix: quota max 27 (now 16) of aliyun.com/gpu for root/vision."}},
		"anywhere": {7, job(nil, "b", 20), ledger.ExceedsQuota, []string{
			"fits on the cluster, but can never run within its quota: ", "max of aliyun.com/gpu is 16, 7 is used and 20 is asked for",
			"Nearest fix: quota max 27 (now 16) of aliyun.com/gpu for root/vision."}},
		"anywhere, without room": {14, job(nil, "b", 20), ledger.Misfit, []string{
			"max of aliyun.com/gpu is 16, 14 is used and 20 is asked for", "Nearest fix: pool size 5 (now 4) for pool v100 and quota max 34 (now 16)"}},
		"within the quota that its neighbours use": {4, onNode(job(four, "b", 13)), ledger.WaitsForQuota, []string{"It waits until enough of what uses this quota has ended: default/x."}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(cluster{nodes: four, limits: tree(t, "vision", 16)}.runs("default/x", test.used, charged("vision")).live)
			found := plan(inLeaf(test.job, "vision"))(l)
			require.Len(t, found, 1)
			assert.Equal(t, test.kind, found[0].Kind, found[0].Detail)
			for _, says := range test.says {
				assert.Contains(t, found[0].Detail, says)
			}
		})
	}
}

// What starts once a job runs needs quota as well, of the job queue too.
func TestLauncherThatExceedsItsQuota(t *testing.T) {
	two := machines(t, "v100", 2)
	limits, err := quota.New(quota.Spec{Name: "root", Max: quota.Resources{"cpu": 64_000}, Min: quota.Resources{"cpu": 64_000}, Children: []quota.Spec{
		{Name: "vision", Max: quota.Resources{"cpu": 8_000}}, {Name: "batch"},
	}})
	require.NoError(t, err)
	cores := func(j ledger.Job, cores int64) ledger.Job {
		for i := range j.Gang.Roles {
			if role := &j.Gang.Roles[i]; !role.Late {
				role.Request.MilliCPU = 1000 * cores
			}
		}
		return j
	}
	for name, test := range map[string]struct {
		job  ledger.Job
		want []string
	}{
		"too little":                   {inLeaf(cores(launching(job(two, "b", 2), 1), 4), "vision"), []string{"error ExceedsQuota default/b"}},
		"too little for the job queue": {queued(inLeaf(cores(launching(job(two, "b", 2), 1), 4), "vision")), []string{"error ExceedsQuota default/b"}},
		"enough":                       {inLeaf(cores(launching(job(two, "b", 2), 2), 3), "vision"), nil},
		"anywhere":                     {inLeaf(cores(launching(job(nil, "b", 2), 1), 4), "vision"), []string{"error ExceedsQuota default/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(cluster{nodes: two, limits: limits}.live)
			assert.Equal(t, test.want, describe(plan(test.job)(l)))
		})
	}
}

// A job that waits for its quota names those whose end gives it what it lacks, and nobody else of
// the leaf: a user was told to wait for a job that uses other GPUs.
func TestWhoUsesTheQuota(t *testing.T) {
	three := machines(t, "v100", 3)
	devices := func(p *placement.Pod) {
		p.Request.Mode, p.Own = placement.ModeDefault, gpu.Set(0)
	}
	kept := func(p *placement.Pod) { p.Preemptible = false }
	total := quota.Resources{"aliyun.com/gpu": 16, "nvidia.com/gpu": 16}
	limits, err := quota.New(quota.Spec{Name: "root", Min: total, Max: total, Children: []quota.Spec{
		{Name: "vision", Min: quota.Resources{"aliyun.com/gpu": 4}, Max: quota.Resources{"aliyun.com/gpu": 8}},
		{Name: "batch", MaxJobs: 2, Children: []quota.Spec{{Name: "day"}, {Name: "night"}}},
	}})
	require.NoError(t, err)
	onItsOwn := func(p *placement.Pod) { p.Gang = "" }
	eight := func(p *placement.Pod) { p.Request.GPUs, p.Own = 8, gpu.Full(8) }
	in := func(leaf, gang string, change ...func(*placement.Pod)) func(cluster) cluster {
		return func(c cluster) cluster { return c.runs(gang, 1, append(change, charged(leaf))...) }
	}
	of := func(gang string, members int, change ...func(*placement.Pod)) func(cluster) cluster {
		return func(c cluster) cluster { return c.runs(gang, members, append(change, charged("vision"))...) }
	}
	unawaited := func(j ledger.Job) ledger.Job { j.Unawaited = true; return j }
	resident := func(j ledger.Job) ledger.Job { j.Gang.Preemptible = false; return j }
	const waits = " It waits until enough of what uses this quota has ended: "
	const patience = " With wait_for = \"none\" an apply does not wait for it."
	for name, test := range map[string]struct {
		runs []func(cluster) cluster
		job  ledger.Job
		says string
	}{
		"all of the leaf":                {[]func(cluster) cluster{of("default/x", 4), of("default/y", 4)}, inLeaf(job(three, "b", 1), "vision"), waits + "default/x, default/y." + patience},
		"one that uses another resource": {[]func(cluster) cluster{of("default/x", 8), of("default/y", 2, devices)}, inLeaf(job(three, "b", 1), "vision"), waits + "default/x." + patience},
		"a minimum, beside a borrower":   {[]func(cluster) cluster{of("default/x", 3, kept), of("default/y", 2)}, resident(inLeaf(job(three, "b", 2), "vision")), waits + "default/x." + patience},
		"one that the queue holds": {[]func(cluster) cluster{of("default/x", 2)}, queued(inLeaf(elastic(job(three, "b", 8), 6), "vision")),
			"beside what runs now: the job queue needs quota for all members, also those beyond the minimum: " +
				"quota root/vision: max of aliyun.com/gpu is 8, 2 is used and 8 is asked for." + waits + "default/x." + patience},
		"the jobs of a parent": {[]func(cluster) cluster{in("day", "default/x"), in("night", "default/y"), in("day", "default/z", onItsOwn)}, inLeaf(job(three, "b", 1), "day"),
			waits + "default/x, default/y." + patience},
		"under leaves that have gone": {[]func(cluster) cluster{in("gone", "default/x", eight), in("batch", "default/y", eight)}, inLeaf(job(three, "b", 1), "vision"),
			waits + "default/x, default/y." + patience},
		"one that no apply waits for": {[]func(cluster) cluster{of("default/x", 8)}, unawaited(inLeaf(job(three, "b", 1), "vision")), waits + "default/x."},
		"no time to wait":             {[]func(cluster) cluster{of("default/x", 8)}, immediately(inLeaf(job(three, "b", 1), "vision")), waits + "default/x."},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster{nodes: three, limits: limits}
			for _, run := range test.runs {
				c = run(c)
			}
			l := ledger.New()
			l.Observe(c.live)
			found := plan(test.job)(l)
			require.Len(t, found, 1)
			assert.Equal(t, ledger.WaitsForQuota, found[0].Kind, found[0].Detail)
			assert.True(t, strings.HasSuffix(found[0].Detail, test.says), found[0].Detail)
		})
	}
}

// A job that waits for others names those that have what it lacks, and nobody else: of its nodes,
// or of the limit of the quota that is short. Where the job queue is to hold jobs, it says so.
func TestWhoIsInTheWay(t *testing.T) {
	const gpus = "aliyun.com/gpu"
	v100, h100 := machines(t, "v100", 2), machines(t, "h100", 2)
	total := quota.Resources{gpus: 24, "cpu": 1 << 20}
	limits, err := quota.New(quota.Spec{Name: "root", Min: total, Max: total, Children: []quota.Spec{
		{Name: "batch", MaxJobs: 2}, {Name: "vision", Max: quota.Resources{gpus: 16}}, {Name: "sound"},
	}})
	require.NoError(t, err)
	withoutGPU := func(j ledger.Job) ledger.Job {
		j.Gang.Roles[0].Request = placement.Request{Resources: placement.Resources{MilliCPU: 1000}}
		return j
	}
	for name, test := range map[string]struct {
		jobs []ledger.Job
		says string
	}{
		"the jobs of a queue": {
			[]ledger.Job{queued(inLeaf(job(v100, "a1", 1), "batch")), queued(inLeaf(job(v100, "a2", 1), "batch")), queued(inLeaf(job(v100, "a3", 1), "batch")), queued(inLeaf(job(h100, "b", 1), "vision"))},
			"Job default/a3 fits on its own, but not at the same time as default/a1, default/a2: the job queue holds one of them, as queue = true asks, until the quota has room for it.",
		},
		"jobs of which one is not queued": {
			[]ledger.Job{queued(inLeaf(job(v100, "a1", 1), "batch")), inLeaf(job(v100, "a2", 1), "batch"), queued(inLeaf(job(v100, "a3", 1), "batch")), queued(inLeaf(job(h100, "b", 1), "vision"))},
			"Job default/a3 fits on its own, but not at the same time as default/a1, default/a2: one of them will wait until the others finish.",
		},
		"a resource": {
			[]ledger.Job{inLeaf(job(v100, "a", 8), "vision"), inLeaf(job(v100, "b", 8), "sound"), withoutGPU(inLeaf(job(h100, "c", 1), "sound")), inLeaf(job(h100, "d", 9), "sound")},
			"Job default/d fits on its own, but not at the same time as default/a, default/b: one of them will wait until the others finish.",
		},
		"nodes": {
			[]ledger.Job{queued(inLeaf(job(v100, "a1", 6), "vision")), queued(inLeaf(job(v100, "a2", 6), "sound")), queued(inLeaf(job(v100, "a3", 6), "sound")), queued(inLeaf(job(h100, "b", 1), "vision"))},
			"Job default/a3 fits on its own, but not at the same time as default/a1, default/a2: one of them will wait until the others finish.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.jobs, func(jobs []ledger.Job) {
				l := ledger.New()
				l.Observe(cluster{nodes: slices.Concat(v100, h100), limits: limits}.live)
				var texts strings.Builder
				for _, j := range jobs {
					for _, f := range plan(j)(l) {
						texts.WriteString(f.Detail + "\n")
					}
				}
				assert.Contains(t, texts.String(), test.says)
			})
		})
	}
}

// Nobody says of a job that waits for others that it fits at once, or by itself.
func TestOneStoryForAJobThatNeedsOthers(t *testing.T) {
	two := machines(t, "v100", 2)
	c := cluster{nodes: two, own: []string{"default/x"}}.runs("default/x", 16)
	for name, test := range map[string]struct {
		workers int
		says    string
	}{
		"the same GPUs": {8, "Both fit once others have left, but nothing says which of them is placed first"},
		"too many":      {12, "Job default/b fits once others have left, but not at the same time as default/a"},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(c.live)
			var texts strings.Builder
			for _, id := range []string{"a", "b"} {
				for _, f := range plan(job(two, id, test.workers))(l) {
					texts.WriteString(f.Detail + "\n")
				}
			}
			for _, f := range leave("default/x")(l) {
				texts.WriteString(f.Detail + "\n")
			}
			assert.Contains(t, texts.String(), "Job default/a does not fit beside what runs now. It starts once this plan has taken default/x away.")
			assert.Contains(t, texts.String(), test.says)
			assert.NotContains(t, texts.String(), "at once")
			assert.NotContains(t, texts.String(), "on its own")
		})
	}
}

// What shows with another resource names its job first.
func TestFindingAboutAnotherJobNamesIt(t *testing.T) {
	one := machines(t, "v100", 1)
	l := ledger.New()
	l.Observe(cluster{nodes: one, own: []string{"default/x"}}.runs("default/x", 8).live)
	require.Empty(t, plan(job(one, "b", 8))(l))
	later := keep("default/x")(l)
	require.Len(t, later, 1)
	assert.Equal(t, ledger.Misfit, later[0].Kind)
	assert.Equal(t, "Job default/b: gang does not fit", later[0].Summary)
	assert.Contains(t, later[0].Detail, "the resource that Terraform has planned last")

	alone := plan(job(one, "c", 9))(l)
	require.NotEmpty(t, alone)
	assert.Equal(t, "Gang does not fit", alone[0].Summary)
}

// A job of the queue needs a quota tree, which the plan or the cluster has; what is unknown is
// not guessed.
func TestQueueWithoutATree(t *testing.T) {
	one := machines(t, "v100", 1)
	queued := job(one, "a", 8)
	queued.Queued = true
	misfit := job(one, "a", 9)
	misfit.Queued = true
	bare := cluster{nodes: one}
	for name, test := range map[string]struct {
		job     ledger.Job
		cluster *cluster
		noTree  bool
		before  func(*ledger.Ledger)
		want    []string
	}{
		"the cluster has none":       {queued, &bare, true, nil, []string{"warning NoTree default/a"}},
		"nobody looked":              {queued, nil, false, nil, nil},
		"one that cannot be used":    {queued, &bare, false, nil, nil},
		"one is planned":             {queued, &bare, true, func(l *ledger.Ledger) { l.RecordTree(tree(t, "vision", 8)) }, nil},
		"one is planned, unknown":    {queued, &bare, true, (*ledger.Ledger).ExpectTree, nil},
		"the plan deletes it":        {queued, &bare, false, func(l *ledger.Ledger) { l.RecordTree(nil) }, []string{"error NoTree default/a"}},
		"without the queue":          {job(one, "a", 8), &bare, true, nil, nil},
		"others have to leave":       {queued, new(cluster{nodes: one, own: []string{"default/x"}}.runs("default/x", 8)), true, nil, []string{"warning NoTree default/a"}},
		"a leaf of none":             {inLeaf(job(one, "a", 8), "vision"), &bare, true, nil, []string{"warning Ungoverned default/a"}},
		"a leaf, nobody looked":      {inLeaf(job(one, "a", 8), "vision"), nil, false, nil, nil},
		"a leaf of one planned":      {inLeaf(job(one, "a", 8), "vision"), &bare, true, func(l *ledger.Ledger) { l.RecordTree(tree(t, "vision", 8)) }, nil},
		"a leaf of one, unknown":     {inLeaf(job(one, "a", 8), "vision"), &bare, true, (*ledger.Ledger).ExpectTree, []string{"warning QuotaUnknown default/a"}},
		"one that does not fit says": {misfit, &bare, true, nil, []string{"error Misfit default/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			if test.cluster != nil {
				live := test.cluster.live()
				live.NoTree = test.noTree
				l.Observe(func() ledger.Live { return live })
			}
			if test.before != nil {
				test.before(l)
			}
			assert.Equal(t, test.want, describe(plan(test.job)(l)))
		})
	}
}

// What starts once a job runs and has no room, though others are evicted for the job, is said with their names.
func TestLauncherBesideWhoIsEvicted(t *testing.T) {
	nodes := machines(t, "v100", 1) // 80 cores
	busy := cluster{nodes: nodes}.
		runs("default/low", 7, func(p *placement.Pod) { p.Priority = -5 }).
		runs("default/cores", 1, func(p *placement.Pod) { p.Request.MilliCPU = 60_000 })
	for cores, says := range map[int64]bool{20: false, 21: true} {
		j := launching(job(nodes, "b", 7), cores)
		j.MayPreempt, j.AllowPreemption = true, true
		found := look(busy, []visit{plan(j)})
		require.Equal(t, []string{"warning Preempts default/b"}, describe(found))
		assert.Contains(t, found[0].Detail, "default/low")
		assert.Equal(t, says, strings.Contains(found[0].Detail, "what starts once they run does not fit beside them"), found[0].Detail)
	}
}

// Of jobs without which a planned one fits, and which Terraform does not visit, the plan says so once no visit comes any
// more, and waits for them no second time. What is visited meanwhile is decided.
func TestJobsThatNoVisitDecidesAbout(t *testing.T) {
	one := machines(t, "v100", 1)
	full := cluster{nodes: one, own: []string{"default/mine", "default/other"}}.runs("default/mine", 6).runs("default/other", 2)
	const said, ever = "warning NeedsOthers default/new", time.Minute
	for name, test := range map[string]struct {
		visits    []visit
		meanwhile visit
		change    func(ledger.Job) ledger.Job
		patience  time.Duration
		want      []string
		says      string
	}{
		"neither is visited":                      {want: []string{said}, says: "it starts once default/mine, of this configuration, no longer runs"},
		"the other one is":                        {visits: []visit{keep("default/other")}, want: []string{said}},
		"it is to start at once":                  {change: immediately, want: []string{said}},
		"its scheduler evicts them":               {change: claimsUrgently, want: []string{said}, says: "the scheduler evicts for the job: default/mine (6 pods, priority 0)."},
		"nobody checks it":                        {change: unchecked},
		"nobody checks it, its scheduler evicts":  {change: func(j ledger.Job) ledger.Job { return unchecked(claimsUrgently(j)) }, want: []string{said}},
		"both are":                                {visits: []visit{leave("default/mine"), leave("default/other")}, patience: ever},
		"one goes meanwhile":                      {meanwhile: leave("default/mine"), patience: ever},
		"one stays":                               {meanwhile: keep("default/mine"), patience: ever, want: []string{"error Misfit default/new"}},
		"Terraform replaces it":                   {visits: []visit{keep("default/new")}, want: []string{"error NeedsOthers default/new"}},
		"in the walk of an apply":                 {visits: []visit{applies}},
		"before an apply that makes its own plan": {visits: []visit{applies, reads}, want: []string{said}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(full.live)
			for _, v := range test.visits {
				v(l)
			}
			j := job(one, "new", 6)
			if test.change != nil {
				j = test.change(j)
			}
			plan(j)(l)
			if test.meanwhile != nil {
				go func() {
					time.Sleep(20 * time.Millisecond)
					test.meanwhile(l)
				}()
			}
			found := l.Await(t.Context(), "default/new", max(test.patience, 50*time.Millisecond))
			assert.Equal(t, test.want, describe(found))
			if len(found) > 0 {
				assert.Contains(t, found[0].Detail, test.says)
			}
			assert.Empty(t, l.Await(t.Context(), "default/new", ever), "it is said once, and not waited for again")
		})
	}
}

// Jobs that have room beside one that no visit decides about each, and not both, are warned of, as jobs that need its room are.
func TestJobsThatFitTogetherWithoutAnUnvisitedOne(t *testing.T) {
	one := machines(t, "v100", 1)
	for name, test := range map[string]struct {
		gpus   int
		visits []visit
		want   []string
	}{
		"both do not fit":       {gpus: 4, want: []string{"warning Waits default/b default/a"}},
		"both fit":              {gpus: 2},
		"it leaves":             {gpus: 4, visits: []visit{leave("default/orphan")}},
		"it stays, which shows": {gpus: 4, visits: []visit{keep("default/orphan")}},
	} {
		t.Run(name, func(t *testing.T) {
			full := cluster{nodes: one, own: []string{"default/orphan"}}.runs("default/orphan", 4)
			l := ledger.New()
			l.Observe(full.live)
			var found []string
			for _, name := range []string{"a", "b"} {
				j := job(one, name, test.gpus)
				plan(j)(l)
				for _, v := range test.visits {
					v(l)
				}
				found = append(found, describe(l.Await(t.Context(), j.Gang.ID, 50*time.Millisecond))...)
			}
			assert.Equal(t, test.want, found)
		})
	}
}

// What later visits show of jobs whose visits still wait is said with those jobs.
func TestFindingsShowWithTheirJobs(t *testing.T) {
	one := machines(t, "v100", 1)
	full := cluster{nodes: one, own: []string{"default/mine"}}.runs("default/mine", 8)
	for name, names := range map[string][]string{"one waits": {"a"}, "three wait": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(full.live)
			found := make(chan []ledger.Finding, len(names))
			for _, name := range names {
				j := job(one, name, 2)
				go func() {
					first := plan(j)(l)
					found <- append(first, l.Await(t.Context(), j.Gang.ID, time.Minute)...)
				}()
			}
			require.Eventually(t, func() bool { return ledger.Waiters(l) == len(names) }, time.Minute, time.Millisecond)
			assert.Empty(t, keep("default/mine")(l), "the job that stays is not the one that does not fit")
			var all []string
			for range names {
				all = append(all, describe(<-found)...)
			}
			var want []string
			for _, name := range names {
				want = append(want, "error Misfit default/"+name)
			}
			assert.Subset(t, all, want)
		})
	}
}

// A job that fits without any one of several waits for their visits, and says which of them leaves.
func TestWhoNeedsOneOfSeveral(t *testing.T) {
	one := machines(t, "v100", 1)
	full := cluster{nodes: one, own: []string{"default/a", "default/b", "default/c"}}.runs("default/a", 3).runs("default/b", 3).runs("default/c", 2)
	l := ledger.New()
	l.Observe(full.live)
	plan(job(one, "new", 3))(l)
	found := make(chan []ledger.Finding)
	go func() { found <- l.Await(t.Context(), "default/new", time.Minute) }()
	for _, v := range []visit{keep("default/a"), keep("default/c"), leave("default/b")} {
		require.Eventually(t, func() bool { return ledger.Listens(l) }, time.Minute, time.Millisecond)
		assert.Empty(t, v(l))
	}
	all := <-found
	require.Len(t, all, 1)
	assert.Equal(t, "Job starts when others have left", all[0].Summary)
}

// Others than the first give way when no visit comes: Terraform has few under way.
func TestWhoWaitsGivesWay(t *testing.T) {
	one := machines(t, "v100", 1)
	full := cluster{nodes: one, own: []string{"default/mine"}}.runs("default/mine", 8)
	l := ledger.New()
	l.Observe(full.live)
	plan(job(one, "a", 2))(l)
	plan(job(one, "b", 2))(l)
	first := make(chan []ledger.Finding)
	go func() { first <- l.Await(t.Context(), "default/a", time.Hour) }()
	require.Eventually(t, func() bool { return ledger.Waiters(l) == 1 }, time.Minute, time.Millisecond)
	assert.Empty(t, l.Await(t.Context(), "default/b", time.Millisecond))
	assert.Equal(t, []string{"error Misfit default/b"}, describe(keep("default/mine")(l)), "its visit is over")
	assert.Equal(t, []string{"error Misfit default/a"}, describe(<-first))
}

// applies makes the walk one of an apply, reads has it read what is in the state first.
func applies(l *ledger.Ledger) []ledger.Finding {
	l.ExpectApply()
	return nil
}

func reads(l *ledger.Ledger) []ledger.Finding {
	l.Refreshed()
	return nil
}

func unchecked(j ledger.Job) ledger.Job { return checked(j, ledger.Ignore) }

func claimsUrgently(j ledger.Job) ledger.Job { return claims(j, 1) }
