//go:build cgo && linux

package nvml

import (
	"context"
	"encoding/binary"
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

// conditions returns what holds for a card now, and the memory errors since the
// last reading.
func (s *source) conditions(index int, device nvml.Device) []hardware.Signal {
	var signals []hardware.Signal
	if s.lib.has("nvmlDeviceGetRemappedRows") {
		if _, _, _, failed, ret := device.GetRemappedRows(); ret == nvml.SUCCESS && failed {
			signals = append(signals, hardware.Signal{Card: index, Kind: hardware.RowRemapFailed})
		}
	}
	if s.resetRequired(device) {
		signals = append(signals, hardware.Signal{Card: index, Kind: hardware.ResetRequired})
	}
	if s.lib.has("nvmlDeviceGetTotalEccErrors") {
		count, ret := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		if ret == nvml.SUCCESS {
			// The driver counts from its start; errors before the first reading are history.
			if before, ok := s.eccErrors[index]; ok && count > before {
				signals = append(signals, hardware.Signal{Card: index, Kind: hardware.UncorrectableECC, Number: count - before})
			}
			s.eccErrors[index] = count
		}
	}
	return signals
}

// resetRequired asks newer drivers whether they want the card reset or the node rebooted.
func (s *source) resetRequired(device nvml.Device) bool {
	if !s.lib.has("nvmlDeviceGetFieldValues") {
		return false
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if device.GetFieldValues(values) != nvml.SUCCESS || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
		return false
	}
	action := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[0].Value[:4]))
	return action != nvml.GPU_RECOVERY_ACTION_NONE
}

// followEvents collects the cards' critical events until ctx ends.
func (s *source) followEvents(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.collectEvents(ctx); err != nil {
			s.log.Debug("card events are not followed", "error", err, "retry", eventRetry)
		}
		select {
		case <-ctx.Done():
		case <-time.After(eventRetry):
		}
	}
}

// collectEvents registers every card that answers and collects their events until
// ctx ends or something fails.
func (s *source) collectEvents(ctx context.Context) error {
	set, indexes, opened, err := s.registerAll()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := s.collectOne(set, indexes, opened); err != nil {
			s.notify() // one lost card ends the wait for all
			return err
		}
	}
	return nil
}

// registerAll returns an event set with all cards that answer, their indexes, and
// the opening of NVML to which both belong.
func (s *source) registerAll() (set nvml.EventSet, indexes map[nvml.Device]int, opened int, err error) {
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
func (s *source) collectOne(set nvml.EventSet, indexes map[nvml.Device]int, opened int) error {
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
		if index, ok := indexes[event.Device]; ok && event.EventType == nvml.EventTypeXidCriticalError {
			s.report(hardware.Signal{Card: index, Kind: hardware.XID, Number: event.EventData})
		}
		return nil
	case nvml.ERROR_TIMEOUT:
		return nil
	default:
		_ = set.Free() // it is of no use any more, whatever this says
		return fmt.Errorf("wait for events: %w", ret)
	}
}

// register puts all cards that answer into the set and returns their indexes.
func (s *source) register(set nvml.EventSet) map[nvml.Device]int {
	indexes := map[nvml.Device]int{}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return indexes
	}
	for i := range count {
		device, ret := s.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		if ret := device.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret != nvml.SUCCESS {
			s.log.Debug("events of a card are not followed", "card", i, "reason", ret.Error())
			continue
		}
		indexes[device] = i
	}
	return indexes
}

func (s *source) report(signal hardware.Signal) {
	s.mu.Lock()
	s.events = append(s.events, signal)
	s.mu.Unlock()
	s.notify()
}

func (s *source) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // a change is already waiting to be read
	}
}
