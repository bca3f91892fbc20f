package ledger

// Waiters counts the visits that wait.
func Waiters(l *Ledger) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiters)
}
