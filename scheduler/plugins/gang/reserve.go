package gang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// DefaultReserveAfter is how long a gang waits before capacity is reserved for it. It is
// longer than most short jobs take to make room by themselves, and short beside what
// training runs for.
const DefaultReserveAfter = 5 * time.Minute

// Args configure the plugin, in pluginConfig of the scheduler configuration.
type Args struct {
	// ReserveAfter is how long a gang waits before capacity is reserved for it, by the age of
	// its oldest pod; 0 means [DefaultReserveAfter], a negative duration never.
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
		args.ReserveAfter.Duration = DefaultReserveAfter
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
	due := slices.DeleteFunc(keys, func(key string) bool { return p.patienceOf(key) > 0 })
	p.due.Store(len(due) > 0)
	limits := map[string]clustercache.Limits{}
	for _, key := range due {
		rejected, _ := p.rejectedFor(key)
		limits[key] = rejected.limits()
	}
	return p.cache.ReserveBlocked(due, limits)
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

// reserveLater has a place held for a gang when it has waited long enough.
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
	nomination, ok := p.cache.Nomination(key)
	switch names := strings.Join(p.cache.Names(nomination.Awaited), ", "); {
	case !ok, nomination.Reservation.Evicts, names == "":
		return ""
	case nomination.Reservation.QuotaOnly:
		return fmt.Sprintf(" Reserved: waits for quota that is used by %s.", names)
	default:
		return fmt.Sprintf(" Reserved: waits for %s.", names)
	}
}
