package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Unplanned is the mark of a job for which this walk has no place.
const Unplanned = "unplanned"

// Mark returns a short digest of where this walk places a job, [Unplanned] for a job
// of which the values in Terraform's graph do not say that. It is the same at plan and at apply.
func (l *Ledger) Mark(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, ok := l.jobs[id]
	if !ok || !l.placedByValues(j) {
		return Unplanned
	}
	digest := sha256.New()
	for _, a := range j.placement.Assignments {
		fmt.Fprintln(digest, a.Member, a.Node, a.Own, a.Shares)
	}
	return hex.EncodeToString(digest.Sum(nil)[:4])
}

// Keeps reports whether a job is known to exist and to stay as it is.
func (l *Ledger) Keeps(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fixed[id]
}
