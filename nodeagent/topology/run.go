package topology

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
)

// firstRetry is how long to wait after the first failure; each further one doubles it.
const firstRetry = time.Second

// Agent publishes nodes. All fields must be set; it may serve many nodes at once.
type Agent struct {
	Client  *kube.Client
	Events  record.EventRecorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Interval is how often to read and publish when nothing has changed.
	Interval time.Duration
	// QuietTime is that of [health.Tracker].
	QuietTime time.Duration
}

// Serve publishes a node whenever its source has changed, and at least once in
// each interval, until ctx ends. It retries what fails.
func (a *Agent) Serve(ctx context.Context, node string, source hardware.Source) {
	defer a.Metrics.Gone(node)
	log := a.Log.With("node", node)
	p := a.publisher(node)
	retry := firstRetry
	for {
		wait := a.Interval
		err := p.once(ctx, source)
		if ctx.Err() != nil {
			return
		}
		a.Metrics.Published(node, err)
		if err == nil {
			retry = firstRetry
		} else {
			wait = min(retry, a.Interval)
			retry = min(2*retry, a.Interval)
			log.Error("hardware not published", "error", err, "retry", wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-source.Changed():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (a *Agent) publisher(node string) *publisher {
	return &publisher{Agent: a, node: node, tracker: health.Tracker{QuietTime: a.QuietTime}}
}

func (p *publisher) once(ctx context.Context, source hardware.Source) error {
	reading, err := source.Read(ctx)
	if err != nil {
		return errors.Join(err, p.publishUnreadable(ctx, err))
	}
	return p.publish(ctx, reading)
}
