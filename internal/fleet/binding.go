package fleet

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// BindingName is the name of the binding that Karmada makes of an object.
// https://github.com/karmada-io/karmada/blob/v1.17.1/pkg/util/names/names.go, GenerateBindingName
func BindingName(kind, name string) string { return strings.ToLower(name + "-" + kind) }

// JobOf is the name of the job that a unit of a queue is for: the queue of a hub refers to its binding.
func JobOf(consumer corev1.ObjectReference) string {
	if at := strings.LastIndex(consumer.Name, "-"); consumer.Kind == contract.ResourceBindingKind && at >= 0 {
		return consumer.Name[:at] // kinds have no dash
	}
	return consumer.Name
}

// BindingKind is that of [Binding].
var BindingKind = schema.GroupVersionKind{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion, Kind: contract.ResourceBindingKind}

// Binding is what a hub makes of an object and the policy that takes it, as far as anything here reads it.
// https://github.com/karmada-io/karmada/blob/v1.17.1/pkg/apis/work/v1alpha2/binding_types.go, ResourceBinding
type Binding struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Resource      Bound  `json:"resource"`
		SchedulerName string `json:"schedulerName"`
		Suspension    struct {
			// Scheduling means that the object waits in a queue.
			Scheduling bool `json:"scheduling"`
		} `json:"suspension"`
		// Replicas are those of the object where Karmada divides them among clusters, as of a Job.
		Replicas int32 `json:"replicas"`
		// Clusters are those to which the object is sent: a gang to one.
		Clusters []struct {
			Name     string `json:"name"`
			Replicas int32  `json:"replicas"`
		} `json:"clusters"`
		Placement *Rules    `json:"placement"`
		Failover  *Failover `json:"failover"`
		// GracefulEvictionTasks are the clusters from which the object was evicted, until it runs in another one.
		GracefulEvictionTasks []Eviction `json:"gracefulEvictionTasks"`
		// PreserveResourcesOnDeletion means that Karmada leaves the object in a cluster from which it is taken, without its own labels.
		PreserveResourcesOnDeletion bool `json:"preserveResourcesOnDeletion"`
	} `json:"spec"`
	Status struct {
		// AggregatedStatus is what clusters tell of the object.
		AggregatedStatus []Told             `json:"aggregatedStatus"`
		Conditions       []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// Bound is the object of a binding.
type Bound struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// GroupVersionKind is the kind of the object.
func (o Bound) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// Failover is what a policy says of objects that are not well in their cluster.
type Failover struct {
	Application *struct {
		DecisionConditions struct {
			TolerationSeconds *int64 `json:"tolerationSeconds"`
		} `json:"decisionConditions"`
		PurgeMode string `json:"purgeMode"`
	} `json:"application"`
}

// Eviction is that of an object from a cluster.
type Eviction struct {
	FromCluster string `json:"fromCluster"`
}

// Told is what a cluster tells of an object.
type Told struct {
	ClusterName string `json:"clusterName"`
	// Applied means that the hub could make the object there; AppliedMessage says why not.
	Applied        bool   `json:"applied"`
	AppliedMessage string `json:"appliedMessage"`
	// Status is the object's there, nil for none yet.
	Status map[string]any `json:"status"`
	// Health is Healthy, Unhealthy or Unknown; it is never Unhealthy of kinds of which Karmada cannot tell.
	Health string `json:"health"`
}

// BindingOf reads a binding.
func BindingOf(object *unstructured.Unstructured) (*Binding, error) {
	b := &Binding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, b); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", contract.ResourceBindingKind, object.GetNamespace(), object.GetName(), err)
	}
	return b, nil
}

// Cluster is the one to which the object is sent, the first of several, "" for none.
func (b *Binding) Cluster() string {
	if len(b.Spec.Clusters) == 0 {
		return ""
	}
	return b.Spec.Clusters[0].Name
}

// ToldBy is what a cluster tells of the object, nil for nothing.
func (b *Binding) ToldBy(cluster string) *Told {
	for i := range b.Status.AggregatedStatus {
		if told := &b.Status.AggregatedStatus[i]; told.ClusterName == cluster {
			return told
		}
	}
	return nil
}

// Shown is the object with the status that it has in its cluster, nil where that tells none yet. What the hub shows may be what another
// cluster said before, and of kinds of which Karmada knows nothing it is nothing at all.
func (b *Binding) Shown(object *unstructured.Unstructured) *unstructured.Unstructured {
	told := b.ToldBy(b.Cluster())
	if told == nil || told.Status == nil {
		return nil
	}
	there := maps.Clone(object.Object)
	there["status"] = told.Status
	return &unstructured.Unstructured{Object: there}
}

// Succeeded reports whether a cluster has told once that the object has succeeded, of kinds of which the hub does not show that.
func (b *Binding) Succeeded(object *unstructured.Unstructured) bool {
	return object.GetUID() != "" && b.Annotations[contract.SucceededAnnotation] == string(object.GetUID())
}

// Scheduled is what the scheduler of the fleet says of the object, nil for nothing.
func (b *Binding) Scheduled() *metav1.Condition {
	return meta.FindStatusCondition(b.Status.Conditions, contract.BindingScheduled)
}
