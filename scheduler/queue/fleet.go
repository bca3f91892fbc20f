package queue

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// binding is what holds a job on the hub of a fleet, and lets the fleet's scheduler take it. No pods run there: what the job needs is
// said by its object, how far it is by what its cluster tells of it.
func binding() kind {
	return kind{fleet.BindingKind, contract.ResourceBindingResource, []string{"spec", "suspension", "scheduling"}}
}

func (k kind) binds() bool { return k.gvk.Kind == contract.ResourceBindingKind }

// queueable reports whether the object of a binding is of a kind that can be queued.
func queueable(b *fleet.Binding) bool {
	return slices.ContainsFunc(kinds(), func(k kind) bool { return k.gvk == b.Spec.Resource.GroupVersionKind() })
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
	content, err := fleet.BindingOf(object)
	if err != nil || !queueable(content) {
		return err
	}
	s.jobs[object.GetUID()] = s.boundJob(object, content)
	s.bindingOf[content.Spec.Resource.UID] = object.GetUID()
	s.changed()
	return nil
}

// boundJob is the job of a binding; the lock must be held.
func (s *state) boundJob(object *unstructured.Unstructured, content *fleet.Binding) *job {
	j := &job{
		kind: binding(), object: object, namespace: object.GetNamespace(), name: object.GetName(), uid: object.GetUID(),
		created: object.GetCreationTimestamp().Unix(), deleted: object.GetDeletionTimestamp() != nil, content: content,
	}
	j.suspended = content.Spec.Suspension.Scheduling && content.Cluster() == "" // what is in a cluster runs there, whoever holds its binding
	j.wanted = j.suspended                                                      // whoever holds a binding asks for the queue
	described := s.described[content.Spec.Resource.UID]
	if described == nil {
		return j
	}
	j.created, j.sequence = described.created, described.sequence // bindings are made in any order
	j.needs = described.needs                                     // what it declines itself, its policy asks for
	j.started, j.finished = described.started, described.finished
	if j.finished == contract.UnitFailed { // in a cluster that it has left, where the one in which it is does not say so
		j.finished = ""
	}
	if there := content.Shown(described.object); there == nil && content.Succeeded(described.object) {
		j.finished = contract.UnitSucceed
	} else if there != nil {
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
