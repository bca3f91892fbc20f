// Package health decides from a source's signals which cards must not be used.
//
// Each card is in one of four states. A fatal signal makes a card Unhealthy; a
// warning makes it Suspect, and repeated warnings make it Unhealthy. When nothing
// speaks against an Unhealthy card any more it is Recovering, and becomes Healthy
// after a quiet time. A card in the states Healthy and Suspect is used; in the
// others it is not.
//
// The package has no clock: callers say what time it is.
package health

import (
	"fmt"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// State is how far a card can be trusted.
type State string

// States of a card.
const (
	Healthy    State = "Healthy"
	Suspect    State = "Suspect"
	Unhealthy  State = "Unhealthy"
	Recovering State = "Recovering"
)

const (
	// warningsToFail is how many warnings within suspectTime make a card unhealthy.
	warningsToFail = 3
	// suspectTime is how long a warning counts.
	suspectTime = 10 * time.Minute
	// RealQuietTime is the quiet time for real cards.
	RealQuietTime = 5 * time.Minute
)

// Verdict is the health of one card.
type Verdict struct {
	State State
	// Reason says why the card is not Healthy, "" when it is.
	Reason string
	// Since is when the card became usable, or unusable.
	Since time.Time
}

// Usable tells whether work may be put on the card.
func (v Verdict) Usable() bool { return v.State == Healthy || v.State == Suspect }

// Tracker follows the cards of one machine from reading to reading. The zero
// value has seen nothing. It is not safe for concurrent use.
type Tracker struct {
	// QuietTime is how long nothing may speak against an Unhealthy card before it is
	// used again; 0 for a source whose word can be taken.
	QuietTime time.Duration

	cards map[string]*card
}

// card is the history of one card.
type card struct {
	verdict Verdict
	// warnings are the times of recent warnings, oldest first.
	warnings []time.Time
	// against is when something last spoke against the card.
	against time.Time
}

// Restore tells the tracker of a card that an earlier run of the agent had found
// unusable, so that a restart of the agent does not heal it.
func (t *Tracker) Restore(c gpu.Card, reason string, since time.Time) {
	t.card(c).verdict = Verdict{State: Unhealthy, Reason: reason, Since: since}
	t.card(c).against = since
}

// Observe takes a new reading and returns the verdict on each card, by position in
// the machine's cards.
func (t *Tracker) Observe(now time.Time, reading hardware.Reading) []Verdict {
	signals := map[int][]hardware.Signal{}
	for _, s := range reading.Signals {
		signals[s.Card] = append(signals[s.Card], s)
	}
	verdicts := make([]Verdict, len(reading.Machine.Cards))
	present := make(map[string]bool, len(verdicts))
	for i, c := range reading.Machine.Cards {
		verdicts[i] = t.card(c).observe(now, t.QuietTime, c.Unhealthy, signals[c.Index])
		present[key(c)] = true
	}
	for k := range t.cards {
		if !present[k] {
			delete(t.cards, k)
		}
	}
	return verdicts
}

func (t *Tracker) card(c gpu.Card) *card {
	if t.cards == nil {
		t.cards = map[string]*card{}
	}
	k := key(c)
	if t.cards[k] == nil {
		t.cards[k] = &card{}
	}
	return t.cards[k]
}

// key identifies a card across readings. A card that is lost may no longer tell
// its UUID, but keeps its slot.
func key(c gpu.Card) string {
	if c.PCIBusID != "" {
		return c.PCIBusID
	}
	return fmt.Sprint(c.Index)
}

func (c *card) observe(now time.Time, quietTime time.Duration, certain string, signals []hardware.Signal) Verdict {
	fatalReason, warningReason := weigh(signals)
	if certain != "" {
		fatalReason = certain
	}
	if warningReason != "" {
		c.warnings = append(c.warnings, now)
	}
	for len(c.warnings) > 0 && now.Sub(c.warnings[0]) > suspectTime {
		c.warnings = c.warnings[1:]
	}
	if fatalReason == "" && len(c.warnings) >= warningsToFail && warningReason != "" {
		fatalReason = fmt.Sprintf("%d warnings within %v, the last: %s", len(c.warnings), suspectTime, warningReason)
	}
	if fatalReason != "" || warningReason != "" {
		c.against = now
	}
	c.verdict = c.next(now, now.Sub(c.against) >= quietTime, fatalReason, warningReason)
	return c.verdict
}

// next is the state machine.
func (c *card) next(now time.Time, quiet bool, fatalReason, warningReason string) Verdict {
	was := c.verdict
	switch {
	case was.State == "":
		was = Verdict{State: Healthy, Since: now}
		fallthrough
	case was.Usable():
		switch {
		case fatalReason != "":
			return Verdict{State: Unhealthy, Reason: fatalReason, Since: now}
		case warningReason != "":
			return Verdict{State: Suspect, Reason: warningReason, Since: was.Since}
		case len(c.warnings) == 0:
			return Verdict{State: Healthy, Since: was.Since}
		default:
			return was
		}
	case fatalReason != "":
		return Verdict{State: Unhealthy, Reason: fatalReason, Since: was.Since}
	case quiet:
		c.warnings = nil
		return Verdict{State: Healthy, Since: now}
	default:
		return Verdict{State: Recovering, Reason: was.Reason, Since: was.Since}
	}
}

// weigh returns the reasons of the fatal signals and of the warnings, "" for none.
func weigh(signals []hardware.Signal) (fatalReason, warningReason string) {
	for _, s := range signals {
		severity, reason := judge(s)
		switch {
		case severity == fatal && fatalReason == "":
			fatalReason = reason
		case severity == warning && warningReason == "":
			warningReason = reason
		}
	}
	return fatalReason, warningReason
}

func judge(s hardware.Signal) (severity, string) {
	switch s.Kind {
	case hardware.XID:
		severity, meaning := judgeXID(s.Number)
		return severity, fmt.Sprintf("XID %d: %s", s.Number, meaning)
	case hardware.UncorrectableECC:
		return fatal, fmt.Sprintf("%d new uncorrectable memory errors", s.Number)
	case hardware.RowRemapFailed:
		return fatal, "a faulty memory row could not be replaced"
	case hardware.ResetRequired:
		return fatal, "the driver asks for a reset"
	default:
		return warning, string(s.Kind)
	}
}
