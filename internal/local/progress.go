package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

// logLines is how much of a failed step's log is shown.
const logLines = 15

// patience is how long a step may take before it is said that it still runs, and
// again after as long.
const patience = 10 * time.Second

// progress shows the steps of a start.
type progress struct {
	w       io.Writer
	ready   bool
	failed  *steps.Event
	running map[string]time.Time
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, running: map[string]time.Time{}}
}

// follow shows a report until it ends or ctx does.
func (p *progress) follow(ctx context.Context, report io.Reader) error {
	events, ended := make(chan steps.Event), make(chan error, 1)
	go func() {
		ended <- steps.Follow(report, func(event steps.Event) {
			select {
			case events <- event:
			case <-ctx.Done():
			}
		})
	}()
	ticker := time.NewTicker(patience)
	defer ticker.Stop()
	for {
		select {
		case event := <-events:
			p.show(event)
		case now := <-ticker.C:
			p.remind(now)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
}

func (p *progress) show(event steps.Event) {
	delete(p.running, event.Step)
	switch {
	case event.Ready:
		p.ready = true
	case event.Note != "":
		fmt.Fprintf(p.w, "  note: %s\n", event.Note)
	case event.Error != "":
		// Later failures follow from the first.
		if p.failed == nil {
			p.failed = &event
			fmt.Fprintf(p.w, "  %-26s failed after %.1f s\n", event.Step, event.Seconds)
		}
	case event.Done:
		fmt.Fprintf(p.w, "  %-26s %5.1f s\n", event.Step, event.Seconds)
	default:
		p.running[event.Step] = time.Now()
	}
}

// remind says which steps have been running for long.
func (p *progress) remind(now time.Time) {
	for _, step := range slices.Sorted(maps.Keys(p.running)) {
		if took := now.Sub(p.running[step]); took > patience/2 {
			fmt.Fprintf(p.w, "  %-26s still starting after %.0f s\n", step, took.Seconds())
		}
	}
}

// failure is the error of a start that did not come to its end.
func (p *progress) failure(serverLog string) error {
	if p.failed == nil {
		return fmt.Errorf("the server ended while it started; the end of its log (%s):\n%s", serverLog, tail(serverLog))
	}
	if p.failed.Log == "" {
		return fmt.Errorf("%s: %s", p.failed.Step, p.failed.Error)
	}
	return fmt.Errorf("%s: %s\nThe end of its log (%s):\n%s", p.failed.Step, p.failed.Error, p.failed.Log, tail(p.failed.Log))
}

// tail is the end of a log, indented.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-logLines):]
	return "  " + strings.Join(lines, "\n  ")
}
