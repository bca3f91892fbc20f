package fleet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
)

// binding is a ResourceBinding with the object that it was read from.
type binding struct {
	*fleet.Binding
	object *unstructured.Unstructured
}

func bindingOf(object *unstructured.Unstructured) (*binding, error) {
	b, err := fleet.BindingOf(object)
	return &binding{b, object}, err
}

// ours reports whether the binding is for this scheduler to place.
func (b *binding) ours() bool {
	return b.Spec.SchedulerName == contract.FleetSchedulerName && b.Spec.Placement != nil && b.DeletionTimestamp == nil
}

func (b *binding) key() string { return keyOf(b) }

// keyOf is that of a binding, and of what is made for it.
func keyOf(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// kind is that of the job.
func (b *binding) kind() schema.GroupVersionKind { return b.Spec.Resource.GroupVersionKind() }
