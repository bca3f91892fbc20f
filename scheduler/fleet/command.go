package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Run runs the scheduler of a fleet with the arguments of its command line until ctx ends.
func Run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet(contract.SchedulerName+" fleet", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig of the hub; by default the file in the environment variable KUBECONFIG, else the pod's service account")
	level := flags.IntP("v", "v", 0, "verbosity of the log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
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
	return newController(ctx, hub).run(ctx)
}
