package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/cloud"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/controlplane"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode/programs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/server"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

// serveCommand is how up calls this program as the platform's own process, which
// reports its start on the file descriptor reportFD.
const (
	serveCommand = "serve"
	memberFlag   = "member"
	reportFD     = 3
)

// Exit codes of the server: it found the data directory in use, or was told to stop.
const (
	exitHeld    = 3
	exitStopped = 4
)

// mostMembers is how many member clusters a large machine has room for: each takes 0.7 GiB.
const mostMembers = 8

type upOptions struct {
	port, cloudPort int
	programs        string
	// realNodes is how many nodes of pools become real ones.
	realNodes int
	// emulated is an older minor version of Kubernetes, "" for the newest.
	emulated string
	// mpiOperator means that MPIJobs are those of the MPI operator.
	mpiOperator bool
	// trainer means that TrainJobs are served.
	trainer bool
	// apiServer is a kube-apiserver program, "" for the built-in one.
	apiServer string
	// audit has the API servers write down what they are asked to change.
	audit bool
	// members is how many member clusters a fleet has, 0 for a platform that is none.
	members int
}

func (o *upOptions) register(flags *pflag.FlagSet) {
	flags.IntVar(&o.port, "port", 0, "loopback `port` of the Kubernetes API; 0: the last one, or a free one")
	flags.StringVar(&o.programs, "programs", "", "`folder` with gpuplan's other programs; empty: the one of this program")
	flags.StringVar(&o.emulated, "emulated-version", "", "older minor `version` of Kubernetes to behave like, such as 1.34; empty: the newest")
	flags.StringVar(&o.apiServer, "kube-apiserver", "", "kube-apiserver `program`, of another version for example; empty: the built-in one")
	flags.IntVar(&o.realNodes, "real-nodes", 0, "`number` of nodes of pools that have a real kubelet and containers, the first that are made; needs root and containerd")
	flags.BoolVar(&o.mpiOperator, "mpi-operator", false, "MPIJobs are v2beta1, run by the MPI operator, in place of v1 and v1alpha1; the data directory cannot change from one to the other")
	flags.BoolVar(&o.trainer, "trainer", false, "serve TrainJobs, run by Kubeflow Trainer")
	flags.IntVar(&o.members, "members", 0, "`number` of member clusters; with some, the platform is a fleet, and its own cluster the hub")
	flags.BoolVar(&o.audit, "audit", false, "write down what the API servers are asked to change, in log/audit.log of each cluster's data directory")
	flags.IntVar(&o.cloudPort, "cloud-port", 0, "loopback `port` of the cloud API emulator; 0: the last one, or a free one")
}

// check refuses what no start comes to its end with.
func (o *upOptions) check() error {
	for _, of := range []struct {
		flag string
		port int
	}{{"port", o.port}, {"cloud-port", o.cloudPort}} {
		if of.port < 0 || of.port > 65535 {
			return fmt.Errorf("--%s is %d: a port is between 1 and 65535, and 0 leaves the choice", of.flag, of.port)
		}
	}
	if o.realNodes < 0 || o.realNodes > realnode.Most {
		return fmt.Errorf("--real-nodes is %d: there can be 0 to %d", o.realNodes, realnode.Most)
	}
	if o.members < 0 || o.members > mostMembers {
		return fmt.Errorf("--members is %d: there can be 0 to %d", o.members, mostMembers)
	}
	if o.members > 0 && (o.realNodes > 0 || o.cloudPort > 0) {
		return errors.New("with --members there are no real nodes, and each member cluster has a cloud of its own: leave out --real-nodes and --cloud-port")
	}
	if o.emulated != "" && !slices.Contains(controlplane.Emulated(), o.emulated) {
		return fmt.Errorf("--emulated-version is %q: there are %s", o.emulated, strings.Join(controlplane.Emulated(), ", "))
	}
	return nil
}

// up starts the platform in a process of its own and shows its steps until it is ready.
func up(ctx context.Context, w io.Writer, dir datadir.Dir, options upOptions, detach bool) error {
	if err := dir.Create(); err != nil {
		return err
	}
	if holder, err := dir.Holder(); err != nil {
		return err
	} else if holder != 0 {
		return alreadyUp(ctx, w, dir, options)
	}
	if options.realNodes > 0 {
		if err := realnode.CheckPath(dir); err != nil {
			return err
		}
		if _, err := programs.Find(); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "Starting the platform in %s\n", dir)
	child, report, err := spawn(dir, options)
	if err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- child.Wait() }()

	shown := newProgress(w)
	if err := shown.follow(ctx, report); err != nil {
		_ = child.Process.Signal(syscall.SIGTERM) // it may have ended
		<-exited
		return fmt.Errorf("%w; the platform was stopped again", err)
	}
	if !shown.ready {
		<-exited
		switch child.ProcessState.ExitCode() {
		case exitHeld:
			return alreadyUp(ctx, w, dir, options)
		case exitStopped:
			return errors.New("the platform was told to stop while it started")
		}
		return shown.failure(dir.Log("server"))
	}
	if err := printStatus(ctx, w, dir); err != nil || detach {
		return err
	}
	fmt.Fprintln(w, "\nInterrupt to stop it.")
	select {
	case <-ctx.Done():
		return down(context.WithoutCancel(ctx), w, dir, false)
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("the platform ended: %w; see %s", err, dir.Log("server"))
		}
		fmt.Fprintln(w, "The platform was stopped.")
		return nil
	}
}

// spawn starts the server in a session of its own, so that it outlives this
// process and its terminal. The report ends when the server closes it.
func spawn(dir datadir.Dir, options upOptions) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program to start it as the server: %w", err)
	}
	report, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer write.Close()
	folder := filepath.Dir(self)
	if options.programs != "" {
		if folder, err = filepath.Abs(options.programs); err != nil {
			return nil, nil, err
		}
	}
	options.programs = folder
	child := exec.Command(self, options.serve(dir)...)
	child.ExtraFiles = []*os.File{write}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the server: %w", err)
	}
	return child, report, nil
}

// serve are the arguments of the server with these options.
func (o *upOptions) serve(dir datadir.Dir) []string {
	return []string{
		serveCommand, "--data-dir", string(dir), "--programs", o.programs,
		"--port", strconv.Itoa(o.port), "--cloud-port", strconv.Itoa(o.cloudPort),
		"--emulated-version", o.emulated, "--kube-apiserver", o.apiServer,
		"--real-nodes", strconv.Itoa(o.realNodes), "--mpi-operator=" + strconv.FormatBool(o.mpiOperator),
		"--trainer=" + strconv.FormatBool(o.trainer), "--audit=" + strconv.FormatBool(o.audit), "--members", strconv.Itoa(o.members),
	}
}

// serveMember are the arguments of the server of a member cluster of the fleet with these options.
func (o *upOptions) serveMember(dir datadir.Dir, cluster string) []string {
	member := *o
	member.members, member.port = 0, 0
	return append(member.serve(dir), "--"+memberFlag, cluster)
}

// serve is the platform's own process, of a member cluster of that name if it has one.
func serve(ctx context.Context, dir datadir.Dir, options upOptions, member string) error {
	report, clusterID := steps.NewRecorder(nil), "c-gpuplan-"+member
	if member == "" {
		// That of a member is seen by what it writes down.
		syscall.CloseOnExec(reportFD)
		report, clusterID = steps.NewRecorder(os.NewFile(reportFD, "report")), cloud.ClusterID
	}
	if err := dir.Lock(); errors.Is(err, datadir.ErrHeld) {
		os.Exit(exitHeld)
	} else if err != nil {
		return err
	}
	if err := logTo(dir.Log("server")); err != nil {
		return err
	}
	err := server.Run(ctx, server.Options{
		Dir: dir, Programs: options.programs, APIPort: options.port, CloudPort: options.cloudPort, RealNodes: options.realNodes,
		EmulatedVersion: options.emulated, APIServer: options.apiServer, MPIOperator: options.mpiOperator, Trainer: options.trainer, Audit: options.audit,
		ClusterID: clusterID, Members: options.members, ServeMember: options.serveMember,
	}, report)
	if err != nil && ctx.Err() != nil {
		os.Exit(exitStopped)
	}
	return err
}

// logTo makes a file the output of this process, and keeps that of the run before.
func logTo(path string) error {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep the log of the run before: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer file.Close()
	for _, output := range []int{syscall.Stdout, syscall.Stderr} {
		if err := syscall.Dup3(int(file.Fd()), output, 0); err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
	}
	return nil
}

// alreadyUp waits until the platform that another process started is ready, and
// tells where it is.
func alreadyUp(ctx context.Context, w io.Writer, dir datadir.Dir, options upOptions) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	waiting := false
	for {
		state, err := dir.ReadState()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		holder, holderErr := dir.Holder()
		if holderErr != nil {
			return holderErr
		}
		switch {
		case holder == 0:
			return fmt.Errorf("the platform that was there has just ended; see %s, and try again", dir.Log("server"))
		case state.Server.PID == holder && state.ReadySeconds > 0:
			fmt.Fprintln(w, "The platform is running already.")
			if options.programs = ""; options != (upOptions{}) {
				fmt.Fprintln(w, "It keeps the options that it was started with: to use those of this command, run `gpuplan-local down` first.")
			}
			return printStatus(ctx, w, dir)
		case !waiting:
			waiting = true
			fmt.Fprintf(w, "Another process (%d) is starting or stopping the platform; waiting for it.\n", holder)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
