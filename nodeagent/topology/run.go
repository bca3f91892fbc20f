package topology

import (
	"context"
	"errors"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

// firstRetry is how long to wait after the first failure; each further one doubles it.
const firstRetry = time.Second

// Agent publishes nodes. All fields must be set but where they say otherwise; it may
// serve many nodes at once.
type Agent struct {
	Client *kube.Client
	// Nodes is what the cluster has about the nodes that are served.
	Nodes   *cluster.Nodes
	Events  record.EventRecorder
	Metrics *metrics.Metrics
	// Alive is told that the loops go round.
	Alive *watchdog.Alive
	Log   *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Instance is another one for each process, Started when it began, and Version what
	// it is built from, "" when unknown.
	Instance, Version string
	Started           time.Time
	// Boot is the boot of the machine in which the process runs, "" when unknown, and of simulated nodes.
	Boot string
	// Interval is how often to read when nothing has changed.
	Interval time.Duration
	// QuietTime is that of [health.Tracker], 0 for none.
	QuietTime time.Duration
	// FeatureLabels means that the Node gets the labels of NVIDIA's GPU feature discovery where that does not run; without
	// it those that an agent has written go.
	FeatureLabels bool
	// Enforcement tells whether parts of a machine's GPUs are enforced; nil for an agent that does not share GPUs.
	Enforcement func(hardware.Reading) contract.GPUSharing
}

// Serve looks at a node whenever its source has changed, and at least once in each
// interval, until ctx ends. What it sees is judged at once, whether or not the API
// server answers; what cannot be published is published later.
func (a *Agent) Serve(ctx context.Context, node string, source hardware.Source) {
	defer a.Metrics.Gone(node)
	defer a.Alive.Gone(node)
	p := a.publisher(node, &watchdog.Source{Source: source, Limit: watchdog.ReadLimit})
	retry := firstRetry
	for {
		a.Alive.Beat(node)
		p.look(ctx)
		wait := a.Interval
		later, err := p.publish(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			a.Metrics.Published(node, err)
			wait = min(retry, a.Interval)
			retry = min(2*retry, a.Interval)
			p.log.Error("hardware not published", "error", err, "retry", wait)
		case later > 0:
			wait = min(later, a.Interval)
		default:
			a.Metrics.Published(node, p.err)
			retry = firstRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-source.Changed():
		case <-a.Nodes.Changed(node):
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (a *Agent) publisher(node string, source hardware.Source) *publisher {
	log := a.Log.With("node", node)
	o := newObserver(a, node, source)
	return &publisher{observer: o, Agent: a, node: node, log: log, writes: newLimiter(), started: metav1.NewTime(a.Started).Rfc3339Copy()}
}

// errNoNode means that the Node of a machine is not in the cluster.
var errNoNode = errors.New("the cluster has no Node of this name")
