package ledger

import "sync"

// objects are what the walk changes outside of Terraform, by the names of [Ledger.Begin].
type objects struct {
	mu    sync.Mutex
	locks map[string]*sync.Mutex
	taken map[string]bool
	// givenUp are those of the taken ones whose resource has failed.
	givenUp map[string]bool
	// needed are those that resources are planned to have under names that are not their own, by whom.
	needed map[string]string
}

// Begin waits until no other resource of this walk changes the object of that name, and
// keeps others from it until end is called. When the address of a resource changes,
// Terraform deletes and creates one object at the same time.
func (l *Ledger) Begin(object string) (end func()) {
	l.objects.mu.Lock()
	lock := l.objects.locks[object]
	if lock == nil {
		lock = &sync.Mutex{}
		l.objects.locks[object] = lock
	}
	l.objects.mu.Unlock()
	lock.Lock()
	return lock.Unlock
}

// Take records that a resource of this walk is about to create the object, or to go on with one that
// an earlier apply created. It is false when another resource did so before.
func (l *Ledger) Take(object string) bool {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	if l.objects.taken[object] {
		return false
	}
	l.objects.taken[object] = true
	return true
}

// GiveUp records that the resource that has taken the object has failed, and does not have it.
func (l *Ledger) GiveUp(object string) {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	l.objects.givenUp[object] = true
}

// GivenUp reports whether the resource that has taken the object has failed: whether the object is there is
// for the next apply to find out.
func (l *Ledger) GivenUp(object string) bool {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	return l.objects.givenUp[object]
}

// Taken reports whether a resource of this walk has taken the object: it is not for the
// resource that had it before to delete it.
func (l *Ledger) Taken(object string) bool {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	return l.objects.taken[object]
}

// Need records that a planned job leads to an object, which it may share with no other one. other is the job that
// was planned before and needs it too, "" when there is none.
func (l *Ledger) Need(object, job string) (other string) {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	if by, ok := l.objects.needed[object]; ok && by != job {
		return by
	}
	l.objects.needed[object] = job
	return ""
}
