// Command demo is `make demo`, `make demo-real` and `make demo-fleet`: it builds gpuplan, starts the local platform,
// plans and applies an example, and shows what was planned and where
// every member runs; on real nodes also what every container says that it was given, in a fleet how a job leaves the queue of the hub.
// `demo down` takes all of it away again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `usage: demo up|down [--data-dir DIR] [--real-nodes NUMBER | --fleet]

  up    build, start the local platform, plan and apply examples/quickstart, examples/real-nodes or examples/fleet, show the result
  down  destroy the example and stop the local platform`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		var failed *stepError
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(os.Stderr, "Interrupted. The same command goes on from here; make demo-down, make demo-real-down or make demo-fleet-down takes away what is there.")
		case errors.As(err, &failed):
			failed.print(os.Stderr)
		default:
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	dataDir := flags.String("data-dir", ".gpuplan", "folder of the local platform")
	realNodes := flags.Int("real-nodes", 0, "number of real nodes; with some the example is examples/real-nodes")
	fleet := flags.Bool("fleet", false, "a fleet of two clusters; the example is examples/fleet")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	data, err := filepath.Abs(*dataDir)
	if err != nil {
		return fmt.Errorf("resolve --data-dir %s: %w", *dataDir, err)
	}
	d := demo{root: root, data: data, log: filepath.Join(data, "demo", "log"), example: "quickstart", realNodes: *realNodes, fleet: *fleet, out: os.Stdout}
	switch {
	case d.realNodes > 0 && d.fleet:
		return errors.New(usage)
	case d.realNodes > 0:
		d.example = "real-nodes"
	case d.fleet:
		d.example = "fleet"
	}
	switch args[0] {
	case "up":
		return d.up(ctx)
	case "down":
		return d.down(ctx)
	}
	return errors.New(usage)
}

// demo knows the folders of one demonstration.
type demo struct {
	root string // the repository
	data string // the local platform's data directory
	log  string // folder of the steps' logs
	// example is the folder in examples.
	example string
	// realNodes is how many nodes have a kubelet and containers.
	realNodes int
	// fleet means that the platform is a hub with member clusters.
	fleet bool
	out   *os.File
}

// target is what make calls the demonstration.
func (d demo) target() string {
	switch {
	case d.realNodes > 0:
		return "demo-real"
	case d.fleet:
		return "demo-fleet"
	}
	return "demo"
}

// downCommand is what takes the demonstration away, wherever the user is by then.
func (d demo) downCommand() string {
	folder := map[string]string{"demo": "DATA_DIR", "demo-real": "REAL_DATA_DIR", "demo-fleet": "FLEET_DATA_DIR"}[d.target()]
	return fmt.Sprintf("make -C %s %s-down %s=%s", d.root, d.target(), folder, d.data)
}

func (d demo) up(ctx context.Context) error {
	if err := os.MkdirAll(d.log, 0o755); err != nil {
		return fmt.Errorf("create the folder of the demo's logs: %w", err)
	}
	tools, err := findTools(ctx, d)
	if err != nil {
		return err
	}
	if d.realNodes > 0 {
		if err := d.prepareContainerd(ctx); err != nil {
			return err
		}
	}
	if err := d.build(ctx, tools); err != nil {
		return err
	}
	tf, err := d.startPlatform(ctx, tools)
	if err != nil {
		return err
	}
	plan, err := tf.plan(ctx)
	if err != nil {
		return err
	}
	reportPlan(d.out, plan)
	if err := tf.apply(ctx); err != nil {
		return err
	}
	if d.fleet {
		if err := d.showFleet(ctx, tf); err != nil {
			return err
		}
		return d.reportNumbers()
	}
	state, err := tf.state(ctx)
	if err != nil {
		return err
	}
	if err := reportState(d.out, state); err != nil {
		return err
	}
	if d.realNodes > 0 {
		containers, err := d.readContainers(ctx, state)
		if err != nil {
			return err
		}
		if err := reportContainers(d.out, state, containers); err != nil {
			return err
		}
	}
	return d.reportNumbers()
}

func (d demo) down(ctx context.Context) error {
	if err := os.MkdirAll(d.log, 0o755); err != nil {
		return fmt.Errorf("create the folder of the demo's logs: %w", err)
	}
	if _, err := os.Stat(filepath.Join(d.root, "bin", "gpuplan-local")); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(d.out, "nothing to take down: bin/gpuplan-local was never built here")
		return nil
	}
	applied, err := d.applied()
	if err != nil {
		return err
	}
	if applied {
		tools, err := findTools(ctx, d)
		if err != nil {
			return err
		}
		tf, err := d.startPlatform(ctx, tools)
		if err != nil {
			return err
		}
		if err := tf.destroy(ctx); err != nil {
			return err
		}
		if d.fleet {
			if err := d.checkNothingLeft(ctx); err != nil {
				return err
			}
		}
	}
	if err := d.step(ctx, "stop the local platform", "", d.local("down")); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Certificates, addresses and logs stay in %[1]s for the next start; bin/gpuplan-local down --purge --data-dir %[1]s deletes them.\n", d.data)
	return nil
}
