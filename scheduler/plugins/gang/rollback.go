package gang

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// abandon ends a round that cannot be completed: members that wait for the others
// are sent back, and once the last has given its place back, the seats are freed and
// the gang is let in again.
func (p *Plugin) abandon(ctx context.Context, r *round) {
	p.mu.Lock()
	if r.phase == bindingPhase {
		p.mu.Unlock()
		return
	}
	first := r.phase == seatingPhase
	r.phase = leavingPhase
	p.mu.Unlock()
	if first {
		p.meter.RolledBack()
		p.sendBack(r)
	}
	p.close(ctx, r)
}

// sendBack sends those back who wait for the others of a round that has failed. The framework
// has a member wait only some time after Permit said so, so it looks again for those that
// hold a place and do not wait.
func (p *Plugin) sendBack(r *round) {
	var holders []types.UID
	p.mu.Lock()
	for uid, s := range r.seats {
		if s.reserved {
			holders = append(holders, uid)
		}
	}
	p.mu.Unlock()
	again := false
	for _, uid := range holders {
		if waiting := p.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, fmt.Sprintf("gang %s is being planned anew", r.key))
		} else {
			again = true
		}
	}
	if again {
		p.after(secondLook, func() { p.sendBack(r) })
	}
}

// close frees the seats of a round that everybody has left. The round stays open until all
// are free: a gang that were planned meanwhile would take the others for members that run, and
// start in part.
func (p *Plugin) close(ctx context.Context, r *round) {
	p.mu.Lock()
	g, ok := p.gangs[r.key]
	if !ok || g.open != r || r.reserved > 0 || r.closing {
		p.mu.Unlock()
		return
	}
	r.closing = true
	p.mu.Unlock()
	for _, s := range r.seats {
		p.free(s)
	}
	p.mu.Lock()
	g.open = nil
	for uid, s := range r.seats {
		if g.seats[uid] == s {
			delete(g.seats, uid)
		}
	}
	p.mu.Unlock()
	p.letInAfter(ctx, r.key, r.pause)
}
