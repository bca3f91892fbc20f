// Command kubectl-gpuplan is a kubectl plugin: on the PATH it is `kubectl gpuplan`. It
// says why gangs wait, what would make them fit, and where everything is. It reads
// nodes, pods and gpuplan's custom resources from the API server, and runs the planner
// on what it read; it changes nothing and needs no running scheduler.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stdout).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
