// Command gpuplan-container is the one program in the containers of the local platform's
// real nodes: whatever program their images would have, it takes its place. It prints what
// the container was given of GPUs, and stays until it is told to end, or for as long as the
// variable GPUPLAN_RUN_FOR says. A command that waits for a name in DNS, as the init containers
// of PyTorchJobs do, ends at once: real nodes have no DNS. Called devices it prints the same and ends, for kubectl
// exec; called pause it keeps the namespaces of a pod.
package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runFor is the variable with the time after which the program ends, as in "90s".
const runFor = "GPUPLAN_RUN_FOR"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gpuplan-container:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch filepath.Base(args[0]) {
	case "pause":
		pause(ctx)
		return nil
	case "devices":
		return given{os.DirFS("/"), os.Environ()}.print(out)
	}
	// The first process of a PID namespace has to collect what others leave.
	go collect(ctx)
	fmt.Fprintf(out, "in the place of: %s\n", strings.Join(args, " "))
	if err := (given{os.DirFS("/"), os.Environ()}).print(out); err != nil {
		return err
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "nslookup ") }) {
		return nil
	}
	if text := os.Getenv(runFor); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: %w", runFor, err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	<-ctx.Done()
	return nil
}

func pause(ctx context.Context) {
	go collect(ctx)
	<-ctx.Done()
}

// collect collects processes that have ended, as init does.
func collect(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// given is what a container was given: its files and its environment.
type given struct {
	root fs.FS
	env  []string
}

// variables are the beginnings of the names that are printed.
var variables = []string{"NVIDIA_", "CUDA_", "ALIYUN_COM_", "GPUPLAN_", "LD_"}

// runtimeMounts are the beginnings of paths that every container has something mounted at.
var runtimeMounts = []string{"/proc", "/sys", "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/termination-log", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// print writes variables, device files and mounts, one a line.
func (g given) print(out io.Writer) error {
	var lines []string
	for _, variable := range slices.Sorted(slices.Values(g.env)) {
		if beginsWithAny(variable, variables) {
			lines = append(lines, "env "+variable)
		}
	}
	for _, pattern := range []string{"dev/nvidia*", "dev/nvidia-caps/*", "dev/infiniband/*"} {
		devices, err := fs.Glob(g.root, pattern)
		if err != nil {
			return err
		}
		for _, device := range devices {
			if info, err := fs.Stat(g.root, device); err == nil && info.IsDir() {
				continue
			}
			lines = append(lines, "device /"+device)
		}
	}
	mounts, err := fs.ReadFile(g.root, "proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if at := fields[4]; at != "/" && at != "/dev" && !beginsWithAny(at, runtimeMounts) {
			lines = append(lines, "mount "+at)
		}
	}
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

func beginsWithAny(text string, beginnings []string) bool {
	return slices.ContainsFunc(beginnings, func(beginning string) bool { return strings.HasPrefix(text, beginning) })
}
