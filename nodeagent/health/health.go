// Package health decides from a source's signals which GPUs must not be used.
//
// Each signal opens a fault, or keeps it open. What a fault does and how it ends is
// its class's ([Rule]): the state machine has no cases of its own. A GPU is in one of
// four states. A Warning makes it Suspect, everything worse Unhealthy, and as long as
// nothing speaks against it but the quiet time is not over, it is Recovering. A GPU in
// the states Healthy and Suspect is used; in the others it is not. All faults of a GPU
// are kept, the worst first, so that what follows from a fault does not hide it.
//
// The package has no clock: callers say what time it is.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// State is how far a GPU can be trusted.
type State string

// States of a GPU.
const (
	Healthy    State = "Healthy"
	Suspect    State = "Suspect"
	Unhealthy  State = "Unhealthy"
	Recovering State = "Recovering"
)

const (
	// warningsToFail is how many events of class [Warning] within SuspectTime make a
	// GPU unhealthy.
	warningsToFail = 3
	// SuspectTime is how long a warning counts.
	SuspectTime = 10 * time.Minute
	// RealQuietTime is the quiet time for real GPUs.
	RealQuietTime = 5 * time.Minute
	// repeated is the code of the fault that repeated warnings make.
	repeated = "RepeatedWarnings"
)

// Fault is one thing that speaks against a GPU.
type Fault struct {
	// Code names it for programs ([Code]), Message for people.
	Code, Message string
	Class         Class
	Since         time.Time
	// Cured means that a reset was seen after a fault that needs one.
	Cured bool
}

// Verdict is the health of one GPU.
type Verdict struct {
	State State
	// Faults are all that speaks against the GPU, the worst first, and of equal ones
	// the first; none when it is Healthy.
	Faults []Fault
	// Since is when the GPU became usable, or unusable.
	Since time.Time
}

// Usable tells whether work may be put on the GPU.
func (v Verdict) Usable() bool { return v.State == Healthy || v.State == Suspect }

// Reason says in words why the GPU is not Healthy, "" when it is.
func (v Verdict) Reason() string {
	words := make([]string, len(v.Faults))
	for i, fault := range v.Faults {
		words[i] = fault.Message
	}
	return strings.Join(words, "; ")
}

// Tracker follows the GPUs of one machine from reading to reading. The zero
// value has seen nothing. It is not safe for concurrent use.
type Tracker struct {
	// QuietTime is how long nothing may speak against an Unhealthy GPU before it is
	// used again; 0 for a source whose word can be taken.
	QuietTime time.Duration

	gpus map[string]*gpuState
}

// gpuState is the history of one GPU.
type gpuState struct {
	usable bool
	since  time.Time
	// wasReset means that this run has seen a reset of the GPU.
	wasReset bool
	faults   map[string]*fault
	// warnings are the times of recent warnings, oldest first.
	warnings []time.Time
}

// fault is a [Fault] with what decides about its end.
type fault struct {
	Fault
	// last is when it was seen last, or cured; fresh means that it was seen since the last
	// verdicts.
	last  time.Time
	fresh bool
	// restored means that an earlier run has seen it, and this one has not.
	restored bool
}

// Restore tells the tracker the last verdict of an earlier run of the agent on a GPU,
// so that a restart of the agent does not heal it, nor takes back a reset that was seen.
func (t *Tracker) Restore(now time.Time, id string, was Verdict) {
	c := t.gpu(id)
	c.usable, c.since = was.Usable(), was.Since
	for _, f := range was.Faults {
		if known := c.faults[f.Code]; known != nil {
			known.Since = f.Since
			continue
		}
		// An agent of before Cured has cured all of a GPU that is Recovering.
		f.Cured = f.Class >= NeedsReset && (f.Cured || c.wasReset || was.State == Recovering)
		c.faults[f.Code] = &fault{Fault: f, last: now, restored: true}
	}
}

// Note takes in signals.
func (t *Tracker) Note(now time.Time, signals []hardware.Signal) {
	for _, s := range signals {
		t.gpu(s.GPU).note(now, s)
	}
}

// Rebooted notes that the machine was rebooted after the earlier run of the agent: what this one has
// seen itself has happened since.
func (t *Tracker) Rebooted(now time.Time) {
	for _, c := range t.gpus {
		c.cure(now, func(f *fault) bool { return f.restored })
	}
}

// NotAsked notes that the driver asks for no reset of a GPU: one that it asked for during an earlier run has happened since.
func (t *Tracker) NotAsked(now time.Time, id string) {
	c := t.gpu(id)
	if asked := c.faults[string(hardware.ResetRequired)]; asked != nil && asked.restored {
		c.cure(now, func(f *fault) bool { return f.restored })
	}
}

// Unread notes that the GPUs could not be read. No fault ends by that nobody looks: its quiet time begins again.
func (t *Tracker) Unread(now time.Time) {
	for _, c := range t.gpus {
		for _, f := range c.faults {
			f.last = now
		}
	}
}

// Verdicts returns the verdict on each GPU of the machine, by position. GPUs that are
// not in the machine are forgotten.
func (t *Tracker) Verdicts(now time.Time, machine gpu.Machine) []Verdict {
	verdicts := make([]Verdict, len(machine.GPUs))
	present := make(map[string]bool, len(verdicts))
	for i, described := range machine.GPUs {
		id := hardware.ID(described)
		if described.Unhealthy != "" {
			t.gpu(id).note(now, hardware.Signal{GPU: id, Kind: hardware.Marked, Detail: described.Unhealthy})
		}
		verdicts[i] = t.gpu(id).verdict(now, t.QuietTime)
		present[id] = true
	}
	for id := range t.gpus {
		if !present[id] {
			delete(t.gpus, id)
		}
	}
	return verdicts
}

func (t *Tracker) gpu(id string) *gpuState {
	if t.gpus == nil {
		t.gpus = map[string]*gpuState{}
	}
	if t.gpus[id] == nil {
		t.gpus[id] = &gpuState{faults: map[string]*fault{}}
	}
	return t.gpus[id]
}

func (c *gpuState) note(now time.Time, s hardware.Signal) {
	if s.Kind == hardware.WasReset {
		c.wasReset = true
		// What is fresh may have come after the reset.
		c.cure(now, func(f *fault) bool { return !f.fresh })
		return
	}
	rule := RuleOf(s)
	if rule.Class == Harmless {
		return
	}
	c.open(now, Fault{Code: Code(s), Message: message(s), Class: rule.Class, Since: now})
	if rule.Class != Warning || s.Kind != hardware.XID {
		return
	}
	c.warnings = append(c.warnings, now)
	for now.Sub(c.warnings[0]) > SuspectTime {
		c.warnings = c.warnings[1:]
	}
	if n := len(c.warnings); n >= warningsToFail {
		words := fmt.Sprintf("%d warnings within %d minutes, the last: %s", n, int(SuspectTime.Minutes()), message(s))
		c.open(now, Fault{Code: repeated, Message: words, Class: Failing, Since: now})
	}
}

// open opens a fault, or keeps it open.
func (c *gpuState) open(now time.Time, f Fault) {
	if known := c.faults[f.Code]; known != nil {
		f.Since = known.Since
	}
	c.faults[f.Code] = &fault{Fault: f, last: now, fresh: true}
}

// cure notes a reset after some faults: those that asked for one are over when they do not come again.
func (c *gpuState) cure(now time.Time, before func(*fault) bool) {
	for _, f := range c.faults {
		if f.Class >= NeedsReset && !f.Cured && before(f) {
			f.Cured, f.last = true, now
		}
	}
}

// over tells whether a fault has ended.
func (f *fault) over(now time.Time, quietTime time.Duration) bool {
	switch {
	case f.fresh:
		return false
	case f.Class == Warning:
		return now.Sub(f.last) >= SuspectTime
	default:
		return !f.holds() && now.Sub(f.last) >= quietTime
	}
}

// holds reports whether time alone does not end the fault.
func (f *fault) holds() bool { return f.fresh || f.Class >= NeedsReset && !f.Cured }

// verdict is the state machine.
func (c *gpuState) verdict(now time.Time, quietTime time.Duration) Verdict {
	state := Healthy
	var faults []Fault
	for code, f := range c.faults {
		if f.over(now, quietTime) {
			delete(c.faults, code)
			continue
		}
		faults = append(faults, f.Fault)
		switch {
		case f.Class == Warning:
			if state == Healthy {
				state = Suspect
			}
		case f.holds():
			state = Unhealthy
		case state != Unhealthy:
			state = Recovering
		}
		f.fresh = false
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(-cmp.Compare(a.Class, b.Class), a.Since.Compare(b.Since), cmp.Compare(a.Code, b.Code))
	})
	v := Verdict{State: state, Faults: faults}
	if c.since.IsZero() || c.usable != v.Usable() {
		c.usable, c.since = v.Usable(), now
	}
	v.Since = c.since
	return v
}
