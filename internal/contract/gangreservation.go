package contract

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reservations of places for gangs that are still to come.
const (
	GangReservationGroup    = GPUNodeGroup
	GangReservationVersion  = GPUNodeVersion
	GangReservationKind     = "GangReservation"
	GangReservationResource = "gangreservations"
	// FleetLabel on a reservation is the fleet that has made it: the UID of the namespace kube-system of its hub.
	FleetLabel = "gpuplan.dev/fleet"
	// LeftLabel on a reservation, "true", means that the job was in the cluster before: a fence stands there unless the place of the job is
	// asked for, or the job is there.
	LeftLabel = "gpuplan.dev/left"
)

// GangReservation asks the scheduler of a cluster to keep the places of a job's gangs before the job is there, or to let none of them
// start once the job has left.
type GangReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GangReservationSpec   `json:"spec"`
	Status            GangReservationStatus `json:"status,omitzero"`
}

// GangReservationSpec is what is asked for.
type GangReservationSpec struct {
	// Job is the job as it will be applied, of which the scheduler tells the pods.
	Job map[string]any `json:"job"`
	// Epoch grows with each request: a higher one asks for the places again, or for longer.
	Epoch int64 `json:"epoch"`
	// Seconds is how long the places are kept from the answer on, or the fence stands, by the clock of the scheduler.
	Seconds int64 `json:"seconds"`
	// Fenced asks for no places, but for the opposite: that nothing of the job gets a node. It has left the cluster.
	Fenced bool `json:"fenced,omitempty"`
}

// GangReservationPhase is what has become of a request.
type GangReservationPhase string

// Phases of reservations.
const (
	// PhaseReserved means that the places are kept until they expire.
	PhaseReserved GangReservationPhase = "Reserved"
	// PhaseRefused means that not all gangs of the job have a place; the message says why.
	PhaseRefused GangReservationPhase = "Refused"
	// PhaseTaken means that the job's gangs are there, and have their places, or wait for some without a reservation.
	PhaseTaken GangReservationPhase = "Taken"
	// PhaseFenced means that no pod of the job's gangs has a node, and none gets one until that expires.
	PhaseFenced GangReservationPhase = "Fenced"
	// PhaseExpired means that the time is over: the places are not kept any more, or the fence has gone.
	PhaseExpired GangReservationPhase = "Expired"
)

// GangReservationStatus is the scheduler's answer.
type GangReservationStatus struct {
	// Epoch is the one of the request that is answered.
	Epoch   int64                `json:"epoch,omitempty"`
	Phase   GangReservationPhase `json:"phase,omitempty"`
	Message string               `json:"message,omitempty"`
	// Expires is until when the places are kept, or the fence stands, by the clock of the scheduler.
	Expires *metav1.Time `json:"expires,omitempty"`
	// Gangs are the places that are, or were, kept.
	Gangs []GrantedGang `json:"gangs,omitempty"`
}

// Fences reports whether the scheduler lets nothing of the job start at that time by its clock: it does so before it answers.
func (r *GangReservation) Fences(now time.Time) bool {
	status := &r.Status
	return r.Spec.Fenced && (r.Spec.Epoch > status.Epoch || status.Phase == PhaseFenced && status.Expires != nil && now.Before(status.Expires.Time))
}

// FenceText says what keeps a job from starting that is fenced.
func (r *GangReservation) FenceText() string {
	return fmt.Sprintf("the job has left this cluster: its fleet lets nothing of it start here, by GangReservation %s/%s", r.Namespace, r.Name)
}

// GrantedGang is the place of one gang.
type GrantedGang struct {
	// Name is the gang's "namespace/name".
	Name  string        `json:"name"`
	Nodes []PlannedNode `json:"nodes"`
}
