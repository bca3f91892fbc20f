package gang

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// Args configure the plugin, in pluginConfig of the scheduler configuration.
type Args struct {
	// ReserveAfter is how long a gang waits before capacity is reserved for it, by the age of
	// its oldest pod; 0 means [contract.DefaultReserveAfter], a negative duration never.
	ReserveAfter metav1.Duration `json:"reserveAfter"`
	// StaleAfter is how long a gang that has lost members may find no place for others before
	// the whole gang is evicted, to wait as a whole again; 0 means never.
	StaleAfter metav1.Duration `json:"staleAfter"`
}

// decode reads the arguments of the configuration.
func decode(object runtime.Object) (Args, error) {
	var args Args
	if object != nil {
		if err := frameworkruntime.DecodeInto(object, &args); err != nil {
			return Args{}, fmt.Errorf("%s: read the arguments: %w", Name, err)
		}
	}
	if args.StaleAfter.Duration < 0 {
		return Args{}, fmt.Errorf("%s: staleAfter is %s; give a positive duration, or 0s for never", Name, args.StaleAfter.Duration)
	}
	if args.ReserveAfter.Duration == 0 {
		args.ReserveAfter.Duration = contract.DefaultReserveAfter
	}
	return args, nil
}

// reserve reserves places for those of the gangs, given in the order of the queue, that have
// waited too long, and reports whether that changed anything. How long they have waited
// is their age, so that a scheduler that starts holds the same places.
func (p *Plugin) reserve(keys []string) (changed bool) {
	if p.reserveAfter < 0 {
		return false
	}
	due := slices.DeleteFunc(keys, func(key string) bool { return p.patienceOf(key) > 0 || p.refusedEverywhere(key) })
	p.due.Store(len(due) > 0)
	limits := map[string]clustercache.Limits{}
	for _, key := range due {
		rejected, _ := p.rejectedFor(key)
		limits[key] = rejected.limits()
	}
	return p.cache.ReserveBlocked(due, limits)
}

// admitReserved activates the gangs that wait with a place about which other plugins have not been
// asked: that needs a cycle ([Plugin.askAboutReserved]).
func (p *Plugin) admitReserved(ctx context.Context) {
	for _, key := range slices.Sorted(maps.Keys(p.cache.Reserved())) {
		reserved, ok := p.cache.Reservation(key)
		p.mu.Lock()
		g := p.gangs[key]
		admitted := ok && g != nil && g.entry == entryWaiting && !g.hasAsked(reserved.Reservation)
		if admitted {
			g.reopen()
		}
		p.mu.Unlock()
		if admitted {
			p.activate(ctx, key)
		}
	}
}

// askAboutReserved asks the filters of other plugins about the place that is held for a gang until
// others end, once for each place, and has another one held when they refuse it. For a gang that
// is refused everywhere none is held, for a pause that doubles: others would leave it room that
// it cannot take. A status ends the cycle.
func (p *Plugin) askAboutReserved(ctx context.Context, key string, pod *corev1.Pod, d clustercache.Decision) *fwk.Status {
	for asked := range maxDryRuns {
		reserved, ok := p.cache.Reservation(key)
		p.mu.Lock()
		known := p.gang(key, pod).hasAsked(reserved.Reservation)
		p.mu.Unlock()
		switch {
		case !ok && asked > 0:
			p.reserveAgainLater(key)
			return nil
		case !ok, known, reserved.Evicts:
			return nil
		}
		d.Result, d.Leaving = reserved.Result(), reserved.Leaving
		found, _, why, err := p.dryRunFilters(ctx, d, pod)
		switch {
		case err != nil:
			return fwk.AsStatus(err)
		case why != nil:
			p.blockOther(ctx, key, why)
			return unschedulable("pod %s: %s", why.pod.Name, why.reason)
		case len(found) == 0:
			p.mu.Lock()
			g := p.gang(key, pod)
			g.asked, g.reservePause = &reserved.Placement, 0
			p.mu.Unlock()
			return nil
		}
		p.note(key, pod, found)
		p.reserve(p.waiting())
	}
	p.reserveAgainLater(key)
	return nil
}

// hasAsked reports whether other plugins have been asked about a place. The lock must be held.
func (g *gang) hasAsked(r placement.Reservation) bool {
	return g.asked != nil && reflect.DeepEqual(*g.asked, r.Placement)
}

// reserveAgainLater keeps a gang without a reservation for a while.
func (p *Plugin) reserveAgainLater(key string) {
	p.mu.Lock()
	g, ok := p.gangs[key]
	if !ok {
		p.mu.Unlock()
		return
	}
	g.reservePause = min(max(2*g.reservePause, minBackoff), maxBackoff)
	g.reservesAgain = p.now().Add(g.reservePause)
	pause := g.reservePause
	p.mu.Unlock()
	p.work.age() // others are admitted where its place was
	p.after(pause, p.work.age)
}

// refusedEverywhere reports whether other plugins have refused a gang wherever a place was held for it,
// a moment ago.
func (p *Plugin) refusedEverywhere(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, ok := p.gangs[key]
	return ok && p.now().Before(g.reservesAgain)
}

// affectsReservations reports whether a change of some gangs may mean that other places must be
// held: gangs have waited too long already, or one of these waits.
func (p *Plugin) affectsReservations(keys map[string]bool) bool {
	if len(keys) > 0 && p.due.Load() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range keys {
		if g, ok := p.gangs[key]; ok && g.waits() {
			return true
		}
	}
	return false
}

// patienceOf is how long a gang has to wait until capacity is reserved for it.
func (p *Plugin) patienceOf(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, ok := p.gangs[key]; ok {
		return p.reserveAfter - time.Since(time.Unix(0, g.created))
	}
	return p.reserveAfter
}

// reserveLater gives a gang a reservation when it has waited long enough.
func (p *Plugin) reserveLater(key string) {
	switch pause := p.patienceOf(key); {
	case p.reserveAfter < 0:
	case pause > 0:
		p.after(pause, p.work.age)
	default:
		p.work.age()
	}
}

// reservationText says what a gang waits for whose place is held, "" when none is.
func (p *Plugin) reservationText(key string) string {
	reserved, ok := p.cache.Reservation(key)
	switch names := strings.Join(p.cache.Names(reserved.Awaited), ", "); {
	case !ok, reserved.Evicts, names == "":
		return ""
	case reserved.QuotaOnly:
		return fmt.Sprintf(" %squota that is used by %s.", contract.ReservedText, names)
	default:
		return fmt.Sprintf(" %s%s.", contract.ReservedText, names)
	}
}
