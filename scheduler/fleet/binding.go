package fleet

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
)

// binding is a ResourceBinding with the object that it was read from.
type binding struct {
	resourceBinding
	object *unstructured.Unstructured
}

// resourceBinding is Karmada's, as far as a scheduler reads it.
type resourceBinding struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Resource struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Namespace  string `json:"namespace"`
			Name       string `json:"name"`
		} `json:"resource"`
		SchedulerName string `json:"schedulerName"`
		Suspension    struct {
			// Scheduling means that the job waits in the queue.
			Scheduling bool `json:"scheduling"`
		} `json:"suspension"`
		// Replicas are those of the object where Karmada divides them among clusters, as of a Job.
		Replicas int32 `json:"replicas"`
		Clusters []struct {
			Name     string `json:"name"`
			Replicas int32  `json:"replicas"`
		} `json:"clusters"`
		Placement *fleet.Rules `json:"placement"`
		Failover  *failover    `json:"failover"`
		// GracefulEvictionTasks are the clusters from which the job was evicted, until it runs in another one.
		GracefulEvictionTasks []evictionTask `json:"gracefulEvictionTasks"`
	} `json:"spec"`
	Status struct {
		// AggregatedStatus is what clusters tell of the job.
		AggregatedStatus []struct {
			ClusterName string `json:"clusterName"`
		} `json:"aggregatedStatus"`
	} `json:"status"`
}

type evictionTask struct {
	FromCluster string `json:"fromCluster"`
}

func bindingOf(object *unstructured.Unstructured) (*binding, error) {
	b := &binding{object: object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &b.resourceBinding); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", contract.ResourceBindingKind, object.GetNamespace(), object.GetName(), err)
	}
	return b, nil
}

// ours reports whether the binding is for this scheduler to place.
func (b *binding) ours() bool {
	return b.Spec.SchedulerName == contract.FleetSchedulerName && b.Spec.Placement != nil && b.DeletionTimestamp == nil
}

func (b *binding) key() string { return keyOf(b) }

// keyOf is that of a binding, and of what is made for it.
func keyOf(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// kind is that of the job.
func (b *binding) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(b.Spec.Resource.APIVersion, b.Spec.Resource.Kind)
}
