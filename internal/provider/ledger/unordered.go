package ledger

import (
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/admission"
)

// unordered is what becomes of nodes for a job that names no pools. Nothing orders it before or after the resources that
// change nodes, and the plan must not depend on what Terraform visits first: the job has what it finds in the cluster,
// without what the plan takes from it, and without what the plan adds.
type unordered struct {
	// barred are the nodes that the plan adds, or opens to the job.
	barred map[string]bool
	// lost are those that it takes away, or closes to the job.
	lost map[string]bool
	// known is of how many changes ([picture.touched]) this is.
	known int
}

// asItIs is the gang of a job, kept off what the plan adds where the job names no pools.
func (l *Ledger) asItIs(j *job, g placement.Gang) placement.Gang {
	if len(j.Pools) == 0 && l.live != nil && len(l.live.touched) > 0 {
		l.follow(j)
		g.HiddenNodes = j.unordered.barred
	}
	return g
}

// bereave makes jobs that name no pools open again where the visit of another one has taken nodes from them, and reports
// whether there are any.
func (l *Ledger) bereave(visited *job) (some bool) {
	if l.live == nil {
		return false
	}
	for _, j := range l.jobs {
		if j != visited && len(j.Pools) == 0 && l.follow(j) {
			j.settled, some = false, true
		}
	}
	return some
}

// follow brings what is known of nodes for a job up to date, and reports whether it has lost some. What is added to the
// pools of a job before it is there by then.
func (l *Ledger) follow(j *job) (lost bool) {
	changed := l.live.touched[j.unordered.known:]
	if len(changed) == 0 {
		return false
	}
	if j.unordered.barred == nil {
		j.unordered.barred, j.unordered.lost = map[string]bool{}, map[string]bool{}
	}
	var rules []admission.Rules
	for _, role := range j.admitted().Roles {
		rules = append(rules, admission.RulesOf(&role))
	}
	before := l.before(j.Job)
	for _, name := range changed {
		opens, closes := l.live.turns(name, rules)
		is, _ := l.live.now.Node(name)
		j.unordered.barred[name] = opens && !slices.ContainsFunc(before, func(b *job) bool { return slices.Contains(b.Pools, is.Pool) })
		lost = lost || closes && !j.unordered.lost[name]
		j.unordered.lost[name] = closes
	}
	j.unordered.known = len(l.live.touched)
	return lost
}

// turns tells whether a node, as the plan makes it, is new to a role with one of these rules, and whether it is lost to one.
func (p *picture) turns(name string, rules []admission.Rules) (opens, closes bool) {
	was, existed := p.View.Node(name)
	is, exists := p.now.Node(name)
	if !existed || !exists || was.Mode != is.Mode || was.GPUs != is.GPUs {
		return exists, existed
	}
	for i := range rules {
		refused, _ := rules[i].Rejects(&was)
		refuses, _ := rules[i].Rejects(&is)
		opens = opens || refused.Code != "" && refuses.Code == ""
		closes = closes || refused.Code == "" && refuses.Code != ""
	}
	return opens, closes
}
