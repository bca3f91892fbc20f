package fleet

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

var works = schema.GroupVersionResource{Group: contract.KarmadaWorkGroup, Version: contract.KarmadaWorkVersion, Resource: contract.KarmadaWorkResource}

// presence is what a member has by the name of a job.
type presence int

const (
	absent  presence = iota
	brought          // the job, as Karmada has brought it
	earlier          // an earlier job of the name, as Karmada has brought it
	left             // the job, as Karmada has left it
	foreign          // someone else's
	rival            // that of another fleet, of which the cluster is a member, too
)

// String says of a cluster what it has in the way of a job.
func (p presence) String() string {
	switch p {
	case earlier:
		return "an earlier job of its name is there still"
	case left:
		return leftThere
	case foreign:
		return "it has a job of that name that is not of the fleet: delete it there, or give one of them another name"
	case rival:
		return "it has a job of that name that another fleet has sent there: give one of them another name"
	}
	return ""
}

// find looks what the member has by the name of a job.
func (c *controller) find(ctx context.Context, b *binding, m *member) (presence, error) {
	found, err := m.client.Get(ctx, b.kind(), b.Spec.Resource.Namespace, b.Spec.Resource.Name)
	switch {
	case kube.IsNotFound(err), errors.Is(err, kube.ErrNotServed):
		return absent, nil
	case err != nil:
		return absent, err
	case fleet.Brought(found, b.Spec.Resource.UID):
		return brought, nil
	case fleet.Managed(found):
		return c.sender(ctx, found)
	case b.Spec.PreserveResourcesOnDeletion || b.leftIn(m.name):
		return left, nil
	}
	return foreign, nil
}

// sender tells by whom a job was brought that is from another object than the hub has now: by this hub as long as this has the Work of it,
// else by another one.
func (c *controller) sender(ctx context.Context, found *unstructured.Unstructured) (presence, error) {
	if found.GetDeletionTimestamp() != nil { // its Work may have gone before it
		return earlier, nil
	}
	of := found.GetAnnotations()
	work, err := c.hub.Dynamic.Resource(works).Namespace(of[contract.KarmadaWorkNamespaceAnnotation]).Get(ctx, of[contract.KarmadaWorkNameAnnotation], metav1.GetOptions{})
	switch {
	case kube.IsNotFound(err):
		return rival, nil
	case err != nil:
		return absent, fmt.Errorf("read on the hub which fleet has sent it: %w", err)
	}
	manifests, _, _ := unstructured.NestedSlice(work.Object, "spec", "workload", "manifests")
	for _, manifest := range manifests {
		if content, ok := manifest.(map[string]any); ok {
			from := (&unstructured.Unstructured{Object: content}).GetAnnotations()
			if from[contract.KarmadaTemplateAnnotation] == of[contract.KarmadaTemplateAnnotation] {
				return earlier, nil
			}
		}
	}
	return rival, nil
}
