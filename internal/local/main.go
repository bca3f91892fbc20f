// Command gpuplan-local runs a whole ACK-like platform on one machine, without
// cloud account, Docker or GPU: a Kubernetes control plane, simulated GPU nodes,
// an emulator of the cloud API, the job operator, and a runner for gpuplan's own
// scheduler and node agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code: 2 when it is wrong, 1 when it fails.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	root := command(out)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var wrong *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(errs, "%s: %v\n\n%s", wrong.command.CommandPath(), err, wrong.command.UsageString())
		return 2
	default:
		fmt.Fprintln(errs, "gpuplan-local:", err)
		return 1
	}
}

// usageError says what is wrong with the arguments of a command.
type usageError struct {
	command *cobra.Command
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

// plain says what is wrong with the value of a flag without the words of Go's library.
func plain(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "int" {
		return fmt.Errorf("--%s wants a number, and %q is none", invalid.GetFlag().Name, invalid.GetValue())
	}
	return err
}

// platform is the one that the commands are about.
type platform struct{ dataDir string }

func command(out io.Writer) *cobra.Command {
	p := &platform{}
	root := &cobra.Command{
		Use: "gpuplan-local", Version: version,
		Long: `gpuplan-local runs an ACK-like platform with simulated GPU nodes on this machine.

Ports are on loopback, chosen free, and the same at the next start.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{c, fmt.Errorf("there is no command %q", args[0])}
			}
			return nil
		},
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(out)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{c, plain(err)} })
	root.Flags().Bool("version", false, "print the version") // before that of Kubernetes' libraries, below, takes its place
	root.PersistentFlags().StringVar(&p.dataDir, "data-dir", ".gpuplan", "`folder` that holds everything the platform keeps")

	// Kubernetes' libraries register a flag of theirs for every program; cobra would list it.
	if foreign := pflag.Lookup("version"); foreign != nil {
		foreign.Hidden = true
	}

	var options upOptions
	var detach, purge, asVariables bool
	var format, member, cluster string
	start := p.subcommand("up", "Start it, and wait until it is ready", func(ctx context.Context, dir datadir.Dir) error {
		return up(ctx, out, dir, options, detach)
	})
	options.register(start.Flags())
	start.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := options.check(); err != nil {
			return &usageError{c, err}
		}
		return nil
	}
	start.Flags().BoolVar(&detach, "detach", true, "return when the platform is ready; otherwise stay, and stop it on interrupt")
	server := p.subcommand(serveCommand, "Be the platform's own process", func(ctx context.Context, dir datadir.Dir) error {
		return serve(ctx, dir, options, member)
	})
	server.Hidden = true
	server.Flags().StringVar(&member, memberFlag, "", "`name` of the member cluster of a fleet that it is")
	options.register(server.Flags())
	show := p.subcommand("status", "Tell whether it runs, where, and what it uses", func(ctx context.Context, dir datadir.Dir) error {
		return status(ctx, out, dir, format)
	})
	show.Flags().StringVarP(&format, "output", "o", "text", "output `format`: text or json")
	stop := p.subcommand("down", "Stop it; data is kept unless --purge is given", func(ctx context.Context, dir datadir.Dir) error {
		return down(ctx, out, dir, purge)
	})
	stop.Flags().BoolVar(&purge, "purge", false, "delete the data directory as well")
	environment := p.subcommand("env", `Print its environment: eval "$(gpuplan-local env)"`, func(_ context.Context, dir datadir.Dir) error {
		if asVariables {
			return variables(out, dir)
		}
		return env(out, dir, cluster)
	})
	environment.Flags().BoolVar(&asVariables, "variables", false, "print the settings for all clusters of a fleet as Terraform variables in JSON, those of examples/fleet")
	access := p.subcommand("kubeconfig", "Print the path of its kubeconfig", func(_ context.Context, dir datadir.Dir) error {
		return kubeconfig(out, dir, cluster)
	})
	for _, command := range []*cobra.Command{environment, access} {
		command.Flags().StringVar(&cluster, "cluster", "", "`name` of the cluster, of which a fleet has several; empty: the hub of a fleet, or the only one")
	}
	environment.PreRunE = func(c *cobra.Command, _ []string) error {
		if asVariables && cluster != "" {
			return &usageError{c, errors.New("--variables prints the settings for all clusters: leave out --cluster")}
		}
		return nil
	}
	root.AddCommand(start, server, show, stop, environment, access,
		inside(realnode.Command, "Be the first process of a real node, of which the argument is the directory", realnode.Boot),
		inside(realnode.KubeletCommand, "Be the kubelet of a real node, with the options in the file", kubelet.Run))
	return root
}

// inside makes a hidden command with one argument that runs in a real node.
func inside(name, short string, do func(ctx context.Context, argument string) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return do(c.Context(), args[0]) },
	}
}

// subcommand makes a command that takes no arguments and works on the data directory.
func (p *platform) subcommand(name, short string, do func(context.Context, datadir.Dir) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{c, fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := datadir.Open(p.dataDir)
			if err != nil {
				return err
			}
			return do(c.Context(), dir)
		},
	}
}
