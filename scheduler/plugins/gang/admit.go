package gang

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// moreToCome is how long a gang that could start waits for each further member that it
// says it has. Operators make the pods of a job one after the other, some only five a second.
const moreToCome = 3 * time.Second

// answer is what PreEnqueue says of a gang that waits. It is never changed.
type answer struct {
	// text says why it waits.
	text string
	// late and refused are those of its pods to which that does not apply: late ones, and those that another plugin refuses.
	late    map[types.UID]bool
	refused map[types.UID]string
}

// lateIn returns the pods of a gang that are no members and start once it runs.
func lateIn(state *inventory.GangState) map[types.UID]bool {
	var late map[types.UID]bool
	for _, role := range state.Gang.Roles {
		for _, name := range role.Members {
			if role.Late {
				if late == nil {
					late = map[types.UID]bool{}
				}
				late[state.Pods[name].UID] = true
			}
		}
	}
	return late
}

// PreEnqueue lets a planned pod into the queue when it is assumed, or when it is the first of
// a gang that is complete and may fit. It is called under the queue's lock.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	key, planned := p.cache.PlanKey(pod)
	if !planned {
		return nil
	}
	if known, waits := p.answers.Load(key); waits {
		if a, _ := known.(*answer); !a.late[pod.UID] && a.refused[pod.UID] == "" { // nothing else is stored
			return unschedulable("%s", a.text)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gang(key, pod)
	if g.assumed[pod.UID] != nil {
		return nil
	}
	status := p.cache.GangStatus(key, pod.UID)
	switch {
	case !status.Known:
		return unschedulable("the scheduler has not taken the pod into its view yet") // the worker activates it when the view has it
	case status.Refused && !status.Late:
		return nil // by another plugin, whose events bring it here
	case status.MissingText != "":
		return unschedulable("%s", status.MissingText)
	case status.Late && (!status.Runs || len(g.assumed) > 0):
		return unschedulable("%s", lateText(key))
	case status.Late:
		return nil
	case len(pod.Spec.SchedulingGates) > 0:
		return unschedulable("it has the scheduling gate %s", pod.Spec.SchedulingGates[0].Name) // it is not to be the first of its gang
	case g.waits():
		return unschedulable("%s", g.why.text)
	case status.Partial && p.loses(g):
		return unschedulable("members of gang %s are leaving one after the other, and those that replace them are placed together", key)
	case status.Expected > 0 && g.waited < status.Present:
		p.await(g, status.Present)
		return unschedulable("up to %d more pods of gang %s are about to appear", status.Expected, key)
	case g.entry == entryEntered && g.firstPod != pod.UID:
		return unschedulable("it follows the other pods of gang %s", key)
	case p.interrupt(key):
		return unschedulable("the scheduler is still writing what gang %s waited for", key)
	}
	g.enter(pod.UID)
	return nil
}

// startsLate reports whether pods that are late for a gang may start: it runs, and none of its members is only about to.
func (p *Plugin) startsLate(key string, status inventory.GangStatus) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return status.Runs && (!ok || len(g.assumed) == 0)
}

// lateText is why a late pod of a gang waits.
func lateText(key string) string {
	return fmt.Sprintf("it asks for no GPU and starts once gang %s runs", key)
}

// await gives members that a gang does not need, but says it has, a moment to appear,
// so that they are planned with the others. It begins again with each that does. The
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
		p.work.add(clusterstate.Change{Gang: g.key})
	})
}

// loses reports whether members of a gang have left a moment ago, so that others may follow, and has it looked at again. The
// plugin's lock must be held.
func (p *Plugin) loses(g *gang) bool {
	pause := p.losses.pause(g.key, p.now())
	if pause > 0 && !g.loses {
		g.loses = true
		p.after(pause, func() {
			p.mu.Lock()
			g.loses = false
			p.mu.Unlock()
			p.work.add(clusterstate.Change{Gang: g.key})
		})
	}
	return pause > 0
}

// unschedulable keeps a pod away from the scheduling cycle, or ends it, without preemption.
func unschedulable(format string, args ...any) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}
