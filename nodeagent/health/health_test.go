package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(minute float64) time.Time { return start.Add(time.Duration(minute * float64(time.Minute))) }

// step is what is seen of a machine with two GPUs, and what follows for GPU A.
type step struct {
	minute  float64
	marked  string
	signals []hardware.Signal
	state   health.State
	reason  string
	since   float64
}

func event(kind hardware.Kind, number uint64) []hardware.Signal {
	return []hardware.Signal{{GPU: "A", Kind: kind, Number: number}}
}

func machine(marked string) gpu.Machine {
	return gpu.Machine{GPUs: []gpu.GPU{{Index: 0, UUID: "A", Unhealthy: marked}, {Index: 1, UUID: "B"}}}
}

func TestTracker(t *testing.T) {
	const uncontained = "XID 95: uncontained memory error"
	const ecc = "new uncorrectable memory errors"
	contained := event(hardware.XID, 94)
	asked := event(hardware.ResetRequired, 0)
	const wants = "the driver asks for a reset"

	for name, steps := range map[string][]step{
		"a healthy GPU stays healthy": {
			{minute: 0, state: health.Healthy},
			{minute: 9, state: health.Healthy},
		},
		"faults of programs do not count": {
			{minute: 0, signals: event(hardware.XID, 43), state: health.Healthy},
			{minute: 0, signals: event(hardware.XID, 31), state: health.Healthy},
			{minute: 1, signals: event(hardware.XID, 13), state: health.Healthy},
		},
		"an event, then quiet": {
			{minute: 0, state: health.Healthy},
			{minute: 1, signals: event(hardware.UncorrectableECC, 1), state: health.Unhealthy, reason: ecc, since: 1},
			{minute: 2, state: health.Recovering, reason: ecc, since: 1},
			{minute: 5.9, state: health.Recovering, reason: ecc, since: 1},
			{minute: 6, state: health.Healthy, since: 6},
		},
		"a relapse starts the quiet time again": {
			{minute: 0, signals: event(hardware.UncorrectableECC, 1), state: health.Unhealthy, reason: ecc},
			{minute: 4, signals: event(hardware.UncorrectableECC, 2), state: health.Unhealthy, reason: ecc},
			{minute: 8, state: health.Recovering, reason: ecc},
			{minute: 9, state: health.Healthy, since: 9},
		},
		"quiet does not heal what needs a reset": {
			{minute: 0, signals: event(hardware.XID, 95), state: health.Unhealthy, reason: uncontained},
			{minute: 60 * 24, state: health.Unhealthy, reason: uncontained},
			{minute: 60*24 + 1, signals: event(hardware.WasReset, 0), state: health.Recovering, reason: uncontained},
			{minute: 60*24 + 6, state: health.Healthy, since: 60*24 + 6},
		},
		"a reset that did not help": {
			{minute: 0, signals: event(hardware.XID, 95), state: health.Unhealthy, reason: uncontained},
			{minute: 1, signals: event(hardware.WasReset, 0), state: health.Recovering, reason: uncontained},
			{minute: 2, signals: event(hardware.XID, 95), state: health.Unhealthy, reason: uncontained},
			{minute: 60, state: health.Unhealthy, reason: uncontained},
		},
		"an error that may have come after the reset": {
			{minute: 0, state: health.Healthy},
			{minute: 1, signals: append(event(hardware.XID, 95), event(hardware.WasReset, 0)...), state: health.Unhealthy, reason: uncontained, since: 1},
			{minute: 60, state: health.Unhealthy, reason: uncontained, since: 1},
		},
		"a condition holds the GPU for as long as it lasts": {
			{minute: 0, signals: asked, state: health.Unhealthy, reason: wants},
			{minute: 60, signals: asked, state: health.Unhealthy, reason: wants},
			{minute: 61, state: health.Recovering, reason: wants},
			{minute: 65, state: health.Healthy, since: 65},
		},
		"what follows does not hide the cause": {
			{minute: 0, signals: event(hardware.XID, 79), state: health.Unhealthy, reason: "XID 79: the GPU has fallen off the bus"},
			{minute: 1, signals: []hardware.Signal{{GPU: "A", Kind: hardware.Lost, Detail: "GPU is lost"}}, state: health.Unhealthy,
				reason: "XID 79: the GPU has fallen off the bus; GPU is lost"},
		},
		"the worst goes first": {
			{minute: 0, signals: event(hardware.RowRemapPending, 0), state: health.Suspect, reason: "a faulty memory row will be replaced at the next reset"},
			{minute: 1, signals: event(hardware.XID, 48), state: health.Unhealthy, since: 1,
				reason: "XID 48: double-bit ECC error; a faulty memory row will be replaced at the next reset"},
			{minute: 2, signals: event(hardware.RowRemapFailed, 0), state: health.Unhealthy, since: 1,
				reason: "a faulty memory row could not be replaced; XID 48: double-bit ECC error; a faulty memory row will be replaced at the next reset"},
		},
		"one warning makes suspect, and is forgotten": {
			{minute: 1, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error", since: 1},
			{minute: 9, state: health.Suspect, reason: "XID 94: contained memory error", since: 1},
			{minute: 11, state: health.Healthy, since: 1},
		},
		"a lasting warning stays one": {
			{minute: 0, signals: event(hardware.PCIeDegraded, 0), state: health.Suspect, reason: "the PCI Express connection is slower than it could be"},
			{minute: 1, signals: event(hardware.PCIeDegraded, 0), state: health.Suspect, reason: "the PCI Express connection is slower than it could be"},
			{minute: 2, signals: event(hardware.PCIeDegraded, 0), state: health.Suspect, reason: "the PCI Express connection is slower than it could be"},
		},
		"three warnings make unhealthy": {
			{minute: 0, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 1, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 2, signals: contained, state: health.Unhealthy, since: 2,
				reason: "3 warnings within 10 minutes, the last: XID 94: contained memory error; XID 94: contained memory error"},
			{minute: 7, state: health.Suspect, reason: "XID 94: contained memory error", since: 7},
			{minute: 12, state: health.Healthy, since: 7},
		},
		"warnings that are far apart do not": {
			{minute: 0, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 6, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
			{minute: 12, signals: contained, state: health.Suspect, reason: "XID 94: contained memory error"},
		},
		"an unknown number is a warning": {
			{minute: 0, signals: event(hardware.XID, 9999), state: health.Suspect, reason: "XID 9999: see NVIDIA's Xid catalog"},
		},
		"a description file's word": {
			{minute: 0, marked: "broken by hand", state: health.Unhealthy, reason: "broken by hand"},
			{minute: 3, marked: "broken by hand", state: health.Unhealthy, reason: "broken by hand"},
			{minute: 4, state: health.Recovering, reason: "broken by hand"},
			{minute: 8, state: health.Healthy, since: 8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := &health.Tracker{QuietTime: health.RealQuietTime}
			for _, s := range steps {
				tracker.Note(at(s.minute), s.signals)
				verdicts := tracker.Verdicts(at(s.minute), machine(s.marked))
				assert.Equal(t, s.state, verdicts[0].State, "minute %v", s.minute)
				assert.Equal(t, s.reason, verdicts[0].Reason(), "minute %v", s.minute)
				assert.Equal(t, at(s.since), verdicts[0].Since, "minute %v", s.minute)
				assert.Equal(t, health.Healthy, verdicts[1].State, "the other GPU")
				assert.Equal(t, s.state == health.Healthy || s.state == health.Suspect, verdicts[0].Usable())
			}
		})
	}
}

func TestWithoutQuietTimeAGPUIsUsedAgainAtOnce(t *testing.T) {
	var tracker health.Tracker
	assert.False(t, tracker.Verdicts(start, machine("marked"))[0].Usable())
	assert.True(t, tracker.Verdicts(at(1), machine(""))[0].Usable())
}

func TestARestartDoesNotHeal(t *testing.T) {
	for class, healed := range map[health.Class]health.State{
		health.Failing: health.Healthy, health.NeedsReset: health.Unhealthy, health.Broken: health.Unhealthy,
	} {
		t.Run(class.String(), func(t *testing.T) {
			tracker := &health.Tracker{QuietTime: health.RealQuietTime}
			fault := health.Fault{Code: "XID48", Message: "XID 48: double-bit ECC error", Class: class, Since: at(-60)}
			tracker.Restore(start, "A", health.Verdict{State: health.Unhealthy, Since: at(-60), Faults: []health.Fault{fault}})

			verdict := tracker.Verdicts(at(1), machine(""))[0]
			assert.False(t, verdict.Usable())
			assert.Equal(t, []health.Fault{fault}, verdict.Faults)
			assert.Equal(t, at(-60), verdict.Since)
			assert.Equal(t, healed, tracker.Verdicts(at(5), machine(""))[0].State)

			tracker.Rebooted(at(6))
			assert.Equal(t, health.Healthy, tracker.Verdicts(at(11), machine(""))[0].State)
		})
	}
}

// A reset that was seen counts also after the restart, with the whole time that it takes then, and whatever else speaks
// against the GPU meanwhile.
func TestARestartKeepsTheReset(t *testing.T) {
	for name, other := range map[string][]hardware.Signal{"nothing else": nil, "a condition": event(hardware.FabricNotReady, 0)} {
		t.Run(name, func(t *testing.T) {
			first := &health.Tracker{QuietTime: health.RealQuietTime}
			first.Note(start, event(hardware.XID, 79))
			require.Equal(t, health.Unhealthy, first.Verdicts(start, machine(""))[0].State)
			first.Note(at(1), append(event(hardware.WasReset, 0), other...))
			was := first.Verdicts(at(2), machine(""))[0]
			require.True(t, was.Faults[0].Cured)

			second := &health.Tracker{QuietTime: health.RealQuietTime}
			second.Restore(at(3), "A", was)
			assert.Equal(t, health.Recovering, second.Verdicts(at(7), machine(""))[0].State)
			assert.Equal(t, health.Healthy, second.Verdicts(at(8), machine(""))[0].State)
		})
	}
}

// An agent of before [health.Fault.Cured] has cured all of a GPU that is Recovering.
func TestTheResetThatAnEarlierVersionSaw(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	tracker.Restore(start, "A", health.Verdict{State: health.Recovering, Faults: []health.Fault{{Code: "XID79", Class: health.NeedsReset}}})
	assert.Equal(t, health.Healthy, tracker.Verdicts(at(5), machine(""))[0].State)
}

// What a run has seen itself did not happen before the boot during which it runs.
func TestARebootCuresWhatAnEarlierRunSaw(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	tracker.Note(start, event(hardware.XID, 48))
	tracker.Verdicts(start, machine(""))
	earlier := func(code string) health.Fault {
		return health.Fault{Code: code, Class: health.NeedsReset, Since: at(-60)}
	}
	tracker.Restore(at(1), "A", health.Verdict{State: health.Unhealthy, Faults: []health.Fault{earlier("XID48"), earlier("XID79")}})
	tracker.Rebooted(at(1))
	verdict := tracker.Verdicts(at(60), machine(""))[0]
	assert.Equal(t, health.Unhealthy, verdict.State)
	require.Len(t, verdict.Faults, 1)
	assert.Equal(t, "XID48", verdict.Faults[0].Code)
}

// The quiet time is one in which the GPUs are read.
func TestNoFaultEndsWhileNobodyLooks(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	tracker.Note(start, event(hardware.ResetRequired, 1))
	tracker.Verdicts(start, machine(""))
	tracker.Unread(at(60))
	assert.False(t, tracker.Verdicts(at(60), machine(""))[0].Usable())
	assert.False(t, tracker.Verdicts(at(64), machine(""))[0].Usable())
	assert.True(t, tracker.Verdicts(at(65), machine(""))[0].Usable())
}

func TestAGPUThatWentAwayIsForgotten(t *testing.T) {
	tracker := &health.Tracker{QuietTime: health.RealQuietTime}
	tracker.Verdicts(start, machine("broken"))
	tracker.Verdicts(start, gpu.Machine{})
	assert.Equal(t, health.Healthy, tracker.Verdicts(start, machine(""))[0].State)
}
