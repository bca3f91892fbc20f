package topology

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/roster"
)

// observer judges the hardware of one node. It asks nobody but the source.
type observer struct {
	node    string
	source  hardware.Source
	metrics *metrics.Metrics
	log     *slog.Logger
	now     func() time.Time

	tracker health.Tracker
	roster  roster.Roster
	// raw is the last reading as the source gave it, nil before the first.
	raw *hardware.Reading
	// whole is the last reading that can be used, completed by the roster.
	whole    hardware.Reading
	verdicts []health.Verdict
	// readErr says why the hardware cannot be read now, and err why it cannot be read or
	// used; both are nil while it can.
	readErr, err error
	// errorsBefore are the memory errors by GPU that an earlier run in the same boot has seen, of GPUs that have told theirs
	// to nobody since.
	errorsBefore map[string]int64
	// logged are the verdicts by GPU, as they were logged last.
	logged map[string]health.Verdict
}

func newObserver(a *Agent, node string, source hardware.Source) *observer {
	return &observer{
		node: node, source: source, metrics: a.Metrics, log: a.Log.With("node", node), now: a.Now,
		tracker: health.Tracker{QuietTime: a.QuietTime},
	}
}

// look takes in what the hardware says.
func (o *observer) look(ctx context.Context) {
	o.events()
	reading, err := o.source.Read(ctx)
	if ctx.Err() != nil {
		return
	}
	o.events() // those that came while it was read
	if err != nil && o.readErr == nil {
		o.log.Error("the GPUs cannot be read", "error", err)
	}
	if o.readErr = err; err == nil {
		o.raw = &reading
		o.metrics.Signalled(o.node, reading.Signals)
	}
	o.judge()
}

// events takes in what the GPUs have reported.
func (o *observer) events() {
	events := o.source.Events()
	o.metrics.Signalled(o.node, events)
	for _, e := range events {
		o.log.Info("a GPU reports", "gpu", e.GPU, "code", health.Code(e), "class", health.RuleOf(e).Class.String())
	}
	o.tracker.Note(o.now(), events)
}

// judge makes verdicts of all that is known now.
func (o *observer) judge() {
	now := o.now()
	o.err = o.readErr
	if o.raw != nil && o.readErr == nil {
		o.err = o.use(now, o.roster.Complete(*o.raw))
		conditions := *o.raw
		conditions.Signals = slices.DeleteFunc(slices.Clone(conditions.Signals), func(s hardware.Signal) bool { return s.Kind.Event() })
		o.raw = &conditions // which may be judged again
	}
	if o.err != nil {
		o.tracker.Unread(now)
	}
	if o.verdicts != nil || o.err == nil {
		o.verdicts = o.tracker.Verdicts(now, o.whole.Machine)
	}
	o.metrics.Seen(o.node, o.whole, o.verdicts, o.err == nil)
	o.logChanges()
}

// use takes a completed reading over, unless it contradicts itself.
func (o *observer) use(now time.Time, whole hardware.Reading) error {
	if err := whole.Machine.Validate(); err != nil {
		return fmt.Errorf("what the driver says cannot be used: %w", err)
	}
	o.whole = whole
	o.tracker.Note(now, append(o.errorsSince(whole), whole.Signals...))
	for i, detail := range whole.GPUs {
		if detail.NoAction {
			o.tracker.NotAsked(now, hardware.ID(whole.Machine.GPUs[i]))
		}
	}
	return nil
}

// errorsSince are the memory errors that have come between an earlier run and this one, once.
func (o *observer) errorsSince(whole hardware.Reading) []hardware.Signal {
	var signals []hardware.Signal
	for i, detail := range whole.GPUs {
		id := hardware.ID(whole.Machine.GPUs[i])
		before, known := o.errorsBefore[id]
		if !known || detail.UncorrectableErrors == nil {
			continue
		}
		delete(o.errorsBefore, id)
		if now := *detail.UncorrectableErrors; now > before {
			signals = append(signals, hardware.MemoryErrors(id, uint64(now-before)))
		}
	}
	o.metrics.Signalled(o.node, signals)
	return signals
}

// logChanges logs GPUs of which the state or the reason has changed; since when is not worth a line.
func (o *observer) logChanges() {
	before := o.logged
	o.logged = make(map[string]health.Verdict, len(o.verdicts))
	for i, verdict := range o.verdicts {
		device := o.whole.Machine.GPUs[i]
		was, known := before[hardware.ID(device)]
		o.logged[hardware.ID(device)] = verdict
		if was.State == verdict.State && was.Reason() == verdict.Reason() || !known && verdict.State == health.Healthy {
			continue
		}
		level := slog.LevelWarn
		if verdict.State == health.Healthy {
			level = slog.LevelInfo
		}
		o.log.Log(context.Background(), level, "health of a GPU", "gpu", device.Index, "uuid", device.UUID, "was", was.State, "is", verdict.State, "reason", verdict.Reason())
	}
}

// restore takes over what an earlier run has published, and judges again; boot is the one of the machine now, "" when unknown.
func (o *observer) restore(status contract.GPUNodeStatus, boot string) {
	now := o.now()
	var entries []roster.Entry
	o.errorsBefore = map[string]int64{}
	for _, info := range status.GPUs {
		device := gpu.GPU{
			Index: info.Index, UUID: info.UUID, MemoryMiB: info.MemoryMiB,
			NUMANode: info.NUMANode, CPUAffinity: info.CPUAffinity, PCIBusID: info.PCIBusID,
		}
		entries = append(entries, roster.Entry{GPU: device, NVLinks: info.MaxNVLinks})
		was := health.Verdict{State: health.State(info.State), Faults: faultsOf(info)}
		if info.Since != nil {
			was.Since = info.Since.Time
		}
		if was.State == "" { // a simulated GPU
			was.State = map[bool]health.State{true: health.Healthy, false: health.Unhealthy}[info.Health == contract.Healthy]
		}
		o.tracker.Restore(now, hardware.ID(device), was)
		if info.UncorrectableErrors != nil && status.BootID == boot {
			o.errorsBefore[hardware.ID(device)] = *info.UncorrectableErrors
		}
	}
	o.roster.Restore(entries)
	if another(status.BootID, boot) {
		o.log.Info("the machine was rebooted since an earlier agent ran")
		o.tracker.Rebooted(now)
	}
	o.judge()
}

// another tells whether two boots that are known are not the same.
func another(boot, than string) bool { return boot != "" && than != "" && boot != than }

// forget starts again with what the source says.
func (o *observer) forget() {
	o.tracker = health.Tracker{QuietTime: o.tracker.QuietTime}
	o.roster = roster.Roster{}
	o.errorsBefore = nil
	o.judge()
}

// faultsOf reads the published faults of a GPU; of an earlier version's only the reason.
func faultsOf(info contract.GPUInfo) []health.Fault {
	var faults []health.Fault
	for _, f := range info.Faults {
		faults = append(faults, health.Fault{Code: f.Code, Message: f.Message, Class: health.ClassOf(f.Class), Since: f.Since.Time, Cured: f.Cured})
	}
	if len(faults) == 0 && info.Health == contract.Unhealthy {
		since := metav1.Time{}
		if info.Since != nil {
			since = *info.Since
		}
		faults = append(faults, health.Fault{Code: string(hardware.Marked), Message: info.Reason, Class: health.Failing, Since: since.Time})
	}
	return faults
}
