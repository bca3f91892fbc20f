package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// stepError says which step failed, why, and where its log is.
type stepError struct {
	step string
	log  string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("%s: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// tailLines is how much of a failed step's log is shown.
const tailLines = 25

func (e *stepError) print(w io.Writer) {
	fmt.Fprintf(w, "\nFAILED  %s: %v\n", e.step, e.err)
	if raw, err := os.ReadFile(e.log); err == nil {
		lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
		if len(lines) > tailLines {
			lines = lines[len(lines)-tailLines:]
		}
		for _, line := range lines {
			fmt.Fprintln(w, "   |", line)
		}
	}
	fmt.Fprintf(w, "The whole log: %s\n", e.log)
}

// heartbeat is how often a running step says that it still runs.
const heartbeat = 15 * time.Second

// step runs a command with its output in a log file, and tells what it does,
// that it still runs, and how long it took. A hint says why it may take long.
func (d demo) step(ctx context.Context, name, hint string, cmd *exec.Cmd) error {
	_, err := d.stepOutput(ctx, name, hint, cmd)
	return err
}

// stepOutput is step, and returns what the command wrote to standard output.
func (d demo) stepOutput(ctx context.Context, name, hint string, cmd *exec.Cmd) ([]byte, error) {
	logPath := filepath.Join(d.log, strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("create log of step %q: %w", name, err)
	}
	defer log.Close()
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(log, &stdout), log

	if hint != "" {
		hint = " (" + hint + ")"
	}
	fmt.Fprintf(d.out, "==> %s%s\n", name, hint)
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, &stepError{step: name, log: logPath, err: err}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var said string
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, &stepError{step: name, log: logPath, err: err}
			}
			fmt.Fprintf(d.out, "    done in %s\n", round(time.Since(start)))
			return stdout.Bytes(), nil
		case <-tick.C:
			news := lastLine(logPath)
			if news == said { // a compiler is quiet: what it printed last is not what it does
				news = ""
			} else {
				said = news
			}
			fmt.Fprintf(d.out, "    still at it after %s%s\n", round(time.Since(start)), news)
		}
	}
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// lastLine returns the last line of a log as ": line", "" when there is none.
func lastLine(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	const width = 110
	if len(last) > width {
		last = last[:width] + "…"
	}
	return ": " + last
}
