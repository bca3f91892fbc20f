// Command gpuplan-node-agent publishes the cards of a GPU node, their links and
// their health in the cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/health"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/nvml"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/simulated"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/topology"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpuplan-node-agent:", err)
		os.Exit(1)
	}
}

// version is set by the linker.
var version = "dev"

// settings are the command line.
type settings struct {
	nodeName    string
	hardwareDir string
	interval    time.Duration
}

func parse(args []string, output io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("gpuplan-node-agent", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the node on which the agent runs (environment: NODE_NAME)")
	flags.StringVar(&s.hardwareDir, "hardware-dir", os.Getenv("GPUPLAN_HARDWARE_DIR"),
		"folder with one description <node>.json per simulated node, which takes the place of this machine's NVML (environment: GPUPLAN_HARDWARE_DIR)")
	flags.DurationVar(&s.interval, "interval", 30*time.Second, "how often to look at the hardware when nothing is reported")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	switch {
	case flags.NArg() > 0:
		return settings{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.interval <= 0:
		return settings{}, fmt.Errorf("--interval is %v: it must be positive", s.interval)
	case s.nodeName == "" && s.hardwareDir == "":
		return settings{}, errors.New("name the node with --node-name or NODE_NAME, or a folder of simulated nodes with --hardware-dir or GPUPLAN_HARDWARE_DIR")
	}
	return s, nil
}

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
	if s.hardwareDir != "" {
		log.Info("publishing simulated nodes", "folder", s.hardwareDir, "version", version)
		folder := simulated.Folder{Path: s.hardwareDir, Serve: func(ctx context.Context, node string, source hardware.Source) {
			topology.NewPublisher(client, node, 0, time.Now).Run(ctx, source, s.interval, log)
		}}
		return folder.Run(ctx)
	}
	source, err := nvml.Start(ctx, log)
	if err != nil {
		return err
	}
	log.Info("publishing the cards of this machine", "node", s.nodeName, "version", version)
	topology.NewPublisher(client, s.nodeName, health.RealQuietTime, time.Now).Run(ctx, source, s.interval, log)
	return nil
}
