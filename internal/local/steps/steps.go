// Package steps reports a start step by step from the process that starts to the
// one that waits for it and shows it.
package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Event is one line of the report.
type Event struct {
	// Step names the step; "" for a note and for the end.
	Step string `json:"step,omitempty"`
	// Done means that the step ended, after Seconds.
	Done    bool    `json:"done,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Error says why the step failed; Log is the file that may tell more.
	Error string `json:"error,omitempty"`
	Log   string `json:"log,omitempty"`
	// Note is for the person who waits.
	Note string `json:"note,omitempty"`
	// Ready ends the report of a start that succeeded.
	Ready bool `json:"ready,omitempty"`
}

// Recorder writes events.
type Recorder struct {
	mu sync.Mutex
	w  io.WriteCloser
}

// NewRecorder returns a recorder that writes to w, one JSON object a line.
func NewRecorder(w io.WriteCloser) *Recorder { return &Recorder{w: w} }

// Do runs a step and reports its begin and end. The error names the step.
func (r *Recorder) Do(step, log string, run func() error) error {
	begin := time.Now()
	r.emit(Event{Step: step})
	err := run()
	end := Event{Step: step, Done: true, Seconds: time.Since(begin).Seconds()}
	if err != nil {
		end.Error, end.Log = err.Error(), log
		err = fmt.Errorf("%s: %w", step, err)
	}
	r.emit(end)
	return err
}

// Note reports something worth knowing.
func (r *Recorder) Note(format string, args ...any) {
	r.emit(Event{Note: fmt.Sprintf(format, args...)})
}

// Ready reports that all is up, and ends the report.
func (r *Recorder) Ready() {
	r.emit(Event{Ready: true})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w != nil {
		r.w.Close()
		r.w = nil
	}
}

// emit drops the event when nobody listens any more.
func (r *Recorder) emit(event Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		return
	}
	if err := json.NewEncoder(r.w).Encode(event); err != nil {
		r.w = nil
	}
}

// Follow reads events until the writer's end is closed, and gives each to show.
func Follow(r io.Reader, show func(Event)) error {
	decoder := json.NewDecoder(r)
	for {
		var event Event
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the report of the start: %w", err)
		}
		show(event)
	}
}
