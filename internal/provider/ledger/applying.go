package ledger

// StartApplying records that this walk has begun to change things. Live capacity is
// not checked any more from then on: the plan has done so, and what is missing now
// may be what this walk has just used.
func (l *Ledger) StartApplying() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applying = true
}

// Applying reports whether this walk has begun to change things.
func (l *Ledger) Applying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applying
}
