package ledger

// program is what becomes of a program.
type program struct {
	stays   bool
	version string // "" where the plan does not say it
}

// RecordProgram records whether a program is installed once the walk is carried out.
func (l *Ledger) RecordProgram(name string, installed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs[name] = program{stays: installed}
	l.visit()
}

// RemoveProgram says what jobs lose by the removal of a program that [Ledger.RecordProgram] has recorded, as [Ledger.CutQuota] does: lost answers
// by [Orphaned].
func (l *Ledger) RemoveProgram(name string, lost func(stays func(job string) bool) []Finding) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts[name] = lost
	return l.check(nil, false)
}

// RecordVersion records that a program is installed once the walk is carried out, and its version, "" where that is not
// known before.
func (l *Ledger) RecordVersion(name, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs[name] = program{stays: true, version: version}
	l.visit()
}

// Program reports whether a program is installed once the walk is carried out; known is false before the walk has come
// to it.
func (l *Ledger) Program(name string) (installed, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.programs[name]
	return p.stays, known
}

// Version returns what [Ledger.RecordVersion] was told of a program, "" for nothing.
func (l *Ledger) Version(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.programs[name].version
}
