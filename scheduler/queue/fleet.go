package queue

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// binding is what holds a job on the hub of a fleet, and lets the fleet's scheduler take it. No pods run there: what the job needs is
// said by its object, how far it is by what its cluster tells of it.
func binding() kind {
	group := schema.GroupVersion{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion}
	return kind{group.WithKind(contract.ResourceBindingKind), contract.ResourceBindingResource, []string{"spec", "suspension", "scheduling"}}
}

func (k kind) binds() bool { return k.gvk.Kind == contract.ResourceBindingKind }

// bindingContent is Karmada's binding, as far as the queue reads it.
type bindingContent struct {
	Spec struct {
		Resource struct {
			APIVersion string    `json:"apiVersion"`
			Kind       string    `json:"kind"`
			Name       string    `json:"name"`
			UID        types.UID `json:"uid"`
		} `json:"resource"`
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	} `json:"spec"`
	Status struct {
		AggregatedStatus []struct {
			ClusterName string         `json:"clusterName"`
			Status      map[string]any `json:"status"`
		} `json:"aggregatedStatus"`
	} `json:"status"`
}

// queueable reports whether the object is of a kind that can be queued.
func (c *bindingContent) queueable() bool {
	for _, k := range kinds() {
		if k.gvk == schema.FromAPIVersionAndKind(c.Spec.Resource.APIVersion, c.Spec.Resource.Kind) {
			return true
		}
	}
	return false
}

// sent reports whether the job has a cluster.
func (c *bindingContent) sent() bool { return c != nil && len(c.Spec.Clusters) > 0 }

// told is what the job's cluster says of it, nil for nothing yet.
func (c *bindingContent) told() map[string]any {
	for _, status := range c.Status.AggregatedStatus {
		if len(c.Spec.Clusters) > 0 && status.ClusterName == c.Spec.Clusters[0].Name {
			return status.Status
		}
	}
	return nil
}

// setBinding takes in a binding of the hub.
func (s *state) setBinding(object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeBinding(object)
}

func (s *state) takeBinding(object *unstructured.Unstructured) error {
	before := s.jobs[object.GetUID()]
	if before != nil && !newer(object, before.object) {
		return nil
	}
	content := &bindingContent{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, content); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", contract.ResourceBindingKind, object.GetNamespace(), object.GetName(), err)
	}
	if !content.queueable() {
		return nil
	}
	s.jobs[object.GetUID()] = s.boundJob(object, content)
	s.bindingOf[content.Spec.Resource.UID] = object.GetUID()
	s.changed()
	return nil
}

// boundJob is the job of a binding; the lock must be held.
func (s *state) boundJob(object *unstructured.Unstructured, content *bindingContent) *job {
	j := &job{
		kind: binding(), object: object, namespace: object.GetNamespace(), name: object.GetName(), uid: object.GetUID(),
		created: object.GetCreationTimestamp().Unix(), deleted: object.GetDeletionTimestamp() != nil, content: content,
	}
	if !content.sent() { // what is in a cluster runs there, whoever holds its binding
		j.suspended, _, _ = unstructured.NestedBool(object.Object, j.kind.suspend...)
	}
	j.wanted = j.suspended // whoever holds a binding asks for the queue
	described := s.described[content.Spec.Resource.UID]
	if described == nil {
		return j
	}
	j.created, j.sequence = described.created, described.sequence // bindings are made in any order
	j.needs, j.declined = described.needs, described.declined
	j.started, j.finished = described.started, described.finished
	if told := content.told(); told != nil {
		there := &unstructured.Unstructured{Object: map[string]any{}}
		for field, value := range described.object.Object {
			there.Object[field] = value
		}
		there.Object["status"] = told
		if status, err := trainingjob.StatusOf(there); err == nil {
			j.course(status)
			if status.Phase == trainingjob.Running || j.finished != "" {
				j.running = j.pods
			}
		}
	}
	return j
}

// describeBound takes in the object of a job that a binding holds, which arrived with this resource version unless it is known.
func (s *state) describeBound(k kind, object *unstructured.Unstructured, arrived int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.described[object.GetUID()]
	if !k.has(object) || before != nil && !newer(object, before.object) {
		return nil
	}
	described, err := newJob(k, object, before)
	if err != nil {
		return err
	}
	if described.sequence = arrived; before != nil {
		described.sequence = before.sequence
	}
	s.described[object.GetUID()] = described
	if bound := s.jobs[s.bindingOf[object.GetUID()]]; bound != nil {
		s.jobs[bound.uid] = s.boundJob(bound.object, bound.content)
		s.changed()
	}
	return nil
}

// removeDescribed forgets the object of a job; its binding goes by itself.
func (s *state) removeDescribed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.described, uid)
}

// removeBinding forgets a binding, and with it the job.
func (s *state) removeBinding(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bound := s.jobs[object.GetUID()]; bound != nil {
		if of := bound.content.Spec.Resource.UID; s.bindingOf[of] == bound.uid {
			delete(s.bindingOf, of)
		}
	}
	delete(s.jobs, object.GetUID())
	s.changed()
}
