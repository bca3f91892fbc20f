package ledger

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Draw is what a job takes of something that its namespace has so much of, apart from places on nodes.
type Draw struct {
	// Of says of what, as in "of pods in ResourceQuota default/q".
	Of string
	// Asked is how much the job takes, Left how much the cluster has left.
	Asked, Left resource.Quantity
}

// shortages says of jobs that they get what they take of their namespace each on its own, but not beside those before them.
func (l *Ledger) shortages() (findings []Finding) {
	taken, takers := map[string]resource.Quantity{}, map[string][]string{}
	for _, j := range l.inOrder() {
		var short, beside []string
		for _, d := range j.Draws {
			sum := taken[d.Of]
			sum.Add(d.Asked)
			if sum.Cmp(d.Left) > 0 && len(takers[d.Of]) > 0 {
				short = append(short, fmt.Sprintf("%s %s, and %s is left", sum.String(), d.Of, d.Left.String()))
				beside = append(beside, takers[d.Of]...)
			}
			taken[d.Of], takers[d.Of] = sum, append(takers[d.Of], j.Gang.ID)
		}
		if len(short) == 0 || l.frees(j.Gang.ID) {
			continue
		}
		slices.Sort(beside)
		beside = slices.Compact(beside)
		findings = append(findings, Finding{
			Kind: Waits, Jobs: append([]string{j.Gang.ID}, beside...), Error: j.RequireImmediate, key: "short " + j.Gang.ID,
			Summary: "Jobs fit alone, but not together",
			Detail: fmt.Sprintf("Job %s can run on its own, but not at the same time as %s: one of them waits, or cannot be created, until the others have gone. Together they ask for %s.",
				j.Gang.ID, join(beside), strings.Join(short, "; ")),
		})
	}
	return findings
}

// frees reports whether a job of the same namespace leaves: what is left then, nobody has counted.
func (l *Ledger) frees(id string) bool {
	namespace, _, _ := strings.Cut(id, "/")
	for job, own := range l.live.Own {
		if own && l.fates[job] != stays && strings.HasPrefix(job, namespace+"/") {
			return true
		}
	}
	return false
}
