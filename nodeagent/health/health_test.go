package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

// step is one reading of a machine with two cards, and what follows for card 0.
type step struct {
	minute  float64
	certain string
	signals []hardware.Signal
	state   health.State
	reason  string
	since   float64
}

func event(kind hardware.Kind, number uint64) []hardware.Signal {
	return []hardware.Signal{{Card: 0, Kind: kind, Number: number}}
}

func TestTracker(t *testing.T) {
	const lost = "the card has fallen off the bus"
	uncontained := event(hardware.XID, 95)
	contained := event(hardware.XID, 94)
	reset := event(hardware.ResetRequired, 0)

	for name, steps := range map[string][]step{
		"a healthy card stays healthy": {
			{minute: 0, state: health.Healthy},
			{minute: 9, state: health.Healthy},
		},
		"faults of programs do not count": {
			{minute: 0, signals: event(hardware.XID, 43), state: health.Healthy},
			{minute: 0, signals: event(hardware.XID, 31), state: health.Healthy},
			{minute: 1, signals: event(hardware.XID, 13), state: health.Healthy},
		},
		"a fatal event, then quiet": {
			{minute: 0, state: health.Healthy},
			{minute: 1, signals: uncontained, state: health.Unhealthy, reason: "XID 95: uncontained memory error", since: 1},
			{minute: 2, state: health.Recovering, reason: "XID 95: uncontained memory error", since: 1},
			{minute: 5.9, state: health.Recovering, reason: "XID 95: uncontained memory error", since: 1},
			{minute: 6, state: health.Healthy, since: 6},
		},
		"a relapse starts the quiet time again": {
			{minute: 0, signals: uncontained, state: health.Unhealthy, reason: "XID 95: uncontained memory error"},
			{minute: 4, signals: event(hardware.UncorrectableECC, 2), state: health.Unhealthy, reason: "2 new uncorrectable memory errors"},
			{minute: 8, state: health.Recovering, reason: "2 new uncorrectable memory errors"},
			{minute: 9, state: health.Healthy, since: 9},
		},
		"a condition holds the card for as long as it lasts": {
			{minute: 0, signals: reset, state: health.Unhealthy, reason: "the driver asks for a reset"},
			{minute: 60, signals: reset, state: health.Unhealthy, reason: "the driver asks for a reset"},
			{minute: 61, state: health.Recovering, reason: "the driver asks for a reset"},
			{minute: 65, state: health.Healthy, since: 65},
		},
		"one warning makes suspect, and is forgotten": {
			{minute: 1, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error", since: 1},
			{minute: 9, state: health.Suspect, reason: "XID 94: contained memory error", since: 1},
			{minute: 12, state: health.Healthy, since: 1},
		},
		"three warnings make unhealthy": {
			{minute: 0, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 1, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 2, signals: contained, state: health.Unhealthy, reason: "3 warnings within 10m0s, the last: XID 94: contained memory error", since: 2},
			{minute: 7, state: health.Healthy, since: 7},
		},
		"warnings that are far apart do not": {
			{minute: 0, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 6, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 12, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
		},
		"an unknown number is a warning": {
			{minute: 0, signals: event(hardware.XID, 9999), state: health.Suspect, reason: "XID 9999: see NVIDIA's Xid catalog"},
		},
		"what the source is certain of outweighs signals": {
			{minute: 0, certain: lost, signals: contained, state: health.Unhealthy, reason: lost},
			{minute: 3, certain: lost, state: health.Unhealthy, reason: lost},
			{minute: 4, state: health.Recovering, reason: lost},
			{minute: 8, state: health.Healthy, since: 8},
		},
		"a memory row that cannot be replaced": {
			{minute: 0, signals: event(hardware.RowRemapFailed, 0), state: health.Unhealthy, reason: "a faulty memory row could not be replaced"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			at := func(minute float64) time.Time { return start.Add(time.Duration(minute * float64(time.Minute))) }
			tracker := &health.Tracker{QuietTime: health.RealQuietTime}
			for _, s := range steps {
				machine := gpu.Machine{Cards: []gpu.Card{{Index: 0, Unhealthy: s.certain}, {Index: 1}}}
				verdicts := tracker.Observe(at(s.minute), hardware.Reading{Machine: machine, Signals: s.signals})
				assert.Equal(t, health.Verdict{State: s.state, Reason: s.reason, Since: at(s.since)}, verdicts[0], "minute %v", s.minute)
				assert.Equal(t, health.Healthy, verdicts[1].State, "the other card")
				assert.Equal(t, s.state == health.Healthy || s.state == health.Suspect, verdicts[0].Usable())
			}
		})
	}
}

func TestWithoutQuietTimeACardIsUsedAgainAtOnce(t *testing.T) {
	var tracker health.Tracker
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	broken := gpu.Machine{Cards: []gpu.Card{{Index: 4, Unhealthy: "marked"}}}
	fine := gpu.Machine{Cards: []gpu.Card{{Index: 4}}}

	assert.False(t, tracker.Observe(now, hardware.Reading{Machine: broken})[0].Usable())
	assert.True(t, tracker.Observe(now.Add(time.Second), hardware.Reading{Machine: fine})[0].Usable())
}

func TestARestartDoesNotHeal(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	card := gpu.Card{Index: 2, PCIBusID: "0000:0A:00.0"}
	before := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	tracker.Restore(card, "XID 95: uncontained memory error", before)

	reading := hardware.Reading{Machine: gpu.Machine{Cards: []gpu.Card{card}}}
	verdict := tracker.Observe(before.Add(time.Minute), reading)[0]
	assert.Equal(t, health.Verdict{State: health.Recovering, Reason: "XID 95: uncontained memory error", Since: before}, verdict)
	assert.Equal(t, health.Healthy, tracker.Observe(before.Add(6*time.Minute), reading)[0].State)
}

func TestACardThatWentAwayIsForgotten(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	broken := hardware.Reading{Machine: gpu.Machine{Cards: []gpu.Card{{Index: 0, Unhealthy: "lost"}}}}
	tracker.Observe(now, broken)
	tracker.Observe(now, hardware.Reading{})

	replaced := hardware.Reading{Machine: gpu.Machine{Cards: []gpu.Card{{Index: 0}}}}
	assert.Equal(t, health.Healthy, tracker.Observe(now, replaced)[0].State)
}
