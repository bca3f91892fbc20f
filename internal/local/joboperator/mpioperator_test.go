package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	"github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/validation"
	"sigs.k8s.io/yaml"
)

// The MPI operator takes the MPIJobs that the provider writes, and knows their fields.
func TestMPIOperatorTakesMPIJobsOfTheProvider(t *testing.T) {
	for _, name := range []string{"mpi-operator", "mpi-operator-shared"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "job", "testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			job := &v2beta1.MPIJob{}
			if err := yaml.UnmarshalStrict(text, job); err != nil {
				t.Fatal(err)
			}
			written := job.DeepCopy()
			v2beta1.SetDefaults_MPIJob(job)
			if faults := validation.ValidateMPIJob(job); len(faults) > 0 {
				t.Error(faults)
			}
			if job.Spec.LauncherCreationPolicy != written.Spec.LauncherCreationPolicy || job.Spec.SSHAuthMountPath != written.Spec.SSHAuthMountPath {
				t.Error("the operator has defaults of its own for what the provider writes")
			}
		})
	}
}
