package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/exposition"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/leader"
)

// Requests per second that the controller may make, and at once.
const queriesPerSecond, burst = 500, 1000

// command is what the command line says.
type command struct {
	kubeconfig string
	elect      bool
	lease      time.Duration
	metrics    string
	fleet      bool
	timing     timing
}

// Run runs the queue controller with the arguments of its command line until ctx ends.
func Run(ctx context.Context, args []string) error {
	var c command
	flags := pflag.NewFlagSet(contract.SchedulerName+" queue", pflag.ContinueOnError)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "path of a kubeconfig; by default the file in the environment variable KUBECONFIG, else the pod's service account")
	flags.BoolVar(&c.elect, "leader-elect", true, "work only as long as this process holds the Lease "+contract.SystemNamespace+"/"+contract.QueueControllerName)
	flags.DurationVar(&c.lease, "leader-elect-lease-duration", 15*time.Second, "how long the others wait after a leader was heard of last")
	flags.DurationVar(&c.timing.ready, "pods-ready-timeout", 10*time.Minute, "how long the pods of a job that was released may take to run before the job goes back; 0 for any time")
	flags.DurationVar(&c.timing.backoff, "requeue-backoff", time.Minute, "how long a job that went back is off the first time; doubles each time")
	flags.DurationVar(&c.timing.longest, "requeue-backoff-max", time.Hour, "how long it is off at most")
	flags.StringVar(&c.metrics, "metrics-bind-address", "", exposition.Usage)
	flags.BoolVar(&c.fleet, "fleet", false, "the cluster is the hub of a fleet: jobs are held by their ResourceBindings, and released ones wait for a cluster for any time")
	level := flags.IntP("v", "v", 0, "verbosity of the log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.fleet {
		c.timing.ready = 0
	}
	var verbosity klog.Level
	if err := verbosity.Set(fmt.Sprint(*level)); err != nil {
		return fmt.Errorf("set the verbosity: %w", err)
	}
	config, err := kube.ConfigFrom(kube.Access{Path: c.kubeconfig})
	if err != nil {
		return err
	}
	config.QPS, config.Burst = queriesPerSecond, burst
	return c.run(ctx, config)
}

func (c command) check() error {
	switch {
	case c.lease < time.Second:
		return fmt.Errorf("--leader-elect-lease-duration is %s; it must be at least 1s", c.lease)
	case c.timing.ready < 0:
		return fmt.Errorf("--pods-ready-timeout is %s; it must not be negative", c.timing.ready)
	case c.timing.backoff <= 0 || c.timing.longest < c.timing.backoff:
		return fmt.Errorf("--requeue-backoff is %s and --requeue-backoff-max %s; the first must be positive and not above the second", c.timing.backoff, c.timing.longest)
	}
	return nil
}

func (c command) run(ctx context.Context, config *rest.Config) error {
	identity, err := leader.Identity()
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	dynamic, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the client: %w", err)
	}
	if c.metrics != "" {
		if err := exposition.Serve(ctx, c.metrics, func() error { return nil }); err != nil {
			return err
		}
	}
	controller := newController(typed, dynamic, c.timing, identity)
	controller.fleet = c.fleet
	if !c.elect {
		return controller.run(ctx)
	}
	lease := leader.Lease{Namespace: contract.SystemNamespace, Name: contract.QueueControllerName, Identity: identity, Duration: c.lease}
	return leader.Run(ctx, config, lease, controller.run)
}
