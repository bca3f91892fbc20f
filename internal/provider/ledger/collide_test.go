package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// A job whose place is known after apply may get that of any job with which it has nodes in
// common and no order.
func TestJobThatMayDisplaceAnother(t *testing.T) {
	two := machines(t, "v100", 2)
	for name, test := range map[string]struct {
		jobs []ledger.Job
		want []string
	}{
		"in the same pool": {[]ledger.Job{job(two, "a", 2), consents(claims(job(two, "b", 2), 0))}, []string{"warning SameGPUs default/b default/a"}},
		"in another pool":  {[]ledger.Job{job(two, "a", 2), consents(claims(job(machines(t, "h100", 2), "b", 2), 0))}, nil},
		"after it":         {[]ledger.Job{job(two, "a", 2), consents(claims(job(two, "b", 2, "default/a"), 0))}, nil},
		"two of them, that share what they say": {[]ledger.Job{consents(claims(job(two, "b", 2), 0)), consents(claims(job(two, "c", 2), 0)), job(two, "a", 2)},
			[]string{"warning SameGPUs default/a default/b default/c"}},
		"both are known afterwards": {[]ledger.Job{consents(claims(job(two, "a", 2), 0)), consents(claims(job(two, "b", 2), 0))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(cluster{nodes: two}.live)
			var found []ledger.Finding
			for _, j := range test.jobs {
				_, more := l.PlanJob(j)
				found = append(found, more...)
			}
			assert.Equal(t, test.want, describe(found))
		})
	}
}

// Jobs without an order are told when they cannot both be where they are planned, be it for
// whole GPUs, parts of GPUs, or anything else of a node.
func TestJobsThatMeet(t *testing.T) {
	asking := func(mode placement.Mode, r placement.Request) func(name string) ledger.Job {
		return func(name string) ledger.Job {
			nodes := machines(t, "v100", 2)
			machine := nodes[0].GPUs.Machine()
			machine.GPUs = slices.Clone(machine.GPUs)
			for i := range machine.GPUs {
				machine.GPUs[i].MemoryMiB = 32 << 10
			}
			table, err := gpu.NewTable(machine)
			require.NoError(t, err)
			for i := range nodes {
				nodes[i].Mode, nodes[i].GPUs = mode, table
			}
			j := job(nodes, name, 1)
			r.Mode = mode
			j.Gang.Roles[0].Request = r
			return j
		}
	}
	for name, test := range map[string]struct {
		ask  func(string) ledger.Job
		want string
	}{
		"whole GPUs": {asking(placement.ModeTopology, placement.Request{GPUs: 2}), "v100[0] GPU 0,3."},
		"GPUs that the device plugin picks, enough for both":  {asking(placement.ModeDefault, placement.Request{GPUs: 4}), ""},
		"GPUs that the device plugin picks, too few for both": {asking(placement.ModeDefault, placement.Request{GPUs: 5}), "v100[0]."},
		"parts of one GPU, enough for both":                   {asking(placement.ModeCoreMem, placement.Request{MemoryGiB: 4, CorePercent: 50}), ""},
		"parts of one GPU, too much of the cores for both":    {asking(placement.ModeCoreMem, placement.Request{MemoryGiB: 4, CorePercent: 60}), "v100[0]."},
		"no GPU in common, too little CPU for both":           {asking(placement.ModeDefault, placement.Request{GPUs: 1, Resources: placement.Resources{MilliCPU: 50000}}), "v100[0]."},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			for _, name := range []string{"a", "b"} {
				result, found := l.PlanJob(test.ask(name))
				require.NotNil(t, result.Placement, "%s", result.Verdict)
				switch {
				case name == "a" || test.want == "":
					assert.Empty(t, found)
				case assert.Equal(t, []string{"warning SameGPUs default/a default/b"}, describe(found)):
					assert.Contains(t, found[0].Detail, "Jobs default/a and default/b are each planned on "+test.want)
				}
			}
		})
	}
}

// A launcher runs where kube-scheduler finds room: a job without an order before it that needs what the launcher takes of
// its planned node may not get its place.
func TestLauncherInThePlaceOfAJob(t *testing.T) {
	four := machines(t, "v100", 4)
	needing := func(j ledger.Job, cores int64) ledger.Job {
		for i := range j.Gang.Roles {
			if role := &j.Gang.Roles[i]; !role.Late {
				role.Request.MilliCPU = 1000 * cores
			}
		}
		return j
	}
	tainted := func(nodes []placement.Node) []placement.Node {
		for i := range nodes {
			nodes[i].Taints = []placement.Taint{{Key: "gpu", Effect: "NoSchedule"}}
		}
		return nodes
	}
	tolerates := func(j ledger.Job) ledger.Job {
		for i := range j.Gang.Roles {
			if role := &j.Gang.Roles[i]; !role.Late {
				role.Tolerations = []placement.Toleration{{Key: "gpu", Operator: "Exists"}}
			}
		}
		return j
	}
	warned := []string{"warning SameGPUs default/b default/a"}
	one := machines(t, "v100", 1)
	agreeing := func(j ledger.Job) ledger.Job {
		j.AllowPreemption = true
		return j
	}
	for name, test := range map[string]struct {
		jobs []ledger.Job
		want []string
	}{
		"it takes what the job needs":    {[]ledger.Job{launching(job(four, "a", 8), 40), needing(job(four, "b", 8, "default/a"), 6)}, warned},
		"beside its own members":         {[]ledger.Job{launching(needing(job(four, "a", 4), 5), 40), needing(job(four, "b", 4, "default/a"), 6)}, warned},
		"room beside its own members":    {[]ledger.Job{launching(needing(job(four, "a", 4), 5), 30), needing(job(four, "b", 4, "default/a"), 6)}, nil},
		"its own members are elsewhere":  {[]ledger.Job{launching(needing(job(four, "a", 8), 5), 40), needing(job(four, "b", 4, "default/a"), 6)}, nil},
		"the job comes first":            {[]ledger.Job{needing(job(four, "b", 8), 6), launching(job(four, "a", 8, "default/b"), 40)}, nil},
		"there is room for both":         {[]ledger.Job{launching(job(four, "a", 8), 30), needing(job(four, "b", 8, "default/a"), 6)}, nil},
		"its own":                        {[]ledger.Job{launching(needing(job(four, "b", 8), 6), 40)}, nil},
		"it cannot be there":             {[]ledger.Job{launching(job(four, "a", 8), 81), needing(job(four, "b", 8, "default/a"), 6)}, []string{"error LateMisfit default/a"}},
		"it does not tolerate the job's": {[]ledger.Job{launching(job(machines(t, "p100", 2), "a", 8), 40), tolerates(needing(job(tainted(machines(t, "v100", 2)), "b", 8), 6))}, nil},
		"another job that has none":      {[]ledger.Job{job(four, "a", 8), needing(job(four, "b", 8, "default/a"), 6)}, nil},
		"that of a job of another pool":  {[]ledger.Job{needing(job(four, "b", 8), 6), launching(job(machines(t, "p100", 2), "a", 8), 40)}, warned},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(cluster{nodes: slices.Concat(four, machines(t, "p100", 2))}.live)
			var found []ledger.Finding
			for _, j := range test.jobs {
				_, more := l.PlanJob(j)
				found = append(found, more...)
			}
			assert.Equal(t, test.want, describe(found))
		})
	}
	t.Run("a place known after apply", func(t *testing.T) {
		other := machines(t, "p100", 2)
		for name, test := range map[string]struct {
			nodes []placement.Node
			cores int64
			want  []string
		}{
			"it may take what the job needs": {one, 40, warned},
			"there is room for both":         {one, 30, nil},
			"there is room on other nodes":   {machines(t, "v100", 2), 40, nil},
		} {
			l := ledger.New()
			l.Observe(cluster{nodes: slices.Concat(other, test.nodes)}.live)
			var found []ledger.Finding
			for _, j := range []ledger.Job{launching(job(other, "a", 2), test.cores), agreeing(job(test.nodes, "m", 1, "default/a")), needing(job(test.nodes, "b", 5, "default/m"), 10)} {
				_, more := l.PlanJob(j)
				found = append(found, more...)
			}
			assert.Equal(t, test.want, describe(found), name)
			for _, f := range found {
				assert.Contains(t, f.Detail, "Where job default/b will run is known after apply. Where that comes first, the nodes of the job can have too little left, and it waits.")
			}
		}
	})
	for _, test := range []struct {
		after []string
		says  string
	}{
		{nil, "Name default/b in the after of default/a, as in after"},
		{[]string{"default/a"}, "Job default/b comes after default/a: turn the order round, so that default/a names default/b in its after, or let it ask for less"},
	} {
		l := ledger.New()
		l.PlanJob(launching(job(one, "a", 2), 40))
		_, found := l.PlanJob(needing(job(one, "b", 5, test.after...), 10))
		if assert.NotEmpty(t, found) {
			assert.Contains(t, found[0].Detail, "The role launcher of job default/a starts once its members run")
			assert.Contains(t, found[0].Detail, test.says)
		}
	}
}

// Of two jobs that a plan writes again, each is planned beside what the other one holds now. They meet only when their new
// places do, be they the old ones.
func TestJobsThatMeetWhereTheyWere(t *testing.T) {
	two := machines(t, "v100", 2)
	two[0].Mode, two[1].Mode = placement.ModeDefault, placement.ModeDefault
	asks := func(gpus int) placement.Request { return placement.Request{Mode: placement.ModeDefault, GPUs: gpus} }
	again := func(name string, gpus, held int, by string) ledger.Job {
		j := job(two, name, 1)
		j.Gang.Roles[0].Request = asks(gpus)
		j.Occupants = []placement.Pod{{ID: "held by " + by, Node: two[0].Name, Request: asks(held)}}
		return j
	}
	for name, test := range map[string]struct {
		jobs []ledger.Job
		want []string
	}{
		"where they were":       {[]ledger.Job{again("a", 4, 4, "b"), again("b", 4, 4, "a")}, nil},
		"more than before":      {[]ledger.Job{again("a", 5, 1, "b"), again("b", 5, 1, "a")}, []string{"warning SameGPUs default/a default/b"}},
		"beside one that stays": {[]ledger.Job{again("a", 4, 1, "another"), again("b", 4, 1, "another")}, []string{"warning SameGPUs default/a default/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			var found []ledger.Finding
			for _, j := range test.jobs {
				result, more := l.PlanJob(j)
				require.NotNil(t, result.Placement, "%s", result.Verdict)
				found = append(found, more...)
			}
			assert.ElementsMatch(t, test.want, describe(found))
		})
	}
}

// What a plan says of many jobs without an order grows with their number, not with that of their pairs.
func TestManyCollide(t *testing.T) {
	five := machines(t, "v100", 5)
	l, named, said := ledger.New(), map[string]bool{}, 0
	for i := range 40 {
		j := job(five, fmt.Sprintf("j%02d", i), 1)
		_, found := l.PlanJob(j)
		for _, f := range found {
			require.Equal(t, ledger.SameGPUs, f.Kind, f.Detail)
			for _, id := range f.Jobs {
				named[id] = true
			}
		}
		said += len(found)
		if i == 20 {
			require.Len(t, found, 1)
			assert.Equal(t, "A job is planned where many others are", found[0].Summary)
			assert.Contains(t, found[0].Detail, "Job default/j20 is planned where 20 others are planned, and cannot be there beside any of them: "+
				"default/j00, default/j01, default/j02, default/j03, default/j04 and 15 more.")
		}
	}
	assert.Len(t, named, 40)
	assert.Less(t, said, 60, "40 jobs have 780 pairs")
}
