package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// A quota tree that is not valid keeps those from starting that it governs, unless the plan makes another one of it. What it does
// not govern is planned as the scheduler has it, under an empty tree.
func TestInvalidQuotaTree(t *testing.T) {
	two := machines(t, "v100", 2)
	empty, err := quota.New(quota.Spec{})
	require.NoError(t, err)
	busy := cluster{nodes: two, limits: empty}.runs("default/low", 16, func(p *placement.Pod) { p.Priority = -1 })
	free := cluster{nodes: two, limits: empty}
	own := cluster{nodes: two, limits: empty, ownTree: true}
	j := job(two, "j", 8)
	greedy := job(two, "j", 8)
	greedy.MayPreempt, greedy.AllowPreemption = true, true
	queued := job(two, "j", 8)
	queued.Queued = true
	expect := func(l *ledger.Ledger) []ledger.Finding { l.ExpectTree(); return nil }
	part := func(l *ledger.Ledger) []ledger.Finding { l.ExpectPart(); return nil }
	for name, test := range map[string]struct {
		cluster  cluster
		governed bool // by the namespace
		first    visit
		job      ledger.Job
		then     visit
		want     []string
	}{
		"by its namespace":               {free, true, nil, j, nil, []string{"error QuotaInvalid default/j"}},
		"by its leaf":                    {free, false, nil, inLeaf(j, "vision"), nil, []string{"error QuotaInvalid default/j"}},
		"by the queue":                   {free, false, nil, queued, nil, []string{"error QuotaInvalid default/j"}},
		"not governed":                   {free, false, nil, j, nil, nil},
		"warned":                         {free, true, nil, checked(j, ledger.Warn), nil, []string{"warning QuotaInvalid default/j"}},
		"not checked":                    {free, true, nil, checked(j, ledger.Ignore), nil, nil},
		"nobody is evicted":              {busy, false, nil, greedy, nil, []string{"error Misfit default/j"}},
		"nobody is evicted for it":       {busy, true, nil, greedy, nil, []string{"error QuotaInvalid default/j"}},
		"repaired before":                {free, true, planTree(tree(t, "vision", 8)), inLeaf(j, "vision"), nil, nil},
		"repaired before, and too small": {free, true, planTree(tree(t, "vision", 4)), inLeaf(j, "vision"), nil, []string{"error ExceedsQuota default/j"}},
		"deleted before":                 {free, true, planTree(nil), j, nil, nil},
		"repaired after":                 {own, true, nil, inLeaf(j, "vision"), planTree(tree(t, "vision", 8)), []string{"warning QuotaInvalid default/j"}},
		"repaired after, and too small":  {own, true, nil, inLeaf(j, "vision"), planTree(tree(t, "vision", 4)), []string{"error ExceedsQuota default/j", "warning QuotaInvalid default/j"}},
		"not all is known of the repair": {free, true, expect, inLeaf(j, "vision"), nil, []string{"warning QuotaUnknown default/j"}},
		"nor of that of a part":          {own, true, func(l *ledger.Ledger) []ledger.Finding { l.ExpectTree(); return part(l) }, inLeaf(j, "vision"), nil, []string{"warning QuotaUnknown default/j"}},
		"it is not part of the walk":     {own, true, part, inLeaf(j, "vision"), nil, []string{"warning QuotaInvalid default/j"}},
	} {
		t.Run(name, func(t *testing.T) {
			live := test.cluster.live()
			live.Barred = func(g placement.Gang, queued bool) string {
				if queued || g.Leaf != "" || test.governed {
					return "quota tree is invalid: min of cpu"
				}
				return ""
			}
			l := ledger.New()
			var found []ledger.Finding
			if test.first != nil {
				found = append(found, test.first(l)...)
			}
			l.Observe(func() ledger.Live { return live })
			found = append(found, plan(test.job)(l)...)
			if test.then != nil {
				found = append(found, test.then(l)...)
			}
			assert.Equal(t, test.want, describe(found))
		})
	}
}

// Who has the tree repaired by the same configuration learns how the plan knows that first.
func TestAdviceOnAnInvalidQuotaTree(t *testing.T) {
	one := machines(t, "v100", 1)
	live := cluster{nodes: one}.live()
	live.Barred = func(placement.Gang, bool) string { return "quota tree is invalid: min of cpu" }
	for advice, j := range map[string]ledger.Job{
		`name the leaf as gpuplan_quota_tree.NAME.leaves["vision"], so that the tree comes first.`: inLeaf(job(one, "j", 1), "vision"),
		"name that in depends_on of the job, so that the tree comes first.":                        job(one, "j", 1),
	} {
		l := ledger.New()
		l.Observe(func() ledger.Live { return live })
		said := plan(j)(l)
		require.Len(t, said, 1)
		assert.Contains(t, said[0].Detail, "quota tree is invalid: min of cpu. When a gpuplan_quota_tree of this configuration repairs it, "+advice)
	}
}
