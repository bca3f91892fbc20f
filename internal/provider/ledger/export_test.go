package ledger

// Waiters counts the visits that wait.
func Waiters(l *Ledger) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiters)
}

// Listens reports whether a visit waits for the next one now.
func Listens(l *Ledger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next != nil
}
