// Command gpuplan-local runs a whole ACK-like platform on one machine, without
// cloud account, Docker or GPU: a Kubernetes control plane, simulated GPU nodes,
// an emulator of the cloud API, the job operator, and a runner for gpuplan's own
// scheduler and node agent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

const usage = `gpuplan-local runs an ACK-like platform with simulated GPU nodes on this machine.

  gpuplan-local up [--port N] [--cloud-port N] [--programs DIR] [--emulated-version 1.N]
                   [--kube-apiserver PROGRAM] [--detach=false]
                             start it, and wait until it is ready
  gpuplan-local status [-o json]
                             tell whether it runs, where, and what it uses
  gpuplan-local env          print its environment: eval "$(gpuplan-local env)"
  gpuplan-local kubeconfig   print the path of its kubeconfig
  gpuplan-local down [--purge]
                             stop it; data is kept unless --purge is given

All commands take --data-dir DIR (default .gpuplan). Ports are on loopback, chosen
free, and the same at the next start.
`

// errUsage says that the arguments were wrong, and was reported.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "gpuplan-local:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("gpuplan-local "+name, flag.ContinueOnError)
	dataDir := flags.String("data-dir", ".gpuplan", "`folder` that holds everything the platform keeps")
	var command func(dir datadir.Dir) error
	switch name {
	case "up":
		var options upOptions
		options.register(flags)
		detach := flags.Bool("detach", true, "return when the platform is ready; otherwise stay, and stop it on interrupt")
		command = func(dir datadir.Dir) error { return up(ctx, os.Stdout, dir, options, *detach) }
	case serveCommand:
		var options upOptions
		options.register(flags)
		command = func(dir datadir.Dir) error { return serve(ctx, dir, options) }
	case "down":
		purge := flags.Bool("purge", false, "delete the data directory as well")
		command = func(dir datadir.Dir) error { return down(ctx, os.Stdout, dir, *purge) }
	case "status":
		format := flags.String("o", "text", "output `format`: text or json")
		command = func(dir datadir.Dir) error { return status(ctx, os.Stdout, dir, *format) }
	case "env":
		command = func(dir datadir.Dir) error { return env(os.Stdout, dir) }
	case "kubeconfig":
		command = func(dir datadir.Dir) error { return kubeconfig(os.Stdout, dir) }
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(os.Stdout, usage)
		return err
	default:
		fmt.Fprintf(os.Stderr, "gpuplan-local: there is no command %q\n\n%s", name, usage)
		return errUsage
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gpuplan-local %s: unexpected argument %q\n", name, flags.Arg(0))
		return errUsage
	}
	dir, err := datadir.Open(*dataDir)
	if err != nil {
		return err
	}
	return command(dir)
}
