package topology

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// firstRetry is how long to wait after the first failure; each further one doubles it.
const firstRetry = time.Second

// Run reads and publishes whenever the source has changed, and at least once in
// each interval, until ctx ends. It retries what fails.
func (p *Publisher) Run(ctx context.Context, source hardware.Source, interval time.Duration, log *slog.Logger) {
	log = log.With("node", p.node)
	retry := firstRetry
	for {
		wait := interval
		if err := p.once(ctx, source); err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			wait = min(retry, interval)
			retry = min(2*retry, interval)
			log.Error("hardware not published", "error", err, "retry", wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-source.Changed():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *Publisher) once(ctx context.Context, source hardware.Source) error {
	reading, err := source.Read(ctx)
	if err != nil {
		return errors.Join(err, p.PublishUnreadable(ctx, err))
	}
	return p.Publish(ctx, reading)
}
