// Package server is the local platform itself: it starts the parts in order, keeps
// them running, and stops them in reverse.
package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/cloud"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/controlplane"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/ports"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/runner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
	// memoryLimitBytes is where the garbage collector starts to work harder.
	memoryLimitBytes = 1500 << 20
)

// Options say what to run.
type Options struct {
	Dir datadir.Dir
	// Programs is the folder with gpuplan's other programs.
	Programs string
	// APIPort and CloudPort are wanted ports; 0 takes the last one or a free one.
	APIPort, CloudPort int
	// EmulatedVersion is the older minor version of Kubernetes to behave like, "" for none.
	EmulatedVersion string
	// RealNodes is how many nodes of pools become real ones.
	RealNodes int
	// APIServer is a kube-apiserver program to run in place of the built-in one, "" for none.
	APIServer string
	// MPIOperator has MPIJobs run by the MPI operator, in v2beta1, in place of the training operator.
	MPIOperator bool
	// Trainer has TrainJobs served, and run by Kubeflow Trainer.
	Trainer bool
	// ClusterID is by what the cloud knows the cluster.
	ClusterID string
	// Members is how many member clusters there are. Where there are some, the platform is the hub of a fleet, and
	// neither runs pods nor has a cloud; the other options are of its members.
	Members int
	// Audit has the API server write down what it is asked to change.
	Audit bool
	// ServeMember are the arguments with which this program runs the platform of a member cluster.
	ServeMember func(dir datadir.Dir, cluster string) []string
}

// server is the platform while it runs.
type server struct {
	Options
	report    *steps.Recorder
	processes *process.Registry
	book      *ports.Book
	api       net.Listener
	etcdPort  int
	cloud     net.Listener
	real      *realnode.Nodes
	plane     *controlplane.ControlPlane
	state     datadir.State
	// stops end what was started, last first.
	mu    sync.Mutex
	stops []func(context.Context)
}

// Run starts the platform, reports, and keeps it running until ctx ends or a part
// fails. When it returns nothing that it started runs any more. Nothing is started
// when another process holds the data directory.
func Run(ctx context.Context, options Options, report *steps.Recorder) error {
	s := &server{Options: options, report: report}
	if err := s.open(); err != nil {
		return err
	}
	defer s.stop()
	startCtx, cancel := context.WithTimeout(ctx, startTimeout+time.Duration(s.Members)*memberStart)
	err := s.start(startCtx)
	cancel()
	if err != nil {
		return err
	}
	s.state.ReadySeconds = time.Since(s.state.StartedAt).Seconds()
	if err := s.Dir.WriteState(s.state); err != nil {
		return err
	}
	klog.Infof("ready after %.1f s", s.state.ReadySeconds)
	// Starting takes much more memory than running; the rest is given back.
	debug.FreeOSMemory()
	report.Ready()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.plane.Failures():
		return err
	}
}

// open takes the data directory and clears what a killed run left.
func (s *server) open() error {
	return s.report.Do("data directory", "", func() error {
		self, err := process.Self()
		if err != nil {
			return err
		}
		// Addresses stay as they were until they are chosen again.
		s.state, err = s.Dir.ReadState()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		s.state.Server, s.state.StartedAt, s.state.ReadySeconds = self, time.Now(), 0
		if err := s.Dir.WriteState(s.state); err != nil {
			return err
		}
		if s.processes, err = process.Open(filepath.Join(s.Dir.Run(), "processes")); err != nil {
			return err
		}
		left, err := s.processes.Reap()
		if err != nil {
			return err
		}
		if len(left) > 0 {
			s.report.Note("ended what an earlier run left behind: %s", strings.Join(left, ", "))
		}
		if err := realnode.Clean(s.Dir); err != nil {
			return err
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(memoryLimitBytes)
		}
		rest.SetDefaultWarningHandler(rest.NoWarnings{})
		s.book, err = ports.Open(s.Dir.Ports())
		return err
	})
}

func (s *server) start(ctx context.Context) error {
	if s.Members > 0 {
		if err := s.report.Do("programs", "", s.findKarmada); err != nil {
			return err
		}
	}
	if err := s.report.Do("ports", "", s.openPorts); err != nil {
		return err
	}
	log := s.Dir.Log("server")
	if err := s.report.Do("certificates", log, s.makePlane); err != nil {
		return err
	}
	s.onStop(func(ctx context.Context) {
		if err := s.plane.Stop(ctx); err != nil {
			klog.Errorf("stop the control plane: %v", err)
		}
	})
	if err := s.report.Do("etcd", s.Dir.Log("etcd"), func() error { return s.plane.Etcd(ctx) }); err != nil {
		return err
	}
	err := s.report.Do("kube-apiserver", log, func() (err error) {
		s.state.Version, err = s.plane.APIServer(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if s.Members > 0 {
		return s.startFleet(ctx)
	}
	if err := s.startRealNodes(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []struct {
		name, log string
		start     func(context.Context) error
	}{
		{"kube-controller-manager", log, s.plane.ControllerManager},
		{"kube-scheduler", log, s.plane.Scheduler},
		{"simulated nodes", s.Dir.Log("kwok"), s.startSimulation},
		{"job operator", s.Dir.Log(jobOperator), s.startJobOperator},
		{"program runner", log, s.startRunner},
		{"cloud API", log, s.startCloud},
	} {
		group.Go(func() error {
			return s.report.Do(part.name, part.log, func() error { return part.start(ctx) })
		})
	}
	return group.Wait()
}

// openPorts opens the ports of all parts, so that one that is taken shows before anything is started.
func (s *server) openPorts() (err error) {
	if s.api, err = s.listen("kube-apiserver", s.APIPort); err != nil {
		return err
	}
	if s.Members == 0 {
		if s.cloud, err = s.listen("cloud API", s.CloudPort); err != nil {
			return err
		}
	}
	etcd, err := s.listen("etcd", 0)
	if err != nil {
		return err
	}
	s.etcdPort = ports.Of(etcd)
	// etcd opens its port itself.
	return etcd.Close()
}

func (s *server) makePlane() (err error) {
	name, emulated, apiServer := datadir.MainCluster, s.EmulatedVersion, s.APIServer
	if s.Members > 0 {
		// Admission policies that write are of the newest Kubernetes.
		name, emulated, apiServer = datadir.HubCluster, "", ""
		s.state.Cloud = datadir.Cloud{}
	}
	cluster := s.Dir.Cluster(name)
	if err := os.MkdirAll(cluster, 0o700); err != nil {
		return err
	}
	audit := ""
	if s.Audit {
		audit = s.Dir.Log("audit")
	}
	s.plane, err = controlplane.New(controlplane.Options{
		Name: name, Dir: cluster, Kubeconfig: s.Dir.Kubeconfig(name), EtcdLog: s.Dir.Log("etcd"), Audit: audit,
		Listener: s.api, EtcdPort: s.etcdPort, EmulatedVersion: emulated,
		APIServer: apiServer, Processes: s.processes, Hub: s.Members > 0,
	})
	if err != nil {
		return err
	}
	s.state.Clusters = []datadir.Cluster{{Name: name, URL: s.plane.URL(), Kubeconfig: s.Dir.Kubeconfig(name)}}
	return nil
}

func (s *server) startRunner(ctx context.Context) error {
	runner, err := runner.Start(ctx, runner.Options{
		Config: s.plane.Config, Processes: s.processes, Programs: s.Programs,
		Dir: filepath.Join(s.Dir.Run(), "pods"), LogDir: filepath.Dir(s.Dir.Log("")), Hardware: s.Dir.Hardware(),
		RealNode: func(name string) (realnode.Node, bool, error) { return realnode.Find(s.Dir, name) },
	})
	if err != nil {
		return err
	}
	s.onStop(func(context.Context) { runner.Stop() })
	return nil
}

func (s *server) startCloud(ctx context.Context) error {
	var realNodes cloud.RealNodes
	if s.real != nil {
		realNodes = s.real
	}
	kubeconfig, err := os.ReadFile(s.state.Clusters[0].Kubeconfig)
	if err != nil {
		return err
	}
	emulator, err := cloud.Start(ctx, cloud.Options{
		Real:       realNodes,
		ClusterID:  s.ClusterID,
		Kubeconfig: string(kubeconfig),
		Config:     s.plane.Config, Listener: s.cloud, Dir: s.Dir.Cloud(), Hardware: s.Dir.Hardware(),
		Log: s.Dir.Log("cloud"), KubernetesVersion: strings.TrimPrefix(s.state.Version, "v") + "-aliyun.1",
	})
	if err != nil {
		return err
	}
	s.onStop(func(ctx context.Context) {
		if err := emulator.Stop(ctx); err != nil {
			klog.Errorf("stop the cloud API: %v", err)
		}
	})
	s.state.Cloud = datadir.Cloud{URL: "http://" + s.cloud.Addr().String(), ClusterID: s.ClusterID, RegionID: cloud.RegionID}
	return nil
}

func (s *server) onStop(stop func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

func (s *server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, stop := range slices.Backward(s.stops) {
		stop(ctx)
	}
	klog.Infof("stopped")
	klog.Flush()
}

// listen opens the port of a part, and says so when it is another one than before.
func (s *server) listen(part string, wanted int) (net.Listener, error) {
	listener, moved, err := s.book.Listen(part, wanted)
	if err != nil {
		return nil, err
	}
	s.onStop(func(context.Context) { _ = listener.Close() }) // whoever serves has closed it already
	if moved != 0 {
		s.report.Note("port %d of %s is taken by another program; it is %d from now on", moved, part, ports.Of(listener))
	}
	return listener, nil
}
