package clustercache

import "github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"

// Simulation considers gangs that wait, one after the other, each as if those before it had the
// places already that they can have now: of a thousand that one free GPU would do for,
// the first gets it.
type Simulation struct {
	cache *Cache
	// view is the cache's own until a gang has got a place.
	view *snapshot.View
}

// Simulate begins a trial.
func (c *Cache) Simulate() *Simulation { return &Simulation{cache: c, view: c.state.View} }

// Consider says what [Cache.Decide] would decide about the next gang.
func (t *Simulation) Consider(key string, limits Limits) (d Decision, ok bool) {
	t.cache.planning.Lock()
	defer t.cache.planning.Unlock()
	d, ok = t.cache.consider(t.view, key, limits)
	placed := d.Result.Placement
	if placed == nil || len(placed.Assignments) == 0 || d.Reserved {
		return d, ok
	}
	if t.view == t.cache.state.View {
		t.view = t.cache.state.View.Clone()
	}
	if r := d.Result.Reservation; r != nil {
		t.view.AddReservation(*r)
		return d, ok
	}
	t.view.Release(d.Gang.ID)
	t.view.Apply(d.Gang, *placed)
	return d, ok
}
