//go:build cgo && linux

package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

const (
	// eventWaitMillis is how long one wait for events lasts, and so how long it
	// takes to stop.
	eventWaitMillis = 500
	// eventRetry is how long to wait after events could not be followed twice in a row, and how long a
	// wait for events may take before it counts as one that hangs.
	eventRetry = 10 * time.Second
)

// listener has the GPUs whose events are followed in one event set.
type listener struct {
	set nvml.EventSet
	// opened is the opening of NVML to which the set and the handles belong.
	opened int
	// ids are the identities of registered handles. Handles change when the driver numbers the GPUs again;
	// identities do not.
	ids map[nvml.Device]string
	// refused are the GPUs whose events the driver does not report.
	refused map[string]bool
}

// followEvents collects the GPUs' critical events until ctx ends. One lost GPU ends the wait for all: that is
// taken up again at once.
func (s *source) followEvents(ctx context.Context) {
	for ctx.Err() == nil {
		followed, err := s.collectEvents(ctx)
		if err == nil {
			continue // ctx has ended
		}
		if s.setBlind(err.Error()) {
			s.log.Warn("GPU events are not followed: XIDs are missed meanwhile", "error", err)
			s.notify()
		}
		if followed {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(eventRetry):
		}
	}
}

// collectEvents registers every GPU that answers, and those that do so later, and collects their events until
// ctx ends or something fails; followed means that it did for a while.
func (s *source) collectEvents(ctx context.Context) (followed bool, err error) {
	l, err := s.listen()
	if err != nil {
		return false, err
	}
	for ctx.Err() == nil {
		if err := s.collectOne(l); err != nil {
			return followed, err
		}
		followed = true
	}
	return followed, nil
}

// listen registers all GPUs that answer in an event set.
func (s *source) listen() (*listener, error) {
	release, err := s.use()
	if err != nil {
		return nil, err
	}
	defer release()
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree"} {
		if !s.lib.has(symbol) {
			return nil, fmt.Errorf("this driver has no %s", symbol)
		}
	}
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("create an event set: %w", ret)
	}
	l := &listener{set: set, opened: s.lib.opened, ids: map[nvml.Device]string{}, refused: map[string]bool{}}
	s.forgetFollowed()
	if !s.register(l) {
		_ = set.Free() // nothing is registered in it
		return nil, errors.New("the driver reports events of no GPU")
	}
	if s.setBlind("") {
		s.log.Info("GPU events are followed", "gpus", len(l.ids))
	}
	return l, nil
}

// collectOne waits a little for one event, after it has registered GPUs that answer and are not followed.
func (s *source) collectOne(l *listener) error {
	release, err := s.use()
	if err != nil {
		return err
	}
	defer release()
	if s.lib.opened != l.opened {
		return errors.New("the driver was restarted")
	}
	if s.takeUnheard() && s.register(l) {
		s.notify()
	}
	event, ret := l.set.Wait(eventWaitMillis)
	switch ret {
	case nvml.SUCCESS:
		if id, ok := l.ids[event.Device]; ok && event.EventType == nvml.EventTypeXidCriticalError {
			s.report(hardware.Signal{GPU: id, Kind: hardware.XID, Number: event.EventData})
		}
		return nil
	case nvml.ERROR_TIMEOUT:
		return nil
	default:
		_ = l.set.Free() // it is of no use any more, whatever this says
		return fmt.Errorf("wait for events: %w", ret)
	}
}

// register puts the GPUs that answer, and are not followed, into the set, and tells whether there were any.
func (s *source) register(l *listener) bool {
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return false
	}
	var registered []string
	for i := range count {
		device, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		entry, err := identify(i, device)
		if _, ret := device.GetMemoryInfo(); err != nil || ret != nvml.SUCCESS || s.follows(entry.UUID) {
			continue // a lost GPU may know its name, and would end the wait for all
		}
		if ret := device.RegisterEvents(nvml.EventTypeXidCriticalError, l.set); ret != nvml.SUCCESS {
			if !l.refused[entry.UUID] {
				s.log.Warn("events of a GPU are not followed", "gpu", entry.UUID, "reason", ret.Error())
			}
			l.refused[entry.UUID] = true
			continue
		}
		l.ids[device] = entry.UUID
		registered = append(registered, entry.UUID)
	}
	s.follow(registered)
	return len(registered) > 0
}

// use opens NVML for what may hang, and notes since when it is used; release notes that it has ended.
func (s *source) use() (release func(), err error) {
	s.setWaiting(time.Now())
	done, err := s.lib.use()
	if err != nil {
		s.setWaiting(time.Time{})
		return nil, err
	}
	return func() {
		done()
		s.setWaiting(time.Time{})
	}, nil
}

func (s *source) setWaiting(since time.Time) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	s.waiting = since
}

// forgetFollowed begins with a set of events that has no GPU yet.
func (s *source) forgetFollowed() {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	s.followed = nil
}

// follow notes GPUs that are in the set now.
func (s *source) follow(ids []string) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.followed == nil {
		s.followed = map[string]bool{}
	}
	for _, id := range ids {
		s.followed[id] = true
	}
}

func (s *source) follows(id string) bool {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	return s.followed[id]
}

// takeUnheard tells, once for each reading, whether a GPU has answered there that is not followed.
func (s *source) takeUnheard() bool {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	unheard := s.unheard
	s.unheard = false
	return unheard
}

// blindness says why not all events of the GPUs are followed that answer in a reading, "" when they are. One that does
// not answer is registered again when it does: it may have been reset.
func (s *source) blindness(answering []string) string {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	switch {
	case s.blind != "":
		return s.blind
	case !s.waiting.IsZero() && time.Since(s.waiting) > eventRetry:
		return "the driver has not ended a wait for events since " + s.waiting.UTC().Format(time.RFC3339)
	case s.followed == nil:
		return ""
	}
	maps.DeleteFunc(s.followed, func(id string, _ bool) bool { return !slices.Contains(answering, id) })
	var unheard []string
	for _, id := range answering {
		if !s.followed[id] {
			unheard = append(unheard, id)
		}
	}
	if s.unheard = len(unheard) > 0; s.unheard {
		return "events are not followed of " + strings.Join(unheard, ", ")
	}
	return ""
}

// Events returns the events since the last call.
func (s *source) Events() []hardware.Signal {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *source) report(signal hardware.Signal) {
	s.eventsMu.Lock()
	s.events = append(s.events, signal)
	s.eventsMu.Unlock()
	s.notify()
}

// setBlind notes why events are not followed, "" for that they are, and tells whether
// that is new.
func (s *source) setBlind(why string) bool {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	changed := s.blind != why
	s.blind = why
	return changed
}

func (s *source) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // a change is already waiting to be read
	}
}
