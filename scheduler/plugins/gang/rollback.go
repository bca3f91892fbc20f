package gang

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// abort ends an attempt that cannot be completed: members that wait for the others
// are sent back, and once the last has given its place back, the assumed pods are released and
// the gang is activated again.
func (p *Plugin) abort(ctx context.Context, r *attempt) {
	p.mu.Lock()
	if r.phase == phaseBinding {
		p.mu.Unlock()
		return
	}
	reserving := r.phase == phaseReserving
	first := r.on(fails)
	if first {
		close(r.decided) // those that wait for it leave by themselves
	}
	p.mu.Unlock()
	if first {
		p.meter.RolledBack()
		if reserving {
			p.sendBack(r)
		}
	}
	p.close(ctx, r)
}

// sendBack sends those back who wait for the others of an attempt that has failed. The framework
// has a member wait only some time after Permit said so, so it looks again for those that
// have passed Reserve and do not wait.
func (p *Plugin) sendBack(r *attempt) {
	var holders []types.UID
	p.mu.Lock()
	for uid, s := range r.pods {
		if s.reserved {
			holders = append(holders, uid)
		}
	}
	p.mu.Unlock()
	again := false
	for _, uid := range holders {
		if waiting := p.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, fmt.Sprintf("gang %s is being planned again", r.key))
		} else {
			again = true
		}
	}
	if again {
		p.after(retryDelay, func() { p.sendBack(r) })
	}
}

// close releases the pods of an attempt that everybody has left. The attempt stays open until all
// are free: a gang that were planned meanwhile would take the others for members that run, and
// start in part.
func (p *Plugin) close(ctx context.Context, r *attempt) {
	p.mu.Lock()
	g, ok := p.gangs[r.key]
	if !ok || g.attempt != r || r.reserved > 0 || !r.on(vacate) {
		p.mu.Unlock()
		return
	}
	kept, backoff := r.kept && r.taken != nil, r.backoff
	p.mu.Unlock()
	if kept {
		p.cache.Restore(r.key, *r.taken)
	}
	for _, s := range r.pods {
		p.free(s)
	}
	p.mu.Lock()
	g.attempt = nil
	for uid, s := range r.pods {
		if g.assumed[uid] == s {
			delete(g.assumed, uid)
		}
	}
	p.mu.Unlock()
	p.activateAfter(ctx, r.key, backoff)
}
