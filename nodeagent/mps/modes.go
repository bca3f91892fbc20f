package mps

import (
	"context"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// mode reads the GPU's compute mode, or says that the driver hangs.
func (d *daemon) mode(ctx context.Context) (hardware.ComputeMode, error) {
	return d.modeReads.Do(ctx, d.times.driver, func(context.Context) (hardware.ComputeMode, error) { return d.Modes.ComputeMode(d.uuid) })
}

// setMode sets the GPU's compute mode where it is another, or says that the driver hangs.
func (d *daemon) setMode(ctx context.Context, mode hardware.ComputeMode) error {
	for {
		set, err := d.modeWrites.Do(ctx, d.times.driver, func(context.Context) (hardware.ComputeMode, error) {
			d.modesMu.Lock()
			defer d.modesMu.Unlock()
			now, err := d.Modes.ComputeMode(d.uuid)
			if err == nil && now != mode {
				err = d.Modes.SetComputeMode(d.uuid, mode)
			}
			return mode, err
		})
		if err != nil || set == mode { // else one has ended late that was to set another
			return err
		}
	}
}

// unsettable returns, by UUID, why the compute modes of GPUs may not be set, nil for one whose mode may be. That shows when it is
// set to what it is, once.
func (e *Enforcer) unsettable(uuids []string) map[string]error {
	e.mu.Lock()
	untried := slices.DeleteFunc(slices.Clone(uuids), func(uuid string) bool { return e.settable[uuid] })
	e.mu.Unlock()
	faults := map[string]error{}
	for len(untried) > 0 {
		found, err := e.trials.Do(e.ctx, e.times.driver, func(context.Context) (map[string]error, error) {
			found := map[string]error{}
			for _, uuid := range untried {
				found[uuid] = e.try(uuid)
			}
			return found, nil
		})
		if err != nil {
			for _, uuid := range untried {
				faults[uuid] = err
			}
			return faults
		}
		e.mu.Lock()
		for uuid, fault := range found {
			e.settable[uuid], faults[uuid] = fault == nil, fault
		}
		e.mu.Unlock()
		untried = slices.DeleteFunc(slices.Clone(untried), func(uuid string) bool { _, tried := found[uuid]; return tried }) // one may have ended late
	}
	return faults
}

// try sets the mode of a GPU to what it is.
func (e *Enforcer) try(uuid string) error {
	e.modesMu.Lock()
	defer e.modesMu.Unlock()
	mode, err := e.Modes.ComputeMode(uuid)
	if err != nil {
		return err
	}
	return e.Modes.SetComputeMode(uuid, mode)
}
