//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// library is NVML as far as this driver has it.
//
// go-nvml binds lazily: a call of a function that the loaded library lacks, or
// after the library was closed, ends the process. So every call is made between
// use and its release, and everything that is not in every driver is asked for
// with has before it is called.
type library struct {
	nvml.Interface

	// mu is held for reading while NVML is used, and for writing while it is
	// opened or closed.
	mu sync.RWMutex
	// opened counts how often NVML was opened; ready means that it is open now.
	opened int
	ready  bool
	// reloading means that the driver was not loaded when NVML was asked last.
	reloading bool

	symbolsMu sync.Mutex
	// symbols maps the names asked for to whether the library exports them.
	symbols map[string]bool
}

func newLibrary(options ...nvml.LibraryOption) *library {
	return &library{Interface: nvml.New(options...), symbols: map[string]bool{}}
}

// use opens NVML unless it is open, and keeps it open until release is called. It
// may succeed after a failure, for example when the driver is loaded later.
func (l *library) use() (release func(), err error) {
	for {
		l.mu.RLock()
		if l.ready {
			return l.mu.RUnlock, nil
		}
		l.mu.RUnlock()
		if err := l.open(); err != nil {
			return nil, err
		}
	}
}

func (l *library) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready {
		return nil
	}
	switch ret := l.Init(); ret {
	case nvml.SUCCESS:
		l.ready = true
		l.opened++
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errors.New("libnvidia-ml.so.1 was not found: install the NVIDIA driver, and give the container NVIDIA_DRIVER_CAPABILITIES=utility")
	default:
		l.reloading = l.reloading || ret == nvml.ERROR_DRIVER_NOT_LOADED
		return fmt.Errorf("initialise NVML (is the NVIDIA driver loaded?): %w", ret)
	}
}

// close shuts NVML down once nobody uses it, because of an error, so that the next use
// opens it afresh.
func (l *library) close(cause nvml.Return) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reloading = l.reloading || cause == nvml.ERROR_DRIVER_NOT_LOADED
	if l.ready {
		_ = l.Shutdown() // nothing to shut down when the driver is gone
		l.ready = false
	}
}

// reloaded tells, once, whether the driver was loaded again: it was not loaded, and is.
func (l *library) reloaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.reloading && l.ready
	if was {
		l.reloading = false
	}
	return was
}

// has tells whether the library exports a function.
func (l *library) has(symbol string) bool {
	l.symbolsMu.Lock()
	defer l.symbolsMu.Unlock()
	known, ok := l.symbols[symbol]
	if !ok {
		known = l.Extensions().LookupSymbol(symbol) == nil
		l.symbols[symbol] = known
	}
	return known
}

// driverIsGone reports whether NVML must be opened again before it can answer.
func driverIsGone(ret nvml.Return) bool {
	return ret == nvml.ERROR_UNINITIALIZED || ret == nvml.ERROR_DRIVER_NOT_LOADED || ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH
}
