// Command gpuplan-scheduler is a stock kube-scheduler with gpuplan's plugins. It
// takes kube-scheduler's flags and a KubeSchedulerConfiguration (--config). When the
// configuration names no kubeconfig it uses the file in the environment variable
// KUBECONFIG, else the pod's service account.
//
// "gpuplan-scheduler queue" and "gpuplan-scheduler fleet" are other programs: the controller of the job queue,
// and the scheduler of a fleet, each with flags of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of calls to the API server, as kube-scheduler has them
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/bypass"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain/endpoint"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/hooks"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/allocate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/gang"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/quota"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/room"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/queue"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/repair"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/workload"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	work, args := run, os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case "queue":
			work, args = queue.Run, args[1:]
		case "fleet":
			work, args = fleet.Run, args[1:]
		}
	}
	if err := work(ctx, args); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "gpuplan-scheduler:", err)
		os.Exit(1)
	}
}

// run starts the scheduler and returns when ctx ends or it fails.
func run(ctx context.Context, args []string) error {
	opts := options.NewOptions()
	flags := pflag.NewFlagSet(contract.SchedulerName, pflag.ContinueOnError)
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	verflag.AddFlags(opts.Flags.FlagSet("global"))
	for _, set := range opts.Flags.FlagSets {
		flags.AddFlagSet(set)
	}
	grace := flags.Duration("unreachable-grace", repair.DefaultGrace,
		"How long a node may be unreachable or not ready before the members of gangs on it are failed.")
	explainPort := flags.Int("explain-port", 0,
		"The port on which to serve answers about gangs and GPUs by HTTPS, beside and under the same rules as --secure-port, which it needs. 0 serves none.")
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "Usage:\n  %[1]s [flags]        the scheduler\n  %[1]s queue [flags]  the controller of the job queue; `%[1]s queue --help` lists its flags\n  %[1]s fleet [flags]  the scheduler of a fleet, on its hub; `%[1]s fleet --help` lists its flags\n\nFlags of the scheduler:\n%[2]s",
			contract.SchedulerName, flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.Lookup("version").Value.String() == string(verflag.VersionTrue) {
		fmt.Println(contract.SchedulerName, version) // the next line is that of the Kubernetes in it
	}
	verflag.PrintAndExitIfRequested()
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	var copied string
	if path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); path != "" && opts.ConfigFile != "" {
		var err error
		if copied, err = withKubeconfig(opts.ConfigFile, path); err != nil {
			return err
		}
		opts.ConfigFile = copied
		// Who asks the scheduler is checked at the same API server.
		opts.Authentication.RemoteKubeConfigFile = cmp.Or(opts.Authentication.RemoteKubeConfigFile, path)
		opts.Authorization.RemoteKubeConfigFile = cmp.Or(opts.Authorization.RemoteKubeConfigFile, path)
	}

	cache := clustercache.New()
	repairs := repair.New(cache, *grace)
	meter := metrics.New(cache)
	meter.Register(legacyregistry.MustRegister, legacyregistry.CustomMustRegister)
	var gangs *gang.Plugin
	var allocations *allocate.Plugin
	config, scheduler, err := app.Setup(ctx, opts,
		app.WithPlugin(allocate.Name, allocate.Factory(func(p *allocate.Plugin) { allocations = p })),
		app.WithPlugin(quota.Name, quota.Factory(cache)),
		app.WithPlugin(preemption.Name, preemption.Factory(cache)),
		app.WithPlugin(room.Name, room.Factory(cache)),
		app.WithPlugin(gang.Name, gang.Factory(cache, meter, func(p *gang.Plugin) { gangs = p })),
	)
	if copied != "" {
		_ = os.Remove(copied) // it is read, and a leftover in the temporary folder does no harm
	}
	if err != nil {
		return fmt.Errorf("set up the scheduler: %w", err)
	}
	if err := checkVersion(config.Client.Discovery()); err != nil {
		return err
	}
	if *explainPort != 0 {
		if config.SecureServing == nil || gangs == nil {
			return fmt.Errorf("--explain-port needs --secure-port, and plugin %s in the configuration", gang.Name)
		}
		address := net.JoinHostPort(opts.SecureServing.BindAddress.String(), strconv.Itoa(*explainPort))
		client, err := kube.New(config.KubeConfig)
		if err != nil {
			return fmt.Errorf("set up the client for answers: %w", err)
		}
		around := func(ctx context.Context, namespace string) (explain.Around, error) {
			return explain.ReadAround(ctx, client, namespace)
		}
		if err := serveAnswers(ctx, address, config, endpoint.Source{Cache: cache, Synced: gangs.Synced, Around: around}); err != nil {
			return err
		}
	}
	if gangs != nil {
		hooks.OnFailure(scheduler, gangs.Failures)
		hooks.KeepFailed(scheduler)
		custom, err := dynamic.NewForConfig(config.KubeConfig)
		if err != nil {
			return fmt.Errorf("set up the client for custom resources: %w", err)
		}
		pods, err := metadata.NewForConfig(config.KubeConfig)
		if err != nil {
			return fmt.Errorf("set up the client for pods: %w", err)
		}
		clients := repair.Clients{Kube: config.Client, Dynamic: custom, Events: config.EventBroadcaster.NewRecorder(contract.SchedulerName)}
		learner, err := workload.Follow(ctx, cache, meter, config.Client, config.InformerFactory, config.ComponentConfig.LeaderElection.ResourceNamespace)
		if err != nil {
			return err
		}
		reservations, err := gangreservation.Follow(ctx, cache, custom)
		if err != nil {
			return err
		}
		go giveBack(ctx, gangs.Synced)
		var led sync.Once
		hooks.BeforeNextPod(scheduler, func() {
			led.Do(func() {
				meter.Lead()
				if err := cache.CatchUp(ctx, pods); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Cannot lead without knowing of all bindings: exits, to read them from the start")
					klog.FlushAndExit(klog.ExitFlushTimeout, 1)
				}
				gangs.Lead()
				// No pod is placed before the limits are known, which requests room is kept for, and which places are promised. Errors are those of ctx.
				_ = gangs.Synced(ctx)
				_ = learner.Synced(ctx)
				_ = reservations.Restore(ctx)
				go reservations.Run(ctx)
				go learner.Learn(ctx)
				go repairs.Run(ctx, clients, gangs.Synced)
				go recordBypasses(ctx, config, clients.Events)
			})
			if allocations != nil {
				allocations.Wait(ctx)
			}
		})
	}
	return app.Run(ctx, config, scheduler)
}

// recordBypasses writes an event for each pod that has GPUs from another scheduler.
func recordBypasses(ctx context.Context, config *schedulerconfig.CompletedConfig, recorder events.EventRecorder) {
	if err := bypass.Watch(ctx, config.InformerFactory, recorder); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell of pods that bypass this scheduler")
	}
}

// serveAnswers answers questions about gangs and GPUs at an address until ctx ends.
func serveAnswers(ctx context.Context, address string, config *schedulerconfig.CompletedConfig, source endpoint.Source) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("open the port of answers: %w", err)
	}
	guard := endpoint.Guard{Authenticator: config.Authentication.Authenticator, Authorizer: config.Authorization.Authorizer}
	return endpoint.Serve(ctx, listener, config.SecureServing, guard, source)
}

// giveBack returns the memory that reading the whole cluster took to the system. An
// idle scheduler would keep it for minutes.
func giveBack(ctx context.Context, synced func(context.Context) error) {
	if synced(ctx) == nil {
		debug.FreeOSMemory()
	}
}

// withKubeconfig copies a scheduler configuration that names no kubeconfig to a
// temporary file that names one, and returns its path. kube-scheduler itself knows
// no environment variable for it.
func withKubeconfig(path, kubeconfig string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the scheduler configuration: %w", err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("read the scheduler configuration %s: %w", path, err)
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
		config["clientConnection"] = connection
	}
	if named, _ := connection["kubeconfig"].(string); named == "" {
		connection["kubeconfig"] = kubeconfig
	}
	raw, err = yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	file, err := os.CreateTemp("", "gpuplan-scheduler-*.yaml")
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	if _, err := file.Write(raw); err != nil {
		return "", errors.Join(fmt.Errorf("write the scheduler configuration: %w", err), file.Close())
	}
	return file.Name(), file.Close()
}
