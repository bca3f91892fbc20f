package ledger

import (
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// contenders are the other jobs that can be in the way of one.
func contenders(j *job, jobs []*job) []*job {
	others := slices.DeleteFunc(slices.Clone(jobs), func(other *job) bool { return other == j })
	if near := slices.DeleteFunc(slices.Clone(others), func(other *job) bool { return !rivals(other, j) }); len(near) > 0 {
		return near
	}
	return others
}

// inItsWay are the jobs that have of what the one that waits lacks.
func (l *Ledger) inItsWay(c course, jobs []*job) []*job {
	others := contenders(c.waiting, jobs)
	has := func(other *job) bool {
		return slices.ContainsFunc(c.verdict.Reasons, func(r placement.Reason) bool {
			if r.Code == placement.OverQuota {
				return l.charges(other, r)
			}
			return shareNodes(c.waiting, other)
		})
	}
	if those := slices.DeleteFunc(slices.Clone(others), func(other *job) bool { return !has(other) }); len(those) > 0 {
		return those
	}
	return others
}

// charges reports whether a job counts against the limit of the quota tree that is a reason.
func (l *Ledger) charges(j *job, r placement.Reason) bool {
	g := l.gang(j)
	path := l.limits().Path(g.Leaf)
	return (path == r.Quota || strings.HasPrefix(path, r.Quota+"/")) && (r.Resource == quota.Jobs || g.Charge()[r.Resource] > 0)
}

// rivals reports whether two jobs can be in each other's way.
func rivals(a, b *job) bool {
	return shareNodes(a, b) || a.Gang.Leaf != "" && b.Gang.Leaf != ""
}

// shareNodes reports whether two jobs may come to the same node: each has all nodes of its pools.
func shareNodes(a, b *job) bool {
	anywhere := len(a.Pools) == 0 || len(b.Pools) == 0
	return anywhere || slices.ContainsFunc(a.Pools, func(pool string) bool { return slices.Contains(b.Pools, pool) })
}
