package runner

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

// tailBytes is how much of a run's output is kept for the pod's status.
const tailBytes = 2048

// output appends what the runs of a container write to a log file, and remembers
// the end of the current and the last run.
type output struct {
	file string

	mu            sync.Mutex
	log           *os.File
	current, last []byte
}

func newOutput(file string) *output { return &output{file: file} }

// begin marks the begin of a run.
func (o *output) begin(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.current = o.current, nil
	o.write(fmt.Appendf(nil, "--- %s start of %s\n", time.Now().Format(time.RFC3339), name))
}

// fail notes that a run cannot begin.
func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(fmt.Appendf(nil, "--- %s cannot start: %v\n", time.Now().Format(time.RFC3339), err))
}

// Write takes output of the running process.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = append(o.current, data...)
	if excess := len(o.current) - tailBytes; excess > 0 {
		o.current = append([]byte(nil), o.current[excess:]...)
	}
	o.write(data)
	return len(data), nil
}

// write writes to the log file, as far as it can: a full disk stops no program.
func (o *output) write(data []byte) {
	if o.log == nil {
		log, err := os.OpenFile(o.file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return
		}
		o.log = log
	}
	_, _ = o.log.Write(data)
}

// close closes the log file; a later write opens it again.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil {
		_ = o.log.Close()
		o.log = nil
	}
}

// tail is the end of what the run that ended last wrote, given whether another one
// has begun.
func (o *output) tail(running bool) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	tail := o.current
	if running {
		tail = o.last
	}
	if len(tail) == tailBytes {
		if _, rest, found := bytes.Cut(tail, []byte("\n")); found {
			tail = rest
		}
	}
	return string(bytes.TrimRight(tail, "\n"))
}
