package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

// logLines is how much of a failed step's log is shown.
const logLines = 15

// progress shows the steps of a start.
type progress struct {
	w      io.Writer
	ready  bool
	failed *steps.Event
}

func newProgress(w io.Writer) *progress { return &progress{w: w} }

func (p *progress) show(event steps.Event) {
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
