package gangreservation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// placedAgain is how soon it is looked again whether pods of a job that is fenced have left their nodes.
const placedAgain = time.Second

// keepOut lets nothing start of a job that has left the cluster, and says so once none of its pods has a node.
func (r *Controller) keepOut(ctx context.Context, reservation *contract.GangReservation) error {
	key, asks := keyOf(reservation), reservation.Spec.Epoch > reservation.Status.Epoch
	if !reservation.Fences(r.now()) {
		r.release(key)
		if reservation.Status.Phase != contract.PhaseFenced {
			return r.clean(ctx, reservation)
		}
		ended := reservation.Status
		ended.Phase, ended.Message = contract.PhaseExpired, "Nobody has asked for the fence any more."
		return r.write(ctx, reservation, ended)
	}
	if why := r.raise(reservation); why != "" {
		return r.write(ctx, reservation, contract.GangReservationStatus{Epoch: reservation.Spec.Epoch, Phase: contract.PhaseRefused, Message: why})
	}
	if !asks {
		r.work.AddAfter(key, reservation.Status.Expires.Sub(r.now()))
		return nil
	}
	if placed := r.cache.Placed(r.fenced[key]...); placed > 0 {
		r.work.AddAfter(key, placedAgain)
		return nil
	}
	return r.write(ctx, reservation, contract.GangReservationStatus{
		Epoch: reservation.Spec.Epoch, Phase: contract.PhaseFenced, Message: "No gang of the job has a node, or gets one.", Expires: r.until(reservation),
	})
}

// raise puts up the fence of a reservation, which keeps no places any more; why says what stops it.
func (r *Controller) raise(reservation *contract.GangReservation) (why string) {
	key := keyOf(reservation)
	pods, err := podsOf(reservation)
	if err != nil {
		r.release(key)
		return fmt.Sprintf("what the job runs cannot be read: %s", err)
	}
	gangs := clusterstate.NewToCome(pods).Keys()
	if slices.Equal(gangs, r.fenced[key]) {
		return ""
	}
	r.release(key)
	r.cache.Fence(reservation.FenceText(), gangs...)
	r.fenced[key] = gangs
	return ""
}

// open takes the fence of a reservation away, but for gangs that another one fences, too.
func (r *Controller) open(key types.NamespacedName) {
	gangs := r.fenced[key]
	delete(r.fenced, key)
	for _, others := range r.fenced {
		gangs = slices.DeleteFunc(slices.Clone(gangs), func(gang string) bool { return slices.Contains(others, gang) })
	}
	r.cache.Fence("", gangs...)
}
