package queue

import (
	"cmp"
	"strconv"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/queue/admit"
)

// charge charges a job that runs, or may.
func (p *reconciler) charge(e *entry) {
	j := e.job
	if e.leaf == "" {
		p.strays[j.uid] = true
		return
	}
	p.used.Add(e.leaf, j.charge, j.preemptible)
	p.used.AddJob(e.leaf)
	p.holders = append(p.holders, admit.Holder{Leaf: e.leaf, Request: j.charge, Preemptible: j.preemptible})
	p.charged[j.uid] = true
	p.accounts.active(e)
	if j.running > 0 { // in another cluster, where its pods are not seen
		p.accounts.use(e.leaf, j.charge)
	}
}

// chargePods charges the pods that no job's charge stands for.
func (p *reconciler) chargePods() {
	if p.tree == nil {
		return
	}
	for owner, o := range p.owners {
		uid := p.whole(owner)
		for place, used := range o.used {
			leaf := place.leafIn(p.tree.empty)
			p.accounts.use(leaf, used)
			if p.charged[uid] {
				continue
			}
			p.used.Add(leaf, used, place.preemptible)
			if p.tree.empty.HasLeaf(leaf) {
				p.holders = append(p.holders, admit.Holder{Leaf: leaf, Request: used, Preemptible: place.preemptible})
			} else if leaf != "" && p.strays[uid] {
				p.used.AddJob(leaf)
				p.accounts.leaf(leaf).active++
				delete(p.strays, uid)
			}
		}
		if p.accounts.counted[uid] {
			continue
		}
		for place, asked := range o.asked {
			leaf := place.leafIn(p.tree.empty)
			if !p.tree.empty.HasLeaf(leaf) {
				asked = o.used[place] // what waits does not start
			}
			p.accounts.ask(leaf, asked)
		}
	}
}

// leafIn returns the leaf that pods name, or else that of their namespace; "" for none.
func (p place) leafIn(tree *quota.Tree) string { return cmp.Or(p.leaf, tree.LeafOf(p.namespace)) }

// admit finds out who starts and where the others stand.
func (p *reconciler) admit() {
	queues := map[string]admit.Queue{}
	units := make([]admit.Unit, 0, len(p.waiting))
	for id, e := range p.waiting {
		if q := p.queueOf[e.path]; q != nil {
			policy := admit.Queue{Block: q.Spec.QueuePolicy == contract.PolicyBlock}
			if q.Spec.Priority != nil {
				policy.Priority = *q.Spec.Priority
			}
			queues[e.leaf] = policy
		}
		u := admit.Unit{ID: id, Leaf: e.leaf, Priority: priority(e.spec), Request: e.job.charge, Preemptible: e.job.preemptible}
		u.Since, u.Sequence = e.arrival()
		units = append(units, u)
	}
	if len(units) == 0 {
		return
	}
	for _, d := range admit.Decide(p.used, queues, units, p.holders) {
		e := p.waiting[d.ID]
		if e.unit == nil {
			continue // the next pass, in which it has one, tells and starts it
		}
		if d.Start {
			p.out.start = append(p.out.start, e)
			continue
		}
		e.status.Position, e.status.Message = int32(d.Position), d.Reason
		p.accounts.list(e)
	}
}

// arrival is when a unit came into line: when its job was created, or when it went back.
func (e *entry) arrival() (since, sequence int64) {
	if r := e.status.RequeueState; r != nil && r.RequeueAt != nil {
		return r.RequeueAt.Unix(), 0
	}
	return e.job.created, e.sequence()
}

// sequence is the order of jobs that were created in one second.
func (e *entry) sequence() int64 {
	if e.unit != nil {
		if n, err := strconv.ParseInt(e.unit.Annotations[contract.ArrivalAnnotation], 10, 64); err == nil {
			return n
		}
	}
	return e.job.sequence
}
