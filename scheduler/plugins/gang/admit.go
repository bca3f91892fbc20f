package gang

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// moreToCome is how long a gang that could start waits for each further member that it
// says it has. Operators make the pods of a job one after the other, some only five a second.
const moreToCome = 3 * time.Second

// PreEnqueue lets a planned pod into the queue when it has a seat, or when it leads
// a gang that is complete and may fit. It is called under the queue's lock.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	key, planned := p.cache.PlanKey(pod)
	if !planned {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	if g.seats[pod.UID] != nil {
		return nil
	}
	standing := p.cache.Standing(key, pod.UID)
	switch {
	case !standing.Known:
		return hold("it has just appeared") // the worker lets it in when the view has it
	case standing.Lacks != "":
		return hold("%s", standing.Lacks)
	case standing.Late && (!standing.Runs || len(g.seats) > 0):
		return hold("it asks for no card and starts once gang %s runs", key)
	case standing.Late:
		return nil
	case g.verdict != "" && (!g.blocked || g.leader != pod.UID):
		return hold("%s", g.verdict)
	case standing.Expected > 0 && g.waited < standing.Present:
		p.await(g, standing.Present)
		return hold("up to %d more pods of gang %s are about to appear", standing.Expected, key)
	case g.leader != "" && g.leader != pod.UID:
		return hold("it follows the other pods of gang %s", key)
	case p.interrupt(key):
		return hold("what gang %s waited for is being written", key)
	}
	g.leader = pod.UID
	return nil
}

// await gives members that a gang does not need, but says it has, a moment to appear,
// so that they are planned with the others. It begins anew with each that does. The
// plugin's lock must be held.
func (p *Plugin) await(g *gang, present int) {
	if g.awaiting == present {
		return
	}
	g.awaiting = present
	p.after(moreToCome, func() {
		p.mu.Lock()
		g.waited = present
		p.mu.Unlock()
		p.work.add(inventory.Change{Gang: g.key})
	})
}

// hold keeps a pod away from the scheduling cycle, or ends it, without preemption.
func hold(format string, args ...any) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}
