package gang

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// patience is how long a gang may be incomplete before its pods say so: pods of a
// job do not appear all at once.
const patience = 10 * time.Second

// Of a long queue texts change with every GPU that is freed. So much of it is written at
// once, and per second, that the API server has time for other things.
const (
	textsAtOnce    = 1000
	textsPerSecond = 100
)

// scheduledCondition is the condition of a PodGroup that says whether its gang runs.
const scheduledCondition = "Scheduled"

// write tells the API server what there is to say of gangs, until ctx ends.
func (p *Plugin) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.statuses.ready:
			p.publish(ctx, p.statuses.take())
		}
	}
}

// publish writes on PodGroups and pods what there is to say of gangs, given with pods that
// say something else now: why a gang waits, or that it runs.
func (p *Plugin) publish(ctx context.Context, gangs map[string]map[types.UID]bool) {
	if !p.leading.Load() {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(gangs)) {
		p.recordRefused(ctx, key)
		if !p.pending(key) {
			p.announce(ctx, key)
			continue
		}
		if pods := gangs[key]; len(pods) > 0 {
			p.recordOf(key).overwritten(pods)
		}
		state, _ := p.cache.Gang(key)
		if why := p.beginRecording(key, state); why.text != "" {
			p.record(ctx, key, state, why)
			p.endRecording()
		}
	}
}

// pending reports whether members of a gang are to be placed, or bound.
func (p *Plugin) pending(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok {
		return false
	}
	state, _ := p.cache.Gang(key)
	return len(g.assumed) > 0 || state.MissingText != "" || state.FirstUnbound() != nil
}

// beginRecording is why a gang waits, with an empty text while it need not say so. From here on
// a gang with a text is not activated: a pod that is bound must not say that it waits.
func (p *Plugin) beginRecording(key string, state inventory.GangState) wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	if !ok {
		return wait{}
	}
	why := g.why
	if state.MissingText != "" && g.overdue() {
		why = wait{cause: state.MissingCause, text: state.MissingText}
	}
	if why.text != "" {
		p.recording = key
	}
	return why
}

// endRecording activates the gang, if it would have been activated meanwhile.
func (p *Plugin) endRecording() {
	p.mu.Lock()
	key, interrupted := p.recording, p.interrupted
	p.recording, p.interrupted = "", false
	p.mu.Unlock()
	if interrupted {
		p.work.add(clusterstate.Change{Gang: key})
	}
}

// interrupt reports whether the writer is writing of a gang, and has it come to an end
// before the gang is activated. The lock must be held.
func (p *Plugin) interrupt(key string) bool {
	if p.recording != key {
		return false
	}
	p.interrupted = true
	return true
}

// isInterrupted tells the writer to come to an end.
func (p *Plugin) isInterrupted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.interrupted
}

// overdue reports whether members have been missing for longer than a job takes to make them.
func (g *gang) overdue() bool {
	return !g.incomplete.IsZero() && time.Since(g.incomplete) >= patience
}

// report publishes what concerns a gang whether it waits or not: oddities in its
// description, and members that do not appear.
func (p *Plugin) report(key string, state inventory.GangState) {
	if !p.leading.Load() {
		return
	}
	p.mu.Lock()
	g, ok := p.gangs[key]
	if !ok {
		p.mu.Unlock()
		return
	}
	var odd []inventory.Problem
	for _, problem := range state.Problems {
		if g.reportOnce(problem.Text) {
			odd = append(odd, problem)
		}
	}
	now, missing := time.Now(), state.MissingText != ""
	switch {
	case !missing:
		g.incomplete = time.Time{}
		if g.complete.IsZero() {
			g.complete = now
		}
	case g.incomplete.IsZero():
		g.incomplete = now
		p.after(patience, func() { p.checkAgain(key) })
	}
	overdue := missing && g.overdue()
	p.mu.Unlock()

	about := regarding(state)
	for _, problem := range odd {
		if about != nil {
			p.handle.EventRecorder().Eventf(about, nil, corev1.EventTypeWarning, problem.Reason, "Scheduling", "%s", problem.Text)
		}
	}
	if overdue {
		p.statuses.add(key)
	}
}

// recordHostPorts says which host ports keep members of a gang from each other's nodes, once.
func (p *Plugin) recordHostPorts(d clustercache.Decision) {
	about := regarding(d.GangState)
	if len(d.Ports) == 0 || about == nil {
		return
	}
	text := fmt.Sprintf("members of gang %s are on more nodes than they need otherwise, because several of them ask for the host port %s, "+
		"which only one pod of a node can have. Give them ports of their own, or leave out hostNetwork", placement.NameOf(d.Gang.ID), strings.Join(d.Ports, ", "))
	p.mu.Lock()
	g, ok := p.gangs[d.Key]
	fresh := ok && g.reportOnce(text)
	p.mu.Unlock()
	if fresh {
		p.handle.EventRecorder().Eventf(about, nil, corev1.EventTypeWarning, "HostPortConflict", "Scheduling", "%s", text)
	}
}

// reportOnce notes what is published of the gang, and reports whether it is new. The plugin's
// lock must be held.
func (g *gang) reportOnce(text string) bool {
	if g.reported[text] {
		return false
	}
	if g.reported == nil {
		g.reported = map[string]bool{}
	}
	g.reported[text] = true
	return true
}

// warn says on a pod that its allocation record was changed, and does not count.
func (p *Plugin) warn(change clusterstate.Change) {
	if pod := change.Altered; pod != nil && p.leading.Load() {
		p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, "AllocationAltered", "Scheduling",
			"someone has changed annotation %s, the record of the pod's GPUs. The pod keeps the GPUs that it was bound with; to free them, delete it",
			contract.AllocationAnnotation)
	}
}

// checkAgain has a gang settled whose members were missing, if some still are.
func (p *Plugin) checkAgain(key string) {
	p.mu.Lock()
	g, ok := p.gangs[key]
	missing := ok && !g.incomplete.IsZero()
	p.mu.Unlock()
	if missing {
		p.work.add(clusterstate.Change{Gang: key})
	}
}

// planned counts an attempt to place a gang.
func (p *Plugin) planned(key string, begin time.Time, d clustercache.Decision) {
	if d.MissingText == "" && d.EvictedFor == "" {
		p.meter.Planned(key, time.Since(begin), d.Result)
	}
}

// started counts a gang whose planned members are all bound.
func (p *Plugin) started(complete time.Time) {
	if !complete.IsZero() {
		p.meter.Started(time.Since(complete))
	}
}

// regarding is what events about a gang are attached to: its PodGroup, else a pod.
func regarding(state inventory.GangState) runtime.Object {
	if state.PodGroup != nil {
		return state.PodGroup
	}
	for _, role := range state.Gang.Roles {
		for _, name := range role.Members {
			return state.Pods[name]
		}
	}
	return nil
}
