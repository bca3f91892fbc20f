// Command gpuplan-node-agent publishes the GPUs of a GPU node, their links and
// their health in the cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cdi"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deviceplugin"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/mps"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nvml"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/simulated"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/topology"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/usage"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/watchdog"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errVersion):
		fmt.Println("gpuplan-node-agent", version)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpuplan-node-agent:", err)
		os.Exit(1)
	}
}

// version is set by the linker.
var version = "dev"

// errVersion means that only the version was asked for.
var errVersion = errors.New("the version was asked for")

// settings are the command line.
type settings struct {
	nodeName       string
	hardwareDir    string
	interval       time.Duration
	metricsAddress string
	healthAddress  string
	mps            bool
	mpsDir         string
	featureLabels  bool
	// devicePlugins means that the agent gives containers their GPUs, by the folders and sockets after it.
	devicePlugins               bool
	pluginDir, podResources     string
	cdiDir, vendorCDI, hostRoot string
	nriSocket                   string
}

// defaultHealthAddress is where the liveness probe of the manifest asks.
func defaultHealthAddress() string {
	if ip := os.Getenv("POD_IP"); ip != "" {
		return net.JoinHostPort(ip, strconv.Itoa(contract.NodeAgentHealthPort))
	}
	return ""
}

func parse(args []string, output io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("gpuplan-node-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node on which the agent runs (environment: NODE_NAME)")
	flags.StringVar(&s.hardwareDir, "hardware-dir", os.Getenv("GPUPLAN_HARDWARE_DIR"),
		"folder with one description <node>.json per simulated node, which takes the place of this machine's NVML (environment: GPUPLAN_HARDWARE_DIR)")
	flags.DurationVar(&s.interval, "interval", 30*time.Second, "how often to look at the hardware when nothing is reported")
	flags.StringVar(&s.metricsAddress, "metrics-addr", "", `address on which to serve /metrics, for example ":9400"; none by default`)
	flags.StringVar(&s.healthAddress, "health-addr", defaultHealthAddress(), "address on which to serve /healthz for a liveness probe; by default port "+strconv.Itoa(contract.NodeAgentHealthPort)+" of the pod's address (environment: POD_IP), else none")
	flags.BoolVar(&s.featureLabels, "feature-labels", true, "label the Node as NVIDIA's GPU feature discovery does, where that does not")
	flags.BoolVar(&s.mps, "mps", false, "keep programs within their parts of GPUs by NVIDIA's MPS, and publish whether that can be; needs root")
	flags.StringVar(&s.mpsDir, "mps-dir", "/run/gpuplan/mps", "directory of the host for what MPS keeps while GPUs are shared; it has to be empty after a boot")
	flags.BoolVar(&s.devicePlugins, "device-plugins", false, "give containers the GPUs of their pods' allocation records, as the node's device plugin")
	flags.StringVar(&s.pluginDir, "device-plugin-dir", strings.TrimSuffix(pluginapi.DevicePluginPath, "/"), "the kubelet's folder of device plugins")
	flags.StringVar(&s.podResources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the socket of the kubelet's pod-resources API")
	flags.StringVar(&s.cdiDir, "cdi-dir", "/var/run/cdi", "the folder from which the container runtime reads CDI specifications, into which those of containers are written")
	flags.StringVar(&s.vendorCDI, "vendor-cdi-dirs", "/etc/cdi:/var/run/cdi", "folders in which NVIDIA's own CDI specification may be, divided by colons")
	flags.StringVar(&s.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "the socket at which the container runtime listens to plugins (NRI); empty not to be one")
	flags.StringVar(&s.hostRoot, "host-root", "/", "where the node's folders dev, proc/driver and sys are, as the agent sees them; with --mps also proc and sys/fs/cgroup")
	showVersion := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	switch {
	case *showVersion:
		return settings{}, errVersion
	case flags.NArg() > 0:
		return settings{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.interval <= 0 || s.interval > contract.NodeAgentLongestInterval:
		return settings{}, fmt.Errorf("--interval is %v: it must be positive, and at most %v", s.interval, contract.NodeAgentLongestInterval)
	case s.mps && s.hardwareDir != "":
		return settings{}, errors.New("--mps is for the GPUs of this machine: simulated ones (--hardware-dir) have no programs to limit")
	case s.mps && !s.devicePlugins:
		return settings{}, errors.New("--mps needs --device-plugins: only who gives containers their parts of GPUs can keep them to these")
	case s.nodeName == "" && s.hardwareDir == "":
		return settings{}, errors.New("name the node with --node-name or NODE_NAME, or a folder of simulated nodes with --hardware-dir or GPUPLAN_HARDWARE_DIR")
	}
	return s, nil
}

// bootIDFile is where Linux has the identity of the machine's boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// run publishes until ctx ends.
func run(ctx context.Context, args []string, output io.Writer) error {
	s, err := parse(args, output)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(output, nil))
	config, err := kube.ConfigFrom(kube.Access{})
	if err != nil {
		return err
	}
	client, err := kube.New(config)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Typed.CoreV1().Events("")})
	followed := s.nodeName
	if s.hardwareDir != "" {
		followed = "" // all simulated nodes
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	nodes, err := cluster.Start(ctx, client.Dynamic, followed)
	if err != nil {
		return err
	}
	agent := &topology.Agent{
		Client: client, Nodes: nodes,
		Events:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: contract.NodeAgentName}),
		Metrics: metrics.New(), Alive: new(watchdog.Alive), Log: log, Now: time.Now, Interval: s.interval,
		Instance: string(uuid.NewUUID()), Version: version, Started: time.Now(),
	}
	if s.hardwareDir == "" {
		boot, err := os.ReadFile(bootIDFile)
		if err != nil {
			log.Warn("the boot of the machine is not known", "error", err)
		}
		agent.Boot = strings.TrimSpace(string(boot))
	}
	for address, serve := range map[string]func(context.Context, string) error{
		s.metricsAddress: agent.Metrics.Serve, s.healthAddress: agent.Alive.Serve,
	} {
		if address != "" {
			go func() {
				if err := serve(ctx, address); err != nil {
					stop(err)
				}
			}()
		}
	}
	var enforcer *mps.Enforcer
	if s.devicePlugins && s.hardwareDir == "" {
		agent.Enforcement = mps.Unenforced("/proc")
	}
	if s.mps {
		if enforcer, err = mps.Start(ctx, mps.Config{Root: s.mpsDir, Cgroups: filepath.Join(s.hostRoot, "sys/fs/cgroup"), Modes: nvml.NewModes(), Log: agent.Log}); err != nil {
			return err
		}
		agent.Enforcement = enforcer.Enforcement
	}
	var holders func() []usage.Holder
	switch {
	case s.devicePlugins && s.nodeName == "":
		log.Info("no device plugins: simulated nodes have no kubelet")
	case s.devicePlugins:
		plugins := newPlugins(agent, s, enforcer)
		holders = plugins.Holders
		go give(ctx, agent, plugins)
	}
	if err := publish(ctx, agent, s, holders); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// usageLimit is how long whoever reads the metrics waits for the driver: Prometheus waits 10 seconds by default.
const usageLimit = 5 * time.Second

// newPlugins are the device plugins of the node.
func newPlugins(agent *topology.Agent, s settings, enforcer *mps.Enforcer) *deviceplugin.Agent {
	plugins := &deviceplugin.Agent{
		Client: agent.Client, Nodes: agent.Nodes, Node: s.nodeName, Instance: agent.Instance, Events: agent.Events, Log: agent.Log.With("node", s.nodeName),
		PluginDir: s.pluginDir, PodResources: s.podResources,
		CDI: cdi.Dir(s.cdiDir), VendorCDI: filepath.SplitList(s.vendorCDI), Root: s.hostRoot, NRI: s.nriSocket,
		Simulated: s.hardwareDir != "", Boot: agent.Boot, Beat: func() { agent.Alive.Beat(s.nodeName + "'s device plugins") },
	}
	if enforcer != nil {
		plugins.Enforcer = enforcer
	}
	return plugins
}

// give serves the device plugins of the node. Whatever becomes of them, the agent goes on.
func give(ctx context.Context, agent *topology.Agent, plugins *deviceplugin.Agent) {
	if err := plugins.Run(ctx); err != nil {
		agent.Log.Error("containers are not given GPUs", "error", err)
	}
}

// publish publishes the simulated nodes, or this machine, until ctx ends; holders tell who has its GPUs, nil when nobody knows.
func publish(ctx context.Context, agent *topology.Agent, s settings, holders func() []usage.Holder) error {
	if s.hardwareDir != "" {
		agent.Log.Info("publishing simulated nodes", "folder", s.hardwareDir, "version", version)
		folder := simulated.Folder{Path: s.hardwareDir, Serve: agent.Serve}
		return folder.Run(ctx)
	}
	sysfs := filepath.Join(s.hostRoot, "sys")
	source, err := nvml.Start(ctx, agent.Log, sysfs)
	if err != nil {
		return err
	}
	if meter, ok := source.(hardware.Meter); ok {
		err := agent.Metrics.Add(&usage.Collector{
			Node: s.nodeName, Meter: meter, Holders: holders, Proc: filepath.Join(s.hostRoot, "proc"), Sysfs: sysfs, Limit: usageLimit,
			Index: func(gpu string) (int, bool) { return agent.Metrics.Index(s.nodeName, gpu) },
		})
		if err != nil {
			return err
		}
	}
	agent.Log.Info("publishing the GPUs of this machine", "node", s.nodeName, "version", version)
	agent.QuietTime, agent.FeatureLabels = health.RealQuietTime, s.featureLabels
	agent.Serve(ctx, s.nodeName, source)
	return nil
}
