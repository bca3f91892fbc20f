package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

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
	exits, err := s.keep(jobOperatorGrace, process.Spec{
		Name: jobOperator, Path: program, Dir: s.Dir.Run(),
		Args: []string{"--kubeconfig", s.Dir.Kubeconfig(datadir.MainCluster), "--mpi-operator=" + strconv.FormatBool(s.MPIOperator), "--trainer=" + strconv.FormatBool(s.Trainer)},
	})
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.plane.Config)
	if err != nil {
		return err
	}
	return until(ctx, jobOperator, exits, func() (bool, error) { return served(client, s.MPIOperator, s.Trainer), nil })
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
