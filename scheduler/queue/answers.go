package queue

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An answer may arrive after a watch has shown that its object is gone. No event would
// take the object out once more, so an answer brings back nothing: it is taken in for
// objects that are known, and for those that it tells of first unless their end was seen
// in the same pass. All answers to a pass arrive before the next one begins.

// beginPass forgets the ends of objects that no answer can be about any more. The lock
// must be held.
func (s *state) beginPass() { clear(s.gone) }

// answerJob takes in a job that was written. We make no jobs, so it is known or gone.
func (s *state) answerJob(k kind, object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[object.GetUID()] == nil {
		return nil
	}
	if k.binds() {
		return s.takeBinding(object)
	}
	return s.takeJob(k, object, version(object))
}

// answerUnit takes in a unit that was made or written.
func (s *state) answerUnit(object *unstructured.Unstructured) error {
	u, err := newUnit(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone[u.UID] {
		s.takeUnit(u, false)
	}
	return nil
}

// answerQueue takes in a Queue that was made or written.
func (s *state) answerQueue(object *unstructured.Unstructured) error {
	q, err := newQueue(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone[q.UID] {
		s.takeQueue(q)
	}
	return nil
}

// answerTree takes in a quota tree whose status was written.
func (s *state) answerTree(object *unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.trees[object.GetName()]; known == nil || known.GetUID() != object.GetUID() {
		return nil
	}
	_ = s.takeTree(object) // what is wrong with it stands in its status
	return nil
}
