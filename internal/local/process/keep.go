package process

import (
	"context"
	"syscall"
	"time"
)

const (
	firstBackOff = 500 * time.Millisecond
	maxBackOff   = 30 * time.Second
	// steadyAfter is how long a process must run for its failures to be forgotten.
	steadyAfter = 10 * time.Second
)

// Status is how a kept process stands. Exactly one of Running, BackOff > 0 and
// Stopped is set.
type Status struct {
	// Running is the process, since StartedAt.
	Running   *Process
	StartedAt time.Time
	// BackOff is how long the next start waits.
	BackOff time.Duration
	// Stopped: it was asked to stop and has ended.
	Stopped bool
	// Restarts counts the starts after the first.
	Restarts int
	// StartError says why the last start failed.
	StartError error
	// Last is the last run that ended, nil at first.
	Last *Exit
}

// Exit is the end of a run.
type Exit struct {
	Code                  int
	StartedAt, FinishedAt time.Time
}

// Keep runs a process and starts it again when it ends, until ctx ends; then it
// stops the process within the grace. The first restart and one after someone
// killed the process come at once, others ever later. Each change goes to observe.
// program gives the process for the next start, and may fail.
func (r *Registry) Keep(ctx context.Context, grace func() time.Duration, program func(context.Context) (Spec, error), observe func(Status)) {
	var status Status
	backOff := time.Duration(0)
	for {
		process, err := r.next(ctx, program)
		if err != nil {
			backOff = longer(backOff)
			status = Status{BackOff: backOff, StartError: err, Restarts: status.Restarts, Last: status.Last}
		} else {
			status = Status{Running: process, StartedAt: time.Now(), Restarts: status.Restarts, Last: status.Last}
			observe(status)
			select {
			case <-process.Done():
			case <-ctx.Done():
				process.Stop(grace())
			}
			exit := &Exit{Code: process.ExitCode(), StartedAt: status.StartedAt, FinishedAt: time.Now()}
			killed := exit.Code == 128+int(syscall.SIGKILL)
			first := status.Restarts == 0
			if exit.FinishedAt.Sub(exit.StartedAt) > steadyAfter {
				backOff = 0
			}
			status = Status{Restarts: status.Restarts + 1, Last: exit}
			if !killed && !first {
				backOff = longer(backOff)
				status.BackOff = backOff
			}
		}
		if ctx.Err() == nil && status.BackOff > 0 {
			observe(status)
			select {
			case <-time.After(status.BackOff):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			status.Stopped, status.BackOff = true, 0
			observe(status)
			return
		}
	}
}

func (r *Registry) next(ctx context.Context, program func(context.Context) (Spec, error)) (*Process, error) {
	spec, err := program(ctx)
	if err != nil {
		return nil, err
	}
	return r.Start(spec)
}

func longer(backOff time.Duration) time.Duration {
	return min(max(firstBackOff, 2*backOff), maxBackOff)
}
