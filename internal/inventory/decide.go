package inventory

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// Decision is what the planner says of a gang that wants to run.
type Decision struct {
	// Key is the gang's key ([PlanKey]).
	Key string
	GangState
	Result placement.Result
	// Seats are the planned members, when the gang gets its place now.
	Seats []Seat
	// Held tells that the result's reservation was held already, Lost that one was held
	// which cannot be had any more.
	Held, Lost bool
	// Lifted tells that a place is not held any more, so that others may have it.
	Lifted bool
}

// Seat is the place of one member.
type Seat struct {
	Pod    *corev1.Pod
	Record contract.Allocation
}

// Consider says what [Cache.Decide] would decide, and changes nothing.
func (c *Cache) Consider(key string, exclude map[string]bool) (d Decision, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.consider(key, exclude)
}

func (c *Cache) consider(key string, exclude map[string]bool) (d Decision, ok bool) {
	d.Key = key
	if d.GangState, ok = c.gang(key); !ok || d.Lacks != "" {
		return d, ok
	}
	d.Gang.ExcludeNodes = exclude
	d.Result = c.view.Reclaim(d.Gang)
	if d.Result.Placement == nil && len(exclude) == 0 {
		c.hope(key, d.Gang)
	}
	if held, ok := c.view.Held(d.Gang.ID); ok {
		d.Held = d.Result.Reservation != nil && reflect.DeepEqual(held, *d.Result.Reservation)
		d.Lost = held.Evicts && d.Result.Placement == nil
	}
	return d, true
}

// Decide plans the members of a gang that do not run yet, next to those that do and
// without the excluded nodes, and takes what it finds, before anybody else is planned:
// members that get a place are charged as [Cache.Assume] does; a place that others have
// to leave first is held. ok is false when the gang has no pods.
func (c *Cache) Decide(key string, exclude map[string]bool) (d Decision, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok = c.consider(key, exclude); !ok || d.Lacks != "" || d.Result.Placement == nil {
		if d.Lost {
			d.Lifted = c.view.Release(d.Gang.ID)
		}
		return d, ok, nil
	}
	if d.Result.Reservation != nil {
		if !d.Held {
			d.Lifted = c.view.Hold(*d.Result.Reservation)
		}
		return d, true, nil
	}
	for _, a := range d.Result.Placement.Assignments {
		seat := Seat{Pod: d.Pods[a.Member]}
		owner, _ := GangKey(seat.Pod)
		seat.Record = c.record(owner, a)
		d.Seats = append(d.Seats, seat)
	}
	bound := make([]*corev1.Pod, len(d.Seats))
	for i, seat := range d.Seats {
		if bound[i], err = seat.bound(); err != nil {
			return d, true, fmt.Errorf("gang %s: %w", key, err)
		}
	}
	d.Lifted = c.view.Release(d.Gang.ID)
	for i, p := range bound {
		c.assume(p, &d.Seats[i].Record)
	}
	return d, true, nil
}

// bound returns the pod as it will be once it is bound. It shares with the pod as it is
// what binding does not change.
func (s *Seat) bound() (*corev1.Pod, error) {
	annotations, err := s.Record.Annotations()
	if err != nil {
		return nil, err
	}
	pod := *s.Pod
	pod.Spec.NodeName = s.Record.Node
	pod.Annotations = map[string]string{}
	maps.Copy(pod.Annotations, s.Pod.Annotations)
	maps.Copy(pod.Annotations, annotations)
	return &pod, nil
}

// Claim is the place that a gang holds until others have gone.
type Claim struct {
	Reservation placement.Reservation
	// Members are the reserved gang's pods by node.
	Members map[types.UID]string
	// Victims are the pods that are to be evicted and are not being deleted yet.
	Victims []*corev1.Pod
}

// Claim returns the place that a gang holds, by its key; ok is false when it holds none.
func (c *Cache) Claim(key string) (claim Claim, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.gang(key)
	if !ok {
		return Claim{}, false
	}
	if claim.Reservation, ok = c.view.Held(state.Gang.ID); !ok {
		return Claim{}, false
	}
	claim.Members = map[types.UID]string{}
	if !claim.Reservation.QuotaOnly {
		for _, a := range claim.Reservation.Placement.Assignments {
			if pod := state.Pods[a.Member]; pod != nil {
				claim.Members[pod.UID] = a.Node
			}
		}
	}
	for _, victim := range claim.Reservation.Victims() {
		for _, id := range victim.Pods {
			if state, ok := c.pods[types.UID(id)]; ok && state.holds() && state.now().DeletionTimestamp == nil {
				claim.Victims = append(claim.Victims, state.now())
			}
		}
	}
	return claim, true
}

// Hopeless reports whether a gang was found unable to be placed even if nothing else
// ran, and neither it nor a node nor the quota tree has changed since.
func (c *Cache) Hopeless(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hopeless(key)
}

func (c *Cache) hopeless(key string) bool {
	found, ok := c.hopes[key]
	return ok && !found.any && found.version == c.view.Version()
}

// hope finds out whether a gang that does not fit could be placed if nothing else ran.
func (c *Cache) hope(key string, g placement.Gang) {
	if found, ok := c.hopes[key]; !ok || found.version != c.view.Version() {
		c.hopes[key] = hope{any: !c.view.Hopeless(g), version: c.view.Version()}
	}
}

// ReserveHeads holds places for gangs that have waited too long, by key in the order of
// the queue ([placement.View.ReserveHeads]), and reports whether that changed anything.
// Gangs without hope are not looked at.
func (c *Cache) ReserveHeads(keys []string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys = slices.DeleteFunc(keys, c.hopeless)
	var gangs []placement.Gang
	for _, key := range keys {
		if state, ok := c.gang(key); ok && state.Lacks == "" {
			gangs = append(gangs, state.Gang)
		}
	}
	before := c.view.Reservations()
	if len(gangs) == 0 && len(before) == 0 {
		return false
	}
	c.view.ReserveHeads(gangs)
	return !reflect.DeepEqual(before, c.view.Reservations())
}

// Pending lists the gangs that are complete and of which members are not bound, by key.
func (c *Cache) Pending() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.gangs {
		if found := c.census(key); found.running < found.present && found.lacks(key) == "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Names returns what users call gangs: "gang ns/name", or "pod ns/name" for a pod on its own.
func (c *Cache) Names(gangs []placement.Victim) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, g := range gangs {
		name := "gang " + g.Gang
		if state, ok := c.pods[types.UID(g.Gang)]; ok {
			name = "pod " + state.now().Namespace + "/" + state.now().Name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Nominated lists the gangs of which members that are not bound have a nominated node,
// by key: before a scheduler ended, it held their places.
func (c *Cache) Nominated() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key, states := range c.gangs {
		for _, state := range states {
			p := state.now()
			if p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" && !gone(p) {
				keys = append(keys, key)
				break
			}
		}
	}
	slices.Sort(keys)
	return keys
}
