package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/exposition"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/leader"
)

// Run runs the scheduler of a fleet with the arguments of its command line until ctx ends.
func Run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet(contract.SchedulerName+" fleet", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig of the hub; by default the file in the environment variable KUBECONFIG, else the pod's service account")
	elect := flags.Bool("leader-elect", true, "work only as long as this process holds the Lease "+contract.SystemNamespace+"/"+contract.FleetSchedulerName+" of the hub")
	duration := flags.Duration("leader-elect-lease-duration", 15*time.Second, "how long the others wait after a leader was heard of last")
	address := flags.String("metrics-bind-address", "", exposition.Usage)
	level := flags.IntP("v", "v", 0, "verbosity of the log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if *duration < time.Second {
		return fmt.Errorf("--leader-elect-lease-duration is %s; it must be at least 1s", *duration)
	}
	var verbosity klog.Level
	if err := verbosity.Set(fmt.Sprint(*level)); err != nil {
		return fmt.Errorf("set the verbosity: %w", err)
	}
	config, err := kube.ConfigFrom(kube.Access{Path: *kubeconfig})
	if err != nil {
		return err
	}
	hub, err := kube.New(config)
	if err != nil {
		return err
	}
	c := newController(ctx, hub)
	if *address != "" {
		if err := exposition.Serve(ctx, *address, c.healthy); err != nil {
			return err
		}
	}
	if !*elect {
		return c.run(ctx)
	}
	identity, err := leader.Identity()
	if err != nil {
		return err
	}
	lease := leader.Lease{Namespace: contract.SystemNamespace, Name: contract.FleetSchedulerName, Identity: identity, Duration: *duration}
	return leader.Run(ctx, config, lease, c.run)
}
