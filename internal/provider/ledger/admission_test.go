package ledger_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// gets has admission add CPU to each member of a job.
func gets(j ledger.Job, milliCPU int64) ledger.Job {
	admitted := j.Gang
	admitted.Roles = slices.Clone(admitted.Roles)
	for i := range admitted.Roles {
		admitted.Roles[i].Request.MilliCPU += milliCPU
	}
	j.Admitted, j.Added = &admitted, j.Gang.ID+" gets CPU."
	return j
}

// What admission adds decides whether a job fits, and never where it is planned. Nodes have
// 80 CPU and 8 GPUs.
func TestWhatAdmissionAdds(t *testing.T) {
	two := machines(t, "v100", 2)
	packed := func(j ledger.Job) ledger.Job { j.After = []string{"default/a"}; return j }
	leafed := func(j ledger.Job) ledger.Job { j.Gang.Leaf = "vision"; return j }
	limits := tree(t, "vision", 8)
	for name, test := range map[string]struct {
		cluster cluster
		plan    []ledger.Job
		want    []string
		text    string // of the last finding
	}{
		"it fits as planned":              {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 4), 10000)}, nil, ""},
		"it fits elsewhere":               {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 4), 40000)}, []string{"warning Elsewhere default/a"}, "default/a gets CPU."},
		"it does not fit":                 {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 4), 50000)}, []string{"error Misfit default/a"}, "2 of 4 members fit: 2 nodes have too little CPU left"},
		"nobody asks for a check":         {cluster{nodes: two}, []ledger.Job{checked(gets(job(two, "a", 4), 40000), ledger.Ignore)}, nil, ""},
		"a check that warns":              {cluster{nodes: two}, []ledger.Job{checked(gets(job(two, "a", 4), 50000), ledger.Warn)}, []string{"warning Misfit default/a"}, "default/a gets CPU."},
		"nothing was promised":            {cluster{nodes: two}, []ledger.Job{consents(gets(job(two, "a", 4), 40000))}, nil, ""},
		"the one before takes more":       {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 2), 40000), packed(gets(job(two, "b", 1), 1))}, []string{"warning Elsewhere default/b default/a"}, "default/b gets CPU. default/a gets CPU."},
		"the one before, and no more":     {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 1), 80000), packed(gets(job(two, "b", 1), 80000))}, []string{"warning Elsewhere default/b default/a"}, ""},
		"both need all":                   {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 2), 80000), packed(gets(job(two, "b", 1), 80000))}, []string{"error Misfit default/b", "warning Elsewhere default/a"}, ""},
		"side by side, and all of it":     {cluster{nodes: two}, []ledger.Job{gets(job(two, "a", 2), 80000), gets(job(two, "b", 1), 80000)}, []string{"warning Elsewhere default/a", "warning Waits default/b default/a"}, ""},
		"it evicts for what it gets":      {cluster{nodes: two}.runs("default/x", 9, busy, func(p *placement.Pod) { p.Priority = -5 }), []ledger.Job{gets(claims(job(two, "a", 2), 0), 70000)}, []string{"error Preempts default/a", "warning Elsewhere default/a"}, "default/a gets CPU."},
		"what leaves has held it":         {cluster{nodes: two, own: []string{"default/x"}}.runs("default/x", 9, busy), []ledger.Job{gets(job(two, "a", 2), 70000)}, []string{"warning Elsewhere default/a"}, ""},
		"quota is charged with it":        {cluster{nodes: two, limits: limits}, []ledger.Job{leafed(job(two, "a", 4))}, nil, ""},
		"without pools, on what there is": {cluster{nodes: two}, []ledger.Job{gets(anywhere(job(two, "a", 4)), 50000)}, []string{"error Misfit default/a"}, "default/a gets CPU."},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger.New()
			l.Observe(test.cluster.live)
			var found []ledger.Finding
			for _, j := range test.plan {
				bare := ledger.New()
				for _, before := range test.plan {
					before.Admitted = nil
					result, _ := bare.PlanJob(before)
					if before.Gang.ID == j.Gang.ID {
						got, findings := l.PlanJob(j)
						require.Equal(t, result.Placement, got.Placement, "the promise is the configuration's")
						found = append(found, findings...)
						break
					}
				}
			}
			assert.Equal(t, test.want, describe(found))
			if test.text != "" {
				require.NotEmpty(t, found)
				assert.Contains(t, found[len(found)-1].Detail, test.text)
			}
			for _, f := range found {
				assert.NotContains(t, f.Detail, "admission", "what keeps a job from its place is for Added to say: it may be a volume")
			}
		})
	}
}

// An apply that finds another admission than the plan did looks again, on the same nodes.
func TestAdmissionThatChanged(t *testing.T) {
	two := machines(t, "v100", 2)
	l := ledger.New()
	l.StartApplying()
	planned, found := l.PlanJob(job(two, "a", 4))
	require.Empty(t, found)
	require.NotNil(t, planned.Placement)
	for _, test := range []struct {
		milliCPU     int64
		fits, asThen bool
	}{{0, true, true}, {20000, true, true}, {40000, true, false}, {50000, false, false}} {
		result := l.Admit(*gets(job(two, "a", 4), test.milliCPU).Admitted)
		assert.Equal(t, test.fits, result.Placement != nil, test.milliCPU)
		assert.Equal(t, test.asThen, result.Verdict.NotAsPlanned == "", test.milliCPU)
	}
	assert.Equal(t, placement.Result{}, l.Admit(placement.Gang{ID: "default/unknown"}))
}

// busy gives pods more CPU than leaves room for much.
func busy(p *placement.Pod) { p.Request.MilliCPU = 8000 }

// anywhere makes a job that names no pools.
func anywhere(j ledger.Job) ledger.Job { j.Pools, j.Nodes = nil, nil; return j }
