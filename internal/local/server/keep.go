package server

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// keep keeps a program running until the platform stops, with a log of its name. The channel tells
// when it ends again and again.
func (s *server) keep(grace time.Duration, spec process.Spec) (<-chan *process.Exit, error) {
	log, err := os.OpenFile(s.Dir.Log(spec.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	spec.Output = log
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	s.onStop(func(context.Context) {
		cancel()
		<-stopped
	})
	exits := make(chan *process.Exit, 1)
	go func() {
		defer close(stopped)
		s.processes.Keep(ctx,
			func() time.Duration { return grace },
			func(context.Context) (process.Spec, error) { return spec, nil },
			func(status process.Status) {
				if status.BackOff == 0 || status.Last == nil {
					return
				}
				klog.Errorf("%s exited with code %d; it starts again in %s", spec.Name, status.Last.Code, status.BackOff)
				select {
				case exits <- status.Last:
				default:
				}
			})
	}()
	return exits, nil
}

// until waits until a program that is kept running has done something, or ends again and again.
func until(ctx context.Context, program string, exits <-chan *process.Exit, done func() (bool, error)) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := done(); err != nil || ok {
			return err
		}
		select {
		case exit := <-exits:
			return fmt.Errorf("%s exits with code %d again and again", program, exit.Code)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready yet: %w", program, ctx.Err())
		case <-ticker.C:
		}
	}
}
