// Command gpuplan-karmada runs Karmada's controller manager against the hub of a fleet
// on the local platform. First it gives the hub what Karmada's installer does elsewhere: its
// CRDs, a plain CRD of clusters in place of the aggregated API server, and admission policies
// in place of the webhook. On a hub that has these it runs Karmada's scheduler instead, if it
// is asked to. It opens no port, and stops on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	manager "github.com/karmada-io/karmada/cmd/controller-manager/app"
	scheduler "github.com/karmada-io/karmada/cmd/scheduler/app"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// controllers are those that propagation, status and eviction need. Karmada's detector and its
// distributor of dependencies run always.
var controllers = []string{
	"cluster", "clusterStatus", "binding", "bindingStatus", "execution", "workStatus", "namespace",
	"gracefulEviction", "applicationFailover",
}

func main() {
	// controller-runtime registers a kubeconfig flag of its own on the default flag set.
	flags := flag.NewFlagSet("gpuplan-karmada", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of the kubeconfig of the hub (required)")
	crdDir := flags.String("crd-dir", "", "folder with Karmada's CRDs; by default crds/karmada beside this program")
	schedule := flags.Bool("scheduler", false, "run Karmada's scheduler, in place of its controllers, on a hub that is prepared")
	// ExitOnError: Parse does not return an error.
	_ = flags.Parse(os.Args[1:])

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, *crdDir, *schedule); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "gpuplan-karmada:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, crdDir string, schedule bool) error {
	if kubeconfig == "" {
		return fmt.Errorf("--kubeconfig is required")
	}
	if schedule {
		return execute(ctx, scheduler.NewSchedulerCommand(ctx), schedulerArguments(kubeconfig))
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	if err := prepare(ctx, config, crdDir); err != nil {
		return fmt.Errorf("prepare the hub: %w", err)
	}
	return execute(ctx, manager.NewControllerManagerCommand(ctx), managerArguments(kubeconfig))
}

func execute(ctx context.Context, command *cobra.Command, arguments []string) error {
	command.SetArgs(arguments)
	command.SilenceUsage, command.SilenceErrors = true, true
	if err := command.ExecuteContext(ctx); err != nil {
		return fmt.Errorf("run %s: %w", command.Name(), err)
	}
	return nil
}

// schedulerArguments are those of Karmada's scheduler.
func schedulerArguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
}

// managerArguments are those of Karmada's controller manager.
func managerArguments(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0",
		// Roles of a job and what each asks for stand in its binding.
		"--feature-gates=MultiplePodTemplatesScheduling=true",
		// People wait in front of this hub: a member that is lost or back is told within seconds.
		"--cluster-status-update-frequency=2s",
		"--cluster-failure-threshold=4s",
		"--cluster-success-threshold=2s",
		"--cluster-monitor-period=2s",
		// Retries back off to 17 minutes otherwise.
		"--rate-limiter-max-delay=10s",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--cluster-api-qps=200",
		"--cluster-api-burst=400",
	}
}
