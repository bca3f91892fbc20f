package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// Live is a cluster as a walk found it.
type Live struct {
	// View has the nodes and what runs on them. The ledger copies it.
	View *snapshot.View
	// Pods are those of the view, with what people call them.
	Pods []Pod
	// Waiting are the gangs that wait for room, in the order of the scheduler's queue.
	Waiting []Waiting
	// Limits is the cluster's quota tree without usage, nil for none, and an empty one for one that is not valid.
	Limits *quota.Tree
	// Barred says why a gang does not start as long as the cluster's quota tree is not valid, "" for one that does; nil for a
	// tree that is.
	Barred func(g placement.Gang, queued bool) (why string)
	// NoTree means that the cluster has no quota tree at all, not even one that cannot be used.
	NoTree bool
	// Own are the IDs of the jobs that belong to this configuration: the walk visits each of them.
	Own map[string]bool
	// OwnTree tells the same of the quota tree.
	OwnTree bool
	// Daemons returns the pods that the cluster's DaemonSets make on a node which joins, with the
	// names of those; nil for none.
	Daemons func(placement.Node) []Pod
}

// Pod is a pod that runs in the cluster.
type Pod struct {
	placement.Pod
	// Namespace is the pod's, Job the ID of its training job, "" for none.
	Namespace, Job string
	// Name is "namespace/name" of the pod's job, else of its gang, else of the pod.
	Name string
}

// Waiting is a gang that the scheduler lets run once there is room for it.
type Waiting struct {
	placement.Gang
	// Job is the ID of its training job, "" for none.
	Job string
	// Name is "namespace/name" of the gang, or of a pod on its own.
	Name string
	// Reserved means that the scheduler keeps capacity for it while it waits.
	Reserved bool
}

// fate is what a walk makes of a job that exists.
type fate int

const (
	undecided fate = iota
	stays
	leaves
)

// picture is the cluster with the pools as they are planned. Its views differ in what
// runs: now is everything that does, certain is without the jobs that are known to
// leave, and hoped is without those that may still turn out to leave, too. Found is the
// cluster as it is, before anything is changed.
type picture struct {
	Live
	found, now, certain, hoped *snapshot.View
	// queue is hoped with those that wait in the places that they take, nil when it is not known.
	queue *queue
	// early is found without what leaves, with those that wait in the places that they take before
	// pools change, nil when it is not known.
	early *queue
	// evicts are the findings of evictedMeanwhile, once they are known.
	evicts *[]Finding
	// part means that what was not visited stays as it is, since most of it never is.
	part bool
	// together is hoped with the planned jobs in their places, nil when they were not settled.
	together *snapshot.View
	// packed is certain with planned jobs in their places, nil when it is not known.
	packed  *packed
	fates   map[string]fate   // the ledger's
	unset   map[string]unset  // the ledger's
	renewed map[string]bool   // the ledger's
	jobs    map[string][]*Pod // the pods of training jobs
	unnamed map[string]bool   // the IDs of pods that name no leaf
	joined  map[string]bool   // pools
	touched []string          // nodes that were brought into the views as they are planned, or taken out, in that order
	daemons map[string]string // names of the DaemonSets that run on nodes to come, by their pool
}

// Observe gives the ledger the cluster as the walk found it, once; it is nothing new the
// second time, and not asked for. What the cluster shows leads to findings, and never
// changes a placement.
func (l *Ledger) Observe(found func() Live) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live != nil || l.applying {
		return
	}
	live := found()
	p := &picture{Live: live, part: l.part, fates: l.fates, unset: l.unset, renewed: l.renewed, jobs: map[string][]*Pod{}, unnamed: map[string]bool{}, joined: map[string]bool{}, daemons: map[string]string{}}
	p.Pods = slices.Clone(live.Pods)
	for i := range p.Pods {
		pod := &p.Pods[i]
		p.unnamed[pod.ID] = pod.Leaf == ""
		if pod.Job != "" {
			p.jobs[pod.Job] = append(p.jobs[pod.Job], pod)
		}
	}
	p.found, p.now, p.certain, p.hoped = live.View.Clone(), live.View.Clone(), live.View.Clone(), live.View.Clone()
	for id := range p.jobs {
		if p.open(id) || p.fates[id] == leaves {
			p.take(p.hoped, id)
		}
		if p.fates[id] == leaves {
			p.take(p.certain, id)
		}
	}
	for pool := range l.dropped {
		p.drop(pool, true)
	}
	for pool := range l.renewed {
		p.drop(pool, false)
	}
	l.live = p
	p.limit(l.limits())
}

// limits is the quota tree that will decide, as far as is known: the planned one, else
// the cluster's.
func (l *Ledger) limits() *quota.Tree {
	if l.treeKnown || l.live == nil {
		return l.tree
	}
	return l.live.Limits
}

// treeOpen reports whether the walk has yet to say what becomes of the quota tree.
func (l *Ledger) treeOpen() bool { return !l.treeKnown && l.live != nil && l.live.OwnTree }

func (p *picture) views() []*snapshot.View {
	views := []*snapshot.View{p.now, p.certain, p.hoped}
	if p.together != nil {
		views = append(views, p.together)
	}
	return views
}

// moved forgets what gangs that wait do, because they find something else now.
func (p *picture) moved() { p.queue, p.early, p.evicts = nil, nil, nil }

// limit sets the quota tree. Pods that do not name their leaf are charged to that of
// their namespace.
func (p *picture) limit(tree *quota.Tree) {
	p.moved()
	for _, view := range p.views() {
		view.SetQuota(tree)
	}
	if tree == nil {
		return
	}
	for i := range p.Pods {
		pod := &p.Pods[i]
		leaf := tree.LeafOf(pod.Namespace)
		if !p.unnamed[pod.ID] || pod.Leaf == leaf {
			continue
		}
		pod.Leaf = leaf
		for _, view := range p.views() {
			if _, runs := view.Pod(pod.ID); runs {
				view.AddPod(pod.Pod)
			}
		}
	}
}

// take takes the pods of a job out of a view, put puts them back.
func (p *picture) take(view *snapshot.View, job string) {
	for _, pod := range p.jobs[job] {
		view.RemovePod(pod.ID)
	}
}

func (p *picture) put(view *snapshot.View, job string) {
	for _, pod := range p.jobs[job] {
		view.AddPod(pod.Pod)
	}
}

// unvisited reports whether a job belongs to this configuration and was not visited yet, open
// whether the visit is sure to come.
func (p *picture) unvisited(job string) bool { return p.Own[job] && p.fates[job] == undecided }

func (p *picture) open(job string) bool { return !p.part && p.unvisited(job) }

// emptied is the cluster without those that leave and those that were not visited yet.
func (p *picture) emptied() *snapshot.View {
	view := p.hoped.Clone()
	for job := range p.jobs {
		if p.unvisited(job) {
			p.take(view, job)
		}
	}
	return view
}

// leave takes away what a job gives back.
func (p *picture) leave(job string) {
	if len(p.jobs[job]) > 0 || slices.ContainsFunc(p.Waiting, func(w Waiting) bool { return w.Job == job }) {
		p.moved()
	}
	p.take(p.certain, job)
	p.take(p.hoped, job)
	if p.together != nil {
		p.take(p.together, job)
	}
}

// stay ends the hope that a job might leave, and reports whether there was any.
func (p *picture) stay(job string) bool {
	lost := p.open(job) && len(p.jobs[job]) > 0
	if lost {
		p.moved()
		p.put(p.hoped, job)
	}
	return lost
}

// plan makes room for a job that is created where this one runs.
func (p *picture) plan(job string) {
	p.leave(job)
	p.take(p.now, job)
}

// join brings the pools that a job was given into the views as they are planned.
func (p *picture) join(pools []string, nodes []placement.Node) {
	planned := map[string][]placement.Node{}
	for _, n := range nodes {
		planned[n.Pool] = append(planned[n.Pool], n)
	}
	for _, pool := range pools {
		if !p.joined[pool] {
			p.joined[pool] = true
			p.replace(pool, planned[pool])
		}
	}
}

// drop takes the nodes of a pool that goes out of the views, for good unless another takes its place.
func (p *picture) drop(pool string, forGood bool) {
	p.joined[pool] = forGood
	p.replace(pool, nil)
}

// replace makes a pool consist of its planned nodes. The i-th that has only a planned name
// is the i-th of those that exist and are not named, unless all of those go.
func (p *picture) replace(pool string, planned []placement.Node) {
	p.moved()
	delete(p.daemons, pool)
	p.touched = append(p.touched, p.offer(pool, planned, p.views())...)
}

// offer is replace in some views, and returns the names of the nodes that it brings in or takes out.
func (p *picture) offer(pool string, planned []placement.Node, views []*snapshot.View) (touched []string) {
	named := map[string]bool{}
	for _, n := range planned {
		named[n.Name] = true
	}
	var rest []placement.Node
	for _, name := range p.View.Nodes() {
		if n, ok := p.View.Node(name); ok && n.Pool == pool && !named[name] {
			rest = append(rest, n)
		}
	}
	var gone []placement.Node
	if p.renewed[pool] {
		gone, rest = rest, nil
	}
	var toCome []placement.Node
	for _, n := range planned {
		exists, ok := p.View.Node(n.Name)
		if !ok && len(rest) > 0 {
			exists, ok, rest = rest[0], true, rest[1:]
		}
		if ok {
			n = p.changed(exists, n)
		} else {
			toCome = append(toCome, n)
		}
		touched = append(touched, n.Name)
		for _, view := range views {
			view.SetNode(n)
		}
	}
	p.runDaemons(toCome, views)
	for _, n := range append(gone, rest...) {
		touched = append(touched, n.Name)
		for _, view := range views {
			view.RemoveNode(n.Name)
		}
	}
	return touched
}

// runDaemons has the cluster's DaemonSets run on nodes to come of one pool, which are alike.
func (p *picture) runDaemons(nodes []placement.Node, views []*snapshot.View) {
	if len(nodes) == 0 || p.Daemons == nil {
		return
	}
	var names []string
	for _, daemon := range p.Daemons(nodes[0]) {
		names = append(names, daemon.Name)
		for _, n := range nodes {
			pod := daemon.Pod
			pod.ID, pod.Node = daemon.ID+" on "+n.Name, n.Name
			for _, view := range views {
				view.AddPod(pod)
			}
		}
	}
	p.daemons[nodes[0].Pool] = strings.Join(names, ", ")
}

// shared says which DaemonSets have a part of nodes to come of some pools, "" for none.
func (p *picture) shared(pools []string) (text string) {
	for _, pool := range pools {
		if names := p.daemons[pool]; names != "" {
			text += fmt.Sprintf(" Nodes to come of pool %s also run the cluster's DaemonSets, which count: %s.", pool, names)
		}
	}
	return text
}

// changed is a node that exists as its pool is planned. What is free on it by the pool's
// capacity is not what it has.
func (p *picture) changed(exists, planned placement.Node) placement.Node {
	unset := p.unset[planned.Pool]
	exists.Labels = maps.Clone(exists.Labels)
	maps.DeleteFunc(exists.Labels, func(key, _ string) bool { return slices.Contains(unset.labels, key) })
	exists.Labels = merged(exists.Labels, planned.Labels)
	exists.Taints = slices.DeleteFunc(slices.Clone(exists.Taints), func(t placement.Taint) bool { return slices.Contains(unset.taints, t) })
	for _, t := range planned.Taints {
		if !slices.Contains(exists.Taints, t) {
			exists.Taints = append(exists.Taints, t)
		}
	}
	if exists.Mode == planned.Mode && exists.GPUs != nil {
		return exists
	}
	exists.Mode, exists.GPUPolicy, exists.GPUs = planned.Mode, planned.GPUPolicy, planned.GPUs
	return exists
}

func merged(labels, more map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

// uncharged is the cluster without those that may leave, and without quota.
func (p *picture) uncharged() *snapshot.View {
	view := p.hoped.Clone()
	view.SetQuota(nil)
	for i := range p.Pods {
		if pod, runs := view.Pod(p.Pods[i].ID); runs {
			pod.Leaf = ""
			view.AddPod(pod)
		}
	}
	return view
}

// withoutUsers is the cluster without those that use quota, which a job of the queue waits for anyway.
func (p *picture) withoutUsers() *snapshot.View {
	view := p.hoped.Clone()
	for i := range p.Pods {
		if p.Pods[i].Leaf != "" {
			view.RemovePod(p.Pods[i].ID)
		}
	}
	return view
}

// needs returns the jobs that have to leave for another to fit, beside what gives way to it:
// as few as possible, and those first of which it is known that they do.
func (p *picture) needs(vacated []string, fits func(*snapshot.View) bool) []string {
	var sure, open []string
	for _, job := range slices.Sorted(maps.Keys(p.jobs)) {
		switch {
		case p.fates[job] == leaves && !slices.Contains(vacated, job):
			sure = append(sure, job)
		case p.unvisited(job):
			open = append(open, job)
		}
	}
	view := p.emptied()
	var needed []string
	for _, job := range append(open, sure...) {
		p.put(view, job)
		if !fits(view) {
			p.take(view, job)
			needed = append(needed, job)
		}
	}
	slices.Sort(needed)
	return needed
}

// users lists, sorted, who uses what a gang would exceed of the quota tree. Those who use other
// resources of the same quota give nothing back that it lacks.
func (p *picture) users(tree *quota.Tree, full quota.Exceeded) []string {
	names := map[string]bool{}
	for _, pod := range p.Pods {
		known, runs := p.certain.Pod(pod.ID)
		at := tree.Path(tree.Payer(pod.Leaf))
		below := at == full.Path || strings.HasPrefix(at, full.Path+"/")
		if runs && below && counts(known, full) {
			names[pod.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// counts reports whether a pod is part of what is used of an exceeded limit: of a minimum,
// which caps what is not preemptible, nothing else is. Without a resource all pods are.
func counts(pod placement.Pod, full quota.Exceeded) bool {
	switch {
	case full.Guaranteed && pod.Preemptible:
		return false
	case full.Resource == quota.Jobs:
		return pod.Gang != "" // a pod on its own is no job
	case full.Resource == "":
		return true
	}
	return pod.Request.Charge()[full.Resource] > 0
}

// name says who a victim is.
func (p *picture) name(v placement.Victim) string {
	for _, pod := range p.Pods {
		if slices.Contains(v.Pods, pod.ID) {
			return pod.Name
		}
	}
	return v.Gang
}
