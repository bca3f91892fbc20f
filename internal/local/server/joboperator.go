package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

const (
	jobOperator      = "gpuplan-joboperator"
	jobOperatorGrace = 5 * time.Second
)

// startJobOperator keeps the job operator running and waits until the kinds of
// jobs that it installs are served.
func (s *server) startJobOperator(ctx context.Context) error {
	program := filepath.Join(s.Programs, jobOperator)
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the program for PyTorchJobs, MPIJobs and JobSets is missing: %w; run make build", err)
	}
	log, err := os.OpenFile(s.Dir.Log(jobOperator), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	s.onStop(func(context.Context) {
		cancel()
		<-stopped
	})
	exits := make(chan *process.Exit, 1)
	go func() {
		defer close(stopped)
		spec := process.Spec{
			Name: jobOperator, Path: program, Dir: s.Dir.Run(), Output: log,
			Args: []string{"--kubeconfig", s.Dir.Kubeconfig(datadir.MainCluster), "--mpi-operator=" + strconv.FormatBool(s.MPIOperator), "--trainer=" + strconv.FormatBool(s.Trainer)},
		}
		s.processes.Keep(runCtx,
			func() time.Duration { return jobOperatorGrace },
			func(context.Context) (process.Spec, error) { return spec, nil },
			func(status process.Status) {
				if status.BackOff == 0 || status.Last == nil {
					return
				}
				klog.Errorf("%s exited with code %d; it starts again in %s", jobOperator, status.Last.Code, status.BackOff)
				select {
				case exits <- status.Last:
				default:
				}
			})
	}()

	client, err := discovery.NewDiscoveryClientForConfig(s.plane.Config)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if served(client, s.MPIOperator, s.Trainer) {
			return nil
		}
		select {
		case exit := <-exits:
			return fmt.Errorf("%s exits with code %d again and again", jobOperator, exit.Code)
		case <-ctx.Done():
			return errors.New("the kinds of jobs are not served yet")
		case <-ticker.C:
		}
	}
}

// served tells whether the API server serves the kinds of jobs.
func served(client discovery.DiscoveryInterface, mpiOperator, trainer bool) bool {
	mpi := contract.KubeflowVersion
	if mpiOperator {
		mpi = contract.MPIOperatorVersion
	}
	kinds := map[string]string{contract.PyTorchJobKind: contract.KubeflowGroup + "/" + contract.KubeflowVersion, contract.MPIJobKind: contract.KubeflowGroup + "/" + mpi}
	if trainer {
		kinds[contract.TrainJobKind] = contract.TrainerGroup + "/" + contract.TrainerVersion
	}
	for kind, version := range kinds {
		list, err := client.ServerResourcesForGroupVersion(version)
		if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			return false
		}
	}
	return true
}
