//go:build cgo && linux

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

const (
	// eventWaitMillis is how long one wait for events lasts, and so how long it
	// takes to stop.
	eventWaitMillis = 500
	// eventRetry is how long to wait after events could not be followed.
	eventRetry = 10 * time.Second
)

// followEvents collects the GPUs' critical events until ctx ends.
func (s *source) followEvents(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.collectEvents(ctx); err != nil && s.setBlind(err.Error()) {
			s.log.Warn("GPU events are not followed: XIDs are missed meanwhile", "error", err, "retry", eventRetry)
			s.notify() // one lost GPU ends the wait for all
		}
		select {
		case <-ctx.Done():
		case <-time.After(eventRetry):
		}
	}
}

// collectEvents registers every GPU that answers and collects their events until
// ctx ends or something fails.
func (s *source) collectEvents(ctx context.Context) error {
	set, ids, opened, err := s.registerAll()
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		_ = set.Free() // nothing is registered in it
		return errors.New("the driver reports events of no GPU")
	}
	if s.setBlind("") {
		s.log.Info("GPU events are followed", "gpus", len(ids))
	}
	for ctx.Err() == nil {
		if err := s.collectOne(set, ids, opened); err != nil {
			return err
		}
	}
	return nil
}

// registerAll returns an event set with all GPUs that answer, their identities, and
// the opening of NVML to which both belong.
func (s *source) registerAll() (set nvml.EventSet, ids map[nvml.Device]string, opened int, err error) {
	release, err := s.lib.use()
	if err != nil {
		return nil, nil, 0, err
	}
	defer release()
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlEventSetFree"} {
		if !s.lib.has(symbol) {
			return nil, nil, 0, fmt.Errorf("this driver has no %s", symbol)
		}
	}
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil, 0, fmt.Errorf("create an event set: %w", ret)
	}
	return set, s.register(set), s.lib.opened, nil
}

// collectOne waits a little for one event.
func (s *source) collectOne(set nvml.EventSet, ids map[nvml.Device]string, opened int) error {
	release, err := s.lib.use()
	if err != nil {
		return err
	}
	defer release()
	if s.lib.opened != opened {
		return errors.New("the driver was restarted")
	}
	event, ret := set.Wait(eventWaitMillis)
	switch ret {
	case nvml.SUCCESS:
		if id, ok := ids[event.Device]; ok && event.EventType == nvml.EventTypeXidCriticalError {
			s.report(hardware.Signal{GPU: id, Kind: hardware.XID, Number: event.EventData})
		}
		return nil
	case nvml.ERROR_TIMEOUT:
		return nil
	default:
		_ = set.Free() // it is of no use any more, whatever this says
		return fmt.Errorf("wait for events: %w", ret)
	}
}

// register puts all GPUs that answer into the set and returns their identities.
// Handles change when the driver numbers the GPUs again; identities do not.
func (s *source) register(set nvml.EventSet) map[nvml.Device]string {
	ids := map[nvml.Device]string{}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return ids
	}
	for i := range count {
		device, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		entry, _ := identify(i, device)
		if ret := device.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			s.log.Warn("events of a GPU are not followed", "gpu", hardware.ID(entry), "reason", ret.Error())
			continue
		}
		ids[device] = hardware.ID(entry)
	}
	return ids
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
