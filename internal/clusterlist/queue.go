package clusterlist

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Kinds of the job queue and of reservations, which a cluster may not serve.
var (
	queueKind     = schema.GroupVersionKind{Group: contract.QueueGroup, Version: contract.QueueVersion, Kind: contract.QueueKind}
	grantKind     = schema.GroupVersionKind{Group: contract.GangReservationGroup, Version: contract.GangReservationVersion, Kind: contract.GangReservationKind}
	queueUnitKind = schema.GroupVersionKind{Group: contract.QueueGroup, Version: contract.QueueVersion, Kind: contract.QueueUnitKind}
)

// Queues lists the queues of the quota tree, none where the kind is not served.
func Queues(ctx context.Context, client *kube.Client) ([]contract.Queue, error) {
	return decoded[contract.Queue](ctx, client, queueKind, contract.QueueNamespace)
}

// QueueUnits lists the jobs of a namespace, "" for all, that are in the job queue or have left it; none
// where the kind is not served.
func QueueUnits(ctx context.Context, client *kube.Client, namespace string) ([]contract.QueueUnit, error) {
	return decoded[contract.QueueUnit](ctx, client, queueUnitKind, namespace)
}

// GangReservations lists the places that are kept for gangs to come; none where the kind is not served.
func GangReservations(ctx context.Context, client *kube.Client) ([]contract.GangReservation, error) {
	return decoded[contract.GangReservation](ctx, client, grantKind, "")
}

// decoded lists the objects of a kind, without those that another queue has written in a form of its own.
func decoded[T any](ctx context.Context, client *kube.Client, kind schema.GroupVersionKind, namespace string) ([]T, error) {
	objects, err := listServed(ctx, client, kind, namespace)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(objects))
	for _, object := range objects {
		var read T
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &read) == nil {
			out = append(out, read)
		}
	}
	return out, nil
}
