// Package soaktest measures what a process has in use, for tests that run at length.
package soaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Use is what the process has in use.
type Use struct {
	// Heap is the memory that Go has, Resident all memory, that of C included, in KiB.
	Heap, Resident int
	// Children are processes that it has started and that have not ended, or of which nobody has asked how.
	Goroutines, Descriptors, Children int
}

// Measure returns the least that is in use within some seconds: connections take a moment to end.
func Measure(t *testing.T) Use {
	t.Helper()
	least := measure(t)
	for range 4 {
		time.Sleep(time.Second)
		now := measure(t)
		least = Use{
			Heap: min(least.Heap, now.Heap), Resident: min(least.Resident, now.Resident), Goroutines: min(least.Goroutines, now.Goroutines),
			Descriptors: min(least.Descriptors, now.Descriptors), Children: min(least.Children, now.Children),
		}
	}
	return least
}

func measure(t *testing.T) Use {
	t.Helper()
	for range 3 { // finalizers make garbage of what they free
		runtime.GC()
	}
	debug.FreeOSMemory()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	u := Use{Heap: int(memory.HeapAlloc >> 10), Goroutines: runtime.NumGoroutine(), Descriptors: len(open)}
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, resident, _ := strings.Cut(string(status), "\nVmRSS:")
	_, err = fmt.Sscan(resident, &u.Resident)
	require.NoError(t, err)
	threads, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	for _, thread := range threads {
		children, _ := os.ReadFile(thread) // the thread may have ended
		u.Children += len(strings.Fields(string(children)))
	}
	return u
}

func (u Use) String() string {
	return fmt.Sprintf("%d KiB of heap, %d KiB of memory, %d goroutines, %d descriptors, %d children", u.Heap, u.Resident, u.Goroutines, u.Descriptors, u.Children)
}

// HasNotGrown checks that no more is in use than before, but for some that may come and go. All memory, which Go gives back late, is
// only looked at where some of it is.
func (u Use) HasNotGrown(t *testing.T, before, some Use) {
	t.Helper()
	t.Logf("before: %s", before)
	t.Logf("after:  %s", u)
	assert.LessOrEqual(t, u.Heap, before.Heap+some.Heap, "KiB of the heap")
	if some.Resident > 0 {
		assert.LessOrEqual(t, u.Resident, before.Resident+some.Resident, "KiB of memory")
	}
	assert.LessOrEqual(t, u.Goroutines, before.Goroutines+some.Goroutines, "goroutines")
	assert.LessOrEqual(t, u.Descriptors, before.Descriptors+some.Descriptors, "descriptors")
	assert.LessOrEqual(t, u.Children, before.Children+some.Children, "children")
}
