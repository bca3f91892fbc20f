package ledger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// machines returns n empty nodes of eight V100 GPUs.
func machines(t *testing.T, pool string, n int) []placement.Node {
	t.Helper()
	machine, ok := catalog.Wiring("dgx1-v100")
	require.True(t, ok)
	table, err := gpu.NewTable(machine)
	require.NoError(t, err)
	var nodes []placement.Node
	for i := range n {
		nodes = append(nodes, placement.Node{
			Name: fmt.Sprintf("%s[%d]", pool, i), Pool: pool, Mode: placement.ModeTopology, GPUs: table,
			Allocatable: placement.Resources{MilliCPU: 80000, MemoryBytes: 300 << 30, Pods: 64},
		})
	}
	return nodes
}

// job is a gang of workers with one GPU each.
func job(nodes []placement.Node, name string, workers int, after ...string) ledger.Job {
	role := placement.Role{Name: "worker", Request: placement.Request{Mode: placement.ModeTopology, GPUs: 1}}
	for i := range workers {
		role.Members = append(role.Members, fmt.Sprintf("worker-%d", i))
	}
	j := ledger.Job{Gang: placement.Gang{ID: "default/" + name, Roles: []placement.Role{role}, Preemptible: true}, Nodes: nodes, After: after}
	for _, n := range nodes {
		if !slices.Contains(j.Pools, n.Pool) {
			j.Pools = append(j.Pools, n.Pool)
		}
	}
	j.Gang.Roles[0].Pools = j.Pools
	return j
}

func inLeaf(j ledger.Job, leaf string) ledger.Job {
	j.Gang.Leaf, j.Gang.Preemptible = leaf, true
	return j
}

// orders calls f with every order of a list.
func orders[T any](list []T, f func([]T)) {
	if len(list) <= 1 {
		f(list)
		return
	}
	for i := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		orders(rest, func(tail []T) { f(append([]T{list[i]}, tail...)) })
	}
}

func describe(findings []ledger.Finding) []string {
	var out []string
	for _, f := range findings {
		severity := "warning"
		if f.Error {
			severity = "error"
		}
		out = append(out, fmt.Sprintf("%s %s %s", severity, f.Kind, strings.Join(f.Jobs, " ")))
	}
	slices.Sort(out)
	return out
}

func TestJointCheckInEveryOrder(t *testing.T) {
	two := machines(t, "v100", 2)
	third := machines(t, "z100", 1)
	elsewhere := func(j ledger.Job) ledger.Job { // only its launcher may run on the third
		j.Gang.Roles[0].Pools = []string{"v100"}
		return launching(j, 1)
	}
	immediate := func(j ledger.Job) ledger.Job { j.RequireImmediate = true; return j }
	for name, test := range map[string]struct {
		jobs []ledger.Job
		want []string
	}{
		"one that fits": {
			jobs: []ledger.Job{job(two, "a", 16)},
		},
		"two that fit, on the same GPUs, without an order": {
			jobs: []ledger.Job{job(two, "a", 4), job(two, "b", 4)},
			want: []string{"warning SameGPUs default/a default/b"},
		},
		"two that do not fit together": {
			jobs: []ledger.Job{job(two, "b", 10), job(two, "a", 10)},
			want: []string{"warning Waits default/b default/a"},
		},
		"the one that waits must not": {
			jobs: []ledger.Job{job(two, "a", 10), immediate(job(two, "b", 10))},
			want: []string{"error Waits default/b default/a"},
		},
		"the one that runs must not wait, and nobody knows that it is first": {
			jobs: []ledger.Job{immediate(job(two, "a", 10)), job(two, "b", 10)},
			want: []string{"error Waits default/b default/a"},
		},
		"three, of which the last waits": {
			jobs: []ledger.Job{job(two, "a", 6), job(two, "b", 6), job(two, "c", 6)},
			want: []string{
				"warning SameGPUs default/a default/b", "warning SameGPUs default/a default/c", "warning SameGPUs default/b default/c",
				"warning Waits default/c default/a default/b",
			},
		},
		"three, of which one is in the way of both others": {
			jobs: []ledger.Job{job(two, "a", 6), job(two, "b", 12), job(two, "c", 6)},
			want: []string{"warning SameGPUs default/a default/c", "warning Waits default/b default/a", "warning Waits default/c default/b"},
		},
		"one that does not get its place takes that of a third, and this one that of a fourth": {
			jobs: []ledger.Job{job(two, "a", 6), job(two, "b", 6), job(slices.Concat(two[1:], third), "c", 2), job(third, "d", 1)},
			want: []string{"warning SameGPUs default/a default/b", "warning SameGPUs default/c default/a", "warning SameGPUs default/d default/c"},
		},
		"one that does not get its place is placed after the third": {
			jobs: []ledger.Job{job(two, "a", 6, "default/c"), job(two, "b", 6, "default/c"), job(two[1:], "c", 2)},
			want: []string{"warning SameGPUs default/a default/b"},
		},
		"one that does not get its place has no room in that of a third": {
			jobs: []ledger.Job{job(two[:1], "a", 4), job(two[:1], "b", 2), job(two[1:], "c", 2)},
			want: []string{"warning SameGPUs default/a default/b"},
		},
		"one that does not get its place has a launcher, which may run anywhere": {
			jobs: []ledger.Job{elsewhere(job(slices.Concat(two[:1], third), "a", 4)), elsewhere(job(slices.Concat(two[:1], third), "b", 2)), job(third, "c", 2)},
			want: []string{"warning SameGPUs default/a default/b"},
		},
		"one that never fits stands in nobody's way": {
			jobs: []ledger.Job{job(two, "a", 17), job(two, "b", 16)},
			want: []string{"error Misfit default/a"},
		},
		"different pools": {
			jobs: []ledger.Job{job(two, "a", 16), job(machines(t, "h100", 2), "b", 16)},
		},
		"a pool in common": {
			jobs: []ledger.Job{job(two, "a", 16), job(append(machines(t, "h100", 1), two...), "b", 9)},
			want: []string{"warning Waits default/b default/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.jobs, func(jobs []ledger.Job) {
				l := ledger.New()
				var found []ledger.Finding
				for _, j := range jobs {
					_, more := l.PlanJob(j)
					found = append(found, more...)
				}
				assert.Equal(t, test.want, describe(found))
			})
		})
	}
}

func TestJobsWithAnOrderArePackedAroundEachOther(t *testing.T) {
	nodes := machines(t, "v100", 2)
	l := ledger.New()
	first, found := l.PlanJob(job(nodes, "first", 4))
	require.NotNil(t, first.Placement)
	assert.Empty(t, found)

	second, found := l.PlanJob(job(nodes, "second", 4, "default/first"))
	require.NotNil(t, second.Placement)
	assert.Empty(t, found, "no warning: the order is clear")

	third, found := l.PlanJob(job(nodes, "third", 8, "default/second"))
	require.NotNil(t, third.Placement)
	assert.Empty(t, found, "after reaches through second to first")

	taken := map[string]gpu.Set{}
	for _, p := range []*placement.Placement{first.Placement, second.Placement, third.Placement} {
		for _, a := range p.Assignments {
			assert.Zero(t, taken[a.Node]&a.Own, "%s", a.Member)
			taken[a.Node] |= a.Own
		}
	}
}

// What a job replaces is gone when it starts, and when those start that come after it.
func TestWhatGivesWay(t *testing.T) {
	nodes := machines(t, "v100", 2)
	l := ledger.New()
	l.ReplaceJob("default/a", "default/b")
	l.ReplaceJob("default/c", "default/c")
	l.ReplaceJob("default/x", "") // whose new name is not known yet
	assert.Equal(t, "default/a", l.Replaced("default/b"))
	assert.Empty(t, l.Replaced("default/a"))
	assert.Empty(t, l.Replaced("default/c"))
	assert.Equal(t, []string{"default/b", "default/a"}, l.Vacated("default/b", nil))
	assert.Equal(t, []string{"default/c"}, l.Vacated("default/c", []string{"default/b"}), "it is not planned in this walk")
	l.PlanJob(job(nodes, "b", 4))
	l.PlanJob(job(nodes, "c", 4, "default/b"))
	assert.Equal(t, []string{"default/d", "default/b", "default/a", "default/c"}, l.Vacated("default/d", []string{"default/c"}))
}

func TestPlacementDoesNotDependOnUnrelatedJobs(t *testing.T) {
	nodes := machines(t, "v100", 2)
	alone, _ := ledger.New().PlanJob(job(nodes, "b", 4))

	l := ledger.New()
	l.PlanJob(job(nodes, "a", 4))
	beside, _ := l.PlanJob(job(nodes, "b", 4))

	assert.Equal(t, alone.Placement, beside.Placement)
}

func TestAJobThatIsPlannedAgainIsTheSameJob(t *testing.T) {
	nodes := machines(t, "v100", 2)
	l := ledger.New()
	_, first := l.PlanJob(job(nodes, "a", 10))
	_, second := l.PlanJob(job(nodes, "a", 10))
	assert.Empty(t, first)
	assert.Empty(t, second, "it is not in its own way")
}

func tree(t *testing.T, leaf string, gpus int64) *quota.Tree {
	t.Helper()
	total := quota.Resources{"aliyun.com/gpu": 64000}
	tree, err := quota.New(quota.Spec{Name: "root", Min: total, Max: total, Children: []quota.Spec{
		{Name: leaf, Max: quota.Resources{"aliyun.com/gpu": gpus}},
	}})
	require.NoError(t, err)
	return tree
}

// shared is a tree of the leaves owner and guest, with the same minimum each.
func shared(t *testing.T, least int64) *quota.Tree {
	t.Helper()
	total := quota.Resources{"aliyun.com/gpu": 2 * least}
	leaf := func(name string) quota.Spec {
		return quota.Spec{Name: name, Min: quota.Resources{"aliyun.com/gpu": least}, Max: total}
	}
	tree, err := quota.New(quota.Spec{Name: "root", Min: total, Max: total, Children: []quota.Spec{leaf("owner"), leaf("guest")}})
	require.NoError(t, err)
	return tree
}

func TestMissingLeafInEveryOrder(t *testing.T) {
	nodes := machines(t, "v100", 2)
	want := []string{"error NoSuchLeaf default/a"}

	jobFirst := ledger.New()
	_, found := jobFirst.PlanJob(inLeaf(job(nodes, "a", 4), "visoin"))
	assert.Empty(t, found)
	assert.Equal(t, want, describe(jobFirst.RecordTree(tree(t, "vision", 16))))

	treeFirst := ledger.New()
	assert.Empty(t, treeFirst.RecordTree(tree(t, "vision", 16)))
	_, found = treeFirst.PlanJob(inLeaf(job(nodes, "a", 4), "visoin"))
	assert.Equal(t, want, describe(found))
	assert.Contains(t, found[0].Detail, `"visoin"`)
	assert.Contains(t, found[0].Detail, "vision")
}

// The tree decides between fits and waits, and never which GPUs are planned.
func TestQuotaOfJobsTogether(t *testing.T) {
	nodes := machines(t, "v100", 2)
	without, _ := ledger.New().PlanJob(job(nodes, "a", 4))
	jobs := []ledger.Job{
		inLeaf(job(nodes, "a", 4), "vision"),
		inLeaf(job(nodes, "b", 4, "default/a"), "vision"),
	}
	orders(jobs, func(jobs []ledger.Job) {
		l := ledger.New()
		l.RecordTree(tree(t, "vision", 6))
		var found []ledger.Finding
		for _, j := range jobs {
			result, more := l.PlanJob(j)
			require.NotNil(t, result.Placement)
			if j.Gang.ID == "default/a" {
				assert.Equal(t, without.Placement, result.Placement)
			}
			found = append(found, more...)
		}
		assert.Contains(t, describe(found), "warning Waits default/b default/a")
	})
}

// A job that neither its pools nor its quota let run is told both at once.
func TestMisfitNamesTheQuotaToo(t *testing.T) {
	big := inLeaf(job(machines(t, "v100", 2), "big", 20), "vision")
	gpus := "2 nodes have no free GPU left"
	for limit, want := range map[int64]string{ // of the planned tree
		12: "12 of 20 members fit: quota root/vision: max of aliyun.com/gpu is 12, 0 is used and 20 is asked for by 20 members together; " + gpus +
			"; no node is left for worker-16 (each member asks for 1 GPU, mode topology). " +
			"Nearest fix: pool size 3 (now 2) for pool v100 and quota max 20 (now 12) of aliyun.com/gpu for root/vision.",
		20: "16 of 20 members fit: " + gpus + " for worker-16 (each member asks for 1 GPU, mode topology). Nearest fix: pool size 3 (now 2) for pool v100.",
	} {
		l := ledger.New()
		l.RecordTree(tree(t, "vision", limit))
		_, found := l.PlanJob(big)
		require.Len(t, found, 1)
		assert.Equal(t, "Job default/big does not fit: "+want, found[0].Detail)
	}
}

// Members that have no planned place start wherever there is room: also where a job leaves that another one
// is planned to follow.
func TestMembersWithoutAPlannedPlace(t *testing.T) {
	two := machines(t, "v100", 2)
	old := cluster{nodes: two, own: []string{"default/b"}}.runs("default/b", 8)
	visits := func(names ...string) (found []ledger.Finding) {
		l := ledger.New()
		l.Observe(old.live)
		for _, name := range names {
			switch name {
			case "b":
				l.ReplaceJob("default/b", "default/b")
				_, more := l.PlanJob(job(two, "b", 8))
				found = append(found, more...)
			case "e", "e after b":
				e := elastic(job(two, "e", 16), 8)
				if name == "e after b" {
					e.After = []string{"default/b"}
				}
				for _, p := range old.pods {
					e.Occupants = append(e.Occupants, p.Pod)
				}
				_, more := l.PlanJob(e)
				found = append(found, more...)
			}
		}
		return found
	}
	for _, order := range [][]string{{"e", "b"}, {"b", "e"}} {
		found := visits(order...)
		assert.Equal(t, []string{"warning SameGPUs default/b default/e", "warning Waits default/b default/e"}, describe(found), order)
		assert.Contains(t, found[0].Detail, "Job default/b fits at the same time as default/e, but not when it is placed last: it may have to wait")
		assert.Contains(t, found[1].Detail, "Job default/e has members without a planned place, which start where there is room, and nothing says that it is placed after default/b")
	}
	assert.Empty(t, visits("b", "e after b"), "they have an order")
}

// Who comes after a job is not told to be named as before it, which would be a cycle.
func TestJobThatMayTakeThePlaceOfOneAfterIt(t *testing.T) {
	two := machines(t, "v100", 2)
	last := job(two, "last", 6)
	last.After = []string{"default/a", "default/b"}
	l := ledger.New()
	var found []ledger.Finding
	for _, j := range []ledger.Job{job(two, "a", 4), job(two, "b", 2), last} {
		_, more := l.PlanJob(j)
		found = append(found, more...)
	}
	require.Len(t, found, 2, describe(found))
	assert.Equal(t, "Job default/a may be placed otherwise than planned, as another warning says, and default/last comes after it: "+
		"it may take the place of that one, which then gets another than the plan shows, or waits. Give the jobs that the other warning names an order.", found[1].Detail)
}

func TestPools(t *testing.T) {
	l := ledger.New()
	assert.Empty(t, l.CreatePool("a"))
	assert.Empty(t, l.CreatePool("b"))
	assert.Len(t, l.CreatePool("a"), 1, "two new pools of one name")

	assert.False(t, l.Owns("c/np1"))
	l.Own("c/np1")
	assert.True(t, l.Owns("c/np1"))

	assert.False(t, l.VisitedPool("c/np1"))
	l.VisitPool("c/np1")
	assert.True(t, l.VisitedPool("c/np1"))
}

func TestJobThatStaysOnNodesThatGo(t *testing.T) {
	want := []string{"error PoolTaken default/a"}
	gives := func(l *ledger.Ledger) []ledger.Finding {
		return l.DisplaceJobs("deletes node pool v100", "set allow_disruption = true", []string{"default/a", "default/b"})
	}
	l := ledger.New()
	assert.Empty(t, gives(l))
	found := l.KeepJob("default/a")
	assert.Equal(t, want, describe(found))
	assert.Contains(t, found[0].Detail, "or on the pool set allow_disruption = true.")
	l.ReplaceJob("default/b", "default/b")

	l = ledger.New()
	assert.Empty(t, l.KeepJob("default/a"))
	l.ReplaceJob("default/b", "default/b")
	assert.Equal(t, want, describe(gives(l)))

	l = ledger.New()
	assert.Empty(t, gives(l))
	assert.Equal(t, want, describe(l.SuspendJob("default/a")), "its nodes go before it does")

	l = ledger.New()
	assert.Empty(t, l.DisplaceJobsOnRequest("replaces node pool v100", []string{"default/a", "default/b"}))
	found = l.KeepJob("default/a")
	assert.Equal(t, []string{"warning PoolTaken default/a"}, describe(found), "it may be replaced on request, too")
	assert.Contains(t, found[0].Detail, "Unless the plan replaces the job, too, the apply refuses to.")
	assert.Contains(t, found[0].Detail, "or on the pool set allow_disruption = true, and apply that before if the plan replaces or deletes it.")
	l.ReplaceJob("default/b", "default/b")
}
