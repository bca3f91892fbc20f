package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/bench/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// conditions are those under which a figure was measured.
type conditions struct {
	// Commit is what our scheduler was built from, with a "+" behind it when files were changed.
	Commit string `json:"commit"`
	// Load is the machine's load average over a minute when the run began. The run
	// before is in it.
	Load float64 `json:"load"`
	// OtherCores are the cores that programs outside of the run kept busy meanwhile.
	OtherCores float64 `json:"otherCores"`
}

// under makes a run, which ends all processes that it starts, and returns its conditions.
func under(bin string, run func() error) (conditions, error) {
	var c conditions
	var err error
	if c.Commit, err = commit(filepath.Join(bin, contract.SchedulerName)); err != nil {
		return c, err
	}
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return c, err
	}
	if _, err := fmt.Sscan(string(text), &c.Load); err != nil {
		return c, err
	}
	start := time.Now()
	before, err := others()
	if err != nil {
		return c, err
	}
	if err := run(); err != nil {
		return c, err
	}
	after, err := others()
	c.OtherCores = max(0, float64(after-before)/float64(time.Since(start)))
	return c, err
}

// commit reads what a program was built from.
func commit(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("%w (make -C bench/schedulers programs builds it)", err)
	}
	var revision, changed string
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				changed = "+"
			}
		}
	}
	return revision[:min(len(revision), 12)] + changed, nil
}

// others returns the CPU time that the machine has spent on programs other than this
// one and those of its children that have ended.
func others() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var busy time.Duration
	// cpu user nice system ...
	for _, field := range strings.Fields(string(text))[1:4] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		busy += time.Duration(ticks) * process.Tick
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			return 0, err
		}
		busy -= time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return busy, nil
}

// pin moves this program to cores ("1", "0-1"). Processes that it starts from then on
// run there too.
func pin(cores string) error {
	out, err := exec.Command("taskset", "--all-tasks", "--cpu-list", "--pid", cores, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("pin to cores %s: %w", cores, err), errors.New(string(out)))
	}
	return nil
}
