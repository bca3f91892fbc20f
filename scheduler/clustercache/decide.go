package clustercache

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// Decision is what the planner says of a gang that wants to run.
type Decision struct {
	// Key is the gang's key ([inventory.PlanKey]).
	Key string
	inventory.GangState
	Result placement.Result
	// EvictedFor is the gang for which this one is being evicted, so that it gets no place now, "" for none.
	EvictedFor string
	// Assumed are the planned members, when the gang gets its place now.
	Assumed []AssumedPod
	// Taken is the reservation of the place that the gang gets now, nil when it held none.
	Taken *placement.Reservation
	// Ports are the host ports that keep the members on more nodes than they would need
	// without, where they get their places now.
	Ports []string
	// Delegated means that members ask for something that other plugins allocate on some nodes ([placement.Node.Delegated]).
	Delegated bool
	// Reserved means that the result's reservation was held already, Lost that one was held
	// which cannot be had any more.
	Reserved, Lost bool
	// Lifted means that a place is not held any more, so that others may have it.
	Lifted bool
	// Declined means that the place was not taken because the caller did not approve,
	// Leaving are the pods that have to leave it first.
	Declined bool
	Leaving  []*corev1.Pod
}

// Limits are the most members that may get a place on a node.
type Limits struct {
	// Roles are those of single roles, by role and node ([placement.Role.NodeLimits]), Joint
	// those of several together.
	Roles map[string]map[string]int
	Joint []placement.NodeLimit
}

// apply tells the gang's roles.
func (l Limits) apply(g *placement.Gang) {
	g.Roles, g.Limits = slices.Clone(g.Roles), l.Joint
	for i := range g.Roles {
		g.Roles[i].NodeLimits = l.Roles[g.Roles[i].Name]
	}
}

// AssumedPod is the place of one member.
type AssumedPod struct {
	Member string
	Pod    *corev1.Pod
	Record contract.Allocation
}

// Consider says what [Cache.Decide] would decide, and changes nothing.
func (c *Cache) Consider(key string, limits Limits) (d Decision, ok bool) {
	c.planning.Lock()
	defer c.planning.Unlock()
	return c.consider(c.state.View, key, limits)
}

// consider is Consider on a view; planning must be held.
func (c *Cache) consider(view *snapshot.View, key string, limits Limits) (d Decision, ok bool) {
	d.Key = key
	if d.GangState, ok = c.state.Gang(key); !ok || d.MissingText != "" {
		return d, ok
	}
	limits.apply(&d.Gang)
	c.state.SetMinimums()
	// Until the last pod of a gang that is evicted is being deleted, those that wait would succeed the first of them, and
	// stay alone.
	if d.EvictedFor = view.EvictedFor(d.Gang.ID); d.EvictedFor == "" {
		d.Result = preemption.Plan(view, d.Gang)
		if d.Result.Placement == nil && len(limits.Roles) == 0 && len(limits.Joint) == 0 {
			c.checkFeasible(key, d.Gang)
		}
	}
	if held, ok := view.Reservation(d.Gang.ID); ok {
		d.Reserved = d.Result.Reservation != nil && reflect.DeepEqual(held, *d.Result.Reservation)
		placed := d.Result.Placement
		d.Lost = held.Evicts && (placed == nil || len(placed.Assignments) == 0)
	}
	return d, true
}

// podsOf returns the pods of running gangs that are there still; planning must be held.
func (c *Cache) podsOf(gangs []placement.Victim) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, g := range gangs {
		for _, id := range g.Pods {
			if pod, ok := c.state.Pod(types.UID(id)); ok && pod.Charged() {
				pods = append(pods, pod.Now())
			}
		}
	}
	return pods
}

// Decide plans the members of a gang that do not run yet, next to those that do and
// within the limits, and takes what it finds and approve approves, before anybody
// else is planned: members that get a place are charged as [Cache.Assume] does; a place
// that others have to leave first is held. ok is false when the gang has no pods.
func (c *Cache) Decide(key string, limits Limits, approve func(*Decision) bool) (d Decision, ok bool, err error) {
	d, ok, err = c.decide(key, limits, approve)
	c.lifted(d.Lifted)
	return d, ok, err
}

// lifted tells of places that are not held any more.
func (c *Cache) lifted(are bool) {
	if are {
		c.notify(clusterstate.Change{Lifted: true})
	}
}

func (c *Cache) decide(key string, limits Limits, approve func(*Decision) bool) (d Decision, ok bool, err error) {
	c.planning.Lock()
	defer c.endPlanning()
	if d, ok = c.consider(c.state.View, key, limits); !ok || d.MissingText != "" || d.Result.Placement == nil {
		if d.Lost {
			d.Lifted = c.state.View.Release(d.Gang.ID)
		}
		return d, ok, nil
	}
	d.Delegated = c.state.View.Delegates(&d.Gang)
	switch {
	case d.Reserved:
		return d, true, nil
	case !approve(&d):
		d.Declined = true
		if r := d.Result.Reservation; r != nil {
			d.Leaving = c.podsOf(r.After)
		}
		return d, true, nil
	case d.Result.Reservation != nil:
		d.Lifted = c.state.View.AddReservation(*d.Result.Reservation)
		return d, true, nil
	}
	d.Ports = planner.PortsApart(c.state.View, d.Gang, *d.Result.Placement)
	for _, a := range d.Result.Placement.Assignments {
		assumed := AssumedPod{Member: a.Member, Pod: d.Pods[a.Member]}
		owner, _ := inventory.GangKey(assumed.Pod)
		assumed.Record = c.record(owner, a)
		if why := d.Result.Verdict.NotAsPlanned; why != "" && d.Gang.Plans(a.Member) {
			assumed.Record.NotAsPlanned = why
		}
		d.Assumed = append(d.Assumed, assumed)
	}
	bound := make([]*corev1.Pod, len(d.Assumed))
	for i, assumed := range d.Assumed {
		if bound[i], err = assumed.bound(); err != nil {
			return d, true, fmt.Errorf("gang %s: %w", key, err)
		}
	}
	var rest []placement.Assignment
	held, ok := c.state.View.Reservation(d.Gang.ID)
	promised := held
	if ok {
		rest = leftOf(&held, &d)
		if !held.Evicts { // the place may be another one than the gang has waited for
			held = placement.Reservation{Gang: d.Gang, Placement: *d.Result.Placement, Granted: held.Granted, NotAsPlanned: d.Result.Verdict.NotAsPlanned}
		}
		d.Taken = &held
	}
	d.Lifted = c.state.View.Release(d.Gang.ID)
	if len(rest) > 0 {
		promised.Placement.Assignments = rest
		d.Lifted = c.state.View.AddReservation(promised)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = c.state.View.Held()
	for i, p := range bound {
		c.state.Assume(p, &d.Assumed[i].Record)
	}
	return d, true, nil
}

// leftOf are the places that a gang was granted and does not take yet, since not all of its members are there: one with a
// minimum starts before. Members that nobody knew by their names take what there is.
func leftOf(held *placement.Reservation, d *Decision) (left []placement.Assignment) {
	if !held.Granted {
		return nil
	}
	there := map[string]bool{}
	for _, a := range slices.Concat(d.Gang.Running, d.Result.Placement.Assignments) {
		there[a.Member] = true
	}
	for _, a := range d.Result.Placement.Assignments {
		if !slices.ContainsFunc(held.Placement.Assignments, func(h placement.Assignment) bool { return h.Member == a.Member }) {
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(held.Placement.Assignments), func(h placement.Assignment) bool { return there[h.Member] })
}

// Restore keeps the place again that a gang has given back, unless the gang has gone. Members that
// are charged there still have to be forgotten after it.
func (c *Cache) Restore(key string, r placement.Reservation) {
	c.planning.Lock()
	defer c.endPlanning()
	if _, ok := c.state.Gang(key); ok {
		c.state.View.AddReservation(r)
	}
}

// bound returns the pod as it will be once it is bound. It shares with the pod as it is
// what binding does not change.
func (s *AssumedPod) bound() (*corev1.Pod, error) {
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

// Reservation is the place that a gang holds until others have gone.
type Reservation struct {
	placement.Reservation
	// Members are the nodes of the reserved gang's pods, when others are evicted for it.
	Members map[types.UID]string
	// Awaited are those of the gangs that the reservation waits for that run still, and Leaving
	// their pods.
	Awaited []placement.Victim
	Leaving []*corev1.Pod
}

// Reservation returns the place that a gang holds, by its key; ok is false when it holds none.
func (c *Cache) Reservation(key string) (reserved Reservation, ok bool) {
	c.planning.Lock()
	defer c.planning.Unlock()
	state, ok := c.state.Gang(key)
	if !ok {
		return Reservation{}, false
	}
	if reserved.Reservation, ok = c.state.View.Reservation(state.Gang.ID); !ok {
		return Reservation{}, false
	}
	reserved.Members = map[types.UID]string{}
	if reserved.Evicts {
		for _, a := range reserved.Placement.Assignments {
			if pod := state.Pods[a.Member]; pod != nil {
				reserved.Members[pod.UID] = a.Node
			}
		}
	}
	reserved.Awaited = slices.DeleteFunc(slices.Clone(reserved.After), func(g placement.Victim) bool {
		return len(c.podsOf([]placement.Victim{g})) == 0
	})
	reserved.Leaving = c.podsOf(reserved.Awaited)
	return reserved, true
}

// Victims returns the pods that are to be evicted for the place that a gang holds, by its key, and are not
// being deleted yet; none when the gang does not get the place by that any more.
func (c *Cache) Victims(key string) []*corev1.Pod {
	c.planning.Lock()
	defer c.planning.Unlock()
	state, ok := c.state.Gang(key)
	if !ok {
		return nil
	}
	held := c.state.View.ReservationOf(state.Gang.ID)
	if held == nil || !held.Evicts || c.state.View.EvictedFor(state.Gang.ID) != "" || !planner.ReservationValid(c.state.View, held, &state.Gang) {
		return nil
	}
	return slices.DeleteFunc(c.podsOf(held.Reservation.Victims()), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// Infeasible reports whether a gang was found unable to be placed even if nothing else
// ran, and neither it nor a node nor the quota tree has changed since.
func (c *Cache) Infeasible(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.feasibility[key]
	return ok && !found.feasible && found.version == c.state.View.Version()
}

// checkFeasible finds out whether a gang that does not fit could be placed if nothing else
// ran; planning must be held.
func (c *Cache) checkFeasible(key string, g placement.Gang) {
	c.mu.Lock()
	found, ok := c.feasibility[key]
	c.mu.Unlock()
	if ok && found.version == c.state.View.Version() {
		return
	}
	found = feasibility{feasible: !planner.Infeasible(c.state.View, g), version: c.state.View.Version()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.feasibility[key] = found
}

// Withdraw gives back the place that others leave for a gang, by its key, which does not ask for it any more, or cannot
// take it since other plugins refuse it whatever the node, and reports whether there was one.
func (c *Cache) Withdraw(key string, refused bool) bool {
	withdrawn := c.withdraw(key, refused)
	c.lifted(withdrawn)
	return withdrawn
}

func (c *Cache) withdraw(key string, refused bool) bool {
	c.planning.Lock()
	defer c.endPlanning()
	state, ok := c.state.Gang(key)
	if !ok {
		return false
	}
	asks := state.MissingText == "" && state.FirstUnbound() != nil // a pod may have come just now
	held := c.state.View.ReservationOf(state.Gang.ID)
	return held != nil && held.Evicts && (refused || !asks) && c.state.View.Release(state.Gang.ID)
}

// ReserveBlocked reserves places for gangs that have waited too long, by key in the order of
// the queue ([backfill.ReserveBlocked]), within limits by key,
// and reports whether that changed anything. Infeasible gangs are not tried.
func (c *Cache) ReserveBlocked(keys []string, limits map[string]Limits) (changed bool) {
	changed = c.reserveBlocked(keys, limits)
	c.lifted(changed)
	return changed
}

func (c *Cache) reserveBlocked(keys []string, limits map[string]Limits) (changed bool) {
	c.planning.Lock()
	defer c.endPlanning()
	keys = slices.DeleteFunc(keys, c.Infeasible)
	var gangs []placement.Gang
	for _, key := range keys {
		if state, ok := c.state.Gang(key); ok && state.MissingText == "" && c.state.View.EvictedFor(state.Gang.ID) == "" {
			limits[key].apply(&state.Gang)
			gangs = append(gangs, state.Gang)
		}
	}
	before := c.state.View.Reservations()
	if len(gangs) == 0 && len(before) == 0 {
		return false
	}
	backfill.ReserveBlocked(c.state.View, gangs)
	return !reflect.DeepEqual(before, c.state.View.Reservations())
}

// Reserved are the gangs that wait for others to end, with capacity reserved, by key.
func (c *Cache) Reserved() map[string]bool {
	c.planning.Lock()
	defer c.planning.Unlock()
	keys := map[string]bool{}
	for _, r := range c.state.View.Reservations() {
		if !r.Evicts && !r.Granted {
			keys[inventory.KeyOf(r.Gang.ID)] = true
		}
	}
	return keys
}

// Plan plans the members of a gang that do not run yet, next to those that do, and
// without the excluded nodes. ok is false when the gang has no pods.
func (c *Cache) Plan(key string, exclude map[string]bool) (state inventory.GangState, result placement.Result, ok bool) {
	c.planning.Lock()
	defer c.planning.Unlock()
	state, ok = c.state.Gang(key)
	if !ok {
		return inventory.GangState{}, placement.Result{}, false
	}
	state.Gang.ExcludeNodes = exclude
	return state, planner.Plan(c.state.View, state.Gang), true
}

// record makes the allocation record of a planned member.
func (c *Cache) record(gangID string, a placement.Assignment) contract.Allocation {
	node, _ := c.state.View.Node(a.Node)
	gpus := node.GPUs
	record := contract.Allocation{
		Gang:        gangID,
		Node:        a.Node,
		GPUs:        inventory.Indexes(a.Own, gpus),
		Visible:     inventory.Indexes(a.Visible, gpus),
		RingGBps:    a.Ring.GBps,
		NVLinkRings: a.Ring.NVLinkRings,
	}
	for _, share := range a.Shares {
		record.Shares = append(record.Shares, contract.GPUShare{
			GPU:         inventory.Indexes(gpu.SetOf(share.GPU), gpus)[0],
			MemoryGiB:   share.MemoryGiB,
			CorePercent: share.CorePercent,
		})
	}
	return record
}

// Rank returns the nodes on which a pod fits that the planner does not place, by name, the one
// first that it would choose.
func (c *Cache) Rank(p *corev1.Pod) []string {
	role := inventory.MemberOf(p).Role
	role.Members = []string{p.Name}
	c.planning.Lock()
	defer c.planning.Unlock()
	return planner.Rank(c.state.View, placement.Gang{ID: inventory.PodID(p), Roles: []placement.Role{role}})
}
