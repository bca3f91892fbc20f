package placement

import "github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"

// Assignment is where one member runs.
type Assignment struct {
	Member string
	Node   string
	// Own are the member's GPUs; empty in ModeDefault, where the device plugin picks.
	Own gpu.Set
	// Visible are the GPUs of all the gang's members on this node.
	Visible gpu.Set
	// Shares are the parts of GPUs of a shared request.
	Shares []GPUShare
	// Ring is the best ring among the Visible GPUs; in ModeDefault the worst that can
	// happen. For a gang on several nodes of one NVLink domain it is the ring through the
	// GPUs of all of them ([gpu.Table.Fabric]).
	Ring gpu.Ring
}

// Placement is the assignments of a whole gang, in the order of the gang's members.
type Placement struct {
	Gang        string
	Assignments []Assignment
	// Order are the members in an order in which they can take their places one after the
	// other, by the rules about which pods are near each other; nil when any will do.
	Order []string
}

// Result is what Plan found: exactly one of Placement and Verdict.Reasons is set.
type Result struct {
	Placement *Placement
	Verdict   Verdict
	// Victims are the gangs that must be evicted before Placement can be; only [preemption.Plan] sets them.
	Victims []Victim
	// Reservation is the place to hold until others have gone; nil when Placement can be
	// had now. Only [preemption.Plan] sets it.
	Reservation *Reservation
}

// Victim is a running gang that must go, as a whole or but for what it needs.
type Victim struct {
	// Gang is the gang's ID, or the pod's for a pod on its own.
	Gang     string
	Leaf     string
	Priority int32
	// Pods are the IDs of its pods, sorted.
	Pods []string
	// Surplus means that the gang runs on without these pods: they are members beyond its minimum.
	Surplus bool
	// Leaving means that these pods are going without that anybody evicts them for this
	// gang: they are being deleted, or are evicted for another.
	Leaving bool
}

// Reservation is the place that a waiting gang gets once others have gone.
type Reservation struct {
	Gang      Gang
	Placement Placement
	// After are the gangs that have to go first, with all their pods, or with those
	// that are being deleted already.
	After []Victim
	// Evicts means that those of After that are not going yet are evicted for the gang;
	// otherwise it waits for them to end.
	Evicts bool
	// QuotaOnly means that the gang waits for quota: no node is kept from others for it.
	QuotaOnly bool
	// Granted means that the place is kept for a gang that has been promised it and is still to come. It waits for nobody, and
	// no other gang takes it, whatever its priority.
	Granted bool
	// NotAsPlanned says why it is not the place of [Gang.Planned], as [Verdict.NotAsPlanned] does.
	NotAsPlanned string
}

// Victims returns the gangs that are to be evicted.
func (r *Reservation) Victims() []Victim {
	if !r.Evicts {
		return nil
	}
	var list []Victim
	for _, victim := range r.After {
		if !victim.Leaving {
			list = append(list, victim)
		}
	}
	return list
}

// Result is what is found for a gang that gets the reservation.
func (r Reservation) Result() Result {
	members := len(r.Gang.Running) + len(r.Placement.Assignments)
	return Result{
		Placement: &r.Placement, Victims: r.Victims(), Reservation: &r,
		Verdict: Verdict{Fits: true, Gang: r.Gang.ID, Asked: members, Fit: members, NotAsPlanned: r.NotAsPlanned},
	}
}

// Taken is what is found for a gang that takes the reserved place, which the others have left.
func (r Reservation) Taken() Result {
	result := r.Result()
	result.Victims, result.Reservation = nil, nil
	return result
}
