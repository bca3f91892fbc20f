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

// isOf reports whether an object is the one of the binding, and not another one that was made under its name since.
func (b *binding) isOf(object *unstructured.Unstructured) bool {
	return b.Spec.Resource.UID == "" || b.Spec.Resource.UID == object.GetUID()
}

// bars says why the job may not go to a cluster, "" where it may: term is of [fleet.Rules.Selects]. One that it has left waits until the hub
// has forgotten what the cluster has told of it: that would be taken for what becomes of it there the next time.
func (b *binding) bars(cluster *contract.FleetCluster) (term int, why string) {
	if term, why = b.Spec.Placement.Bars(cluster, b.kind()); why == "" && b.ToldBy(cluster.Name) != nil {
		why = "the hub shows still what the cluster has told of the job before"
	}
	return term, why
}
