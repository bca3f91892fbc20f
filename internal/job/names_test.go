package job

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestNeeds(t *testing.T) {
	role := map[string]Role{"worker": {Replicas: 2}}
	for name, test := range map[string]struct {
		spec  Spec
		needs []Object
	}{
		"a Job is one":                {Spec{Framework: Batch, Name: "a", Roles: role}, []Object{{Kind: "Job", Name: "a"}}},
		"a TrainJob is a JobSet":      {Spec{Framework: TrainJob, Name: "a", Roles: map[string]Role{"b": {Replicas: 3}}}, []Object{{Kind: "Job", Name: "a-b-0"}, {Kind: "JobSet", Name: "a"}, {Kind: "TrainingRuntime", Name: "a"}, {Kind: "Service", Name: "a"}}},
		"a JobSet has one a role":     {Spec{Framework: JobSet, Name: "a", Roles: map[string]Role{"b": {Replicas: 3}, "c": {Replicas: 1}}}, []Object{{Kind: "Job", Name: "a-b-0"}, {Kind: "Job", Name: "a-c-0"}, {Kind: "Service", Name: "a"}}},
		"replicas of PyTorchJobs":     {Spec{Framework: PyTorch, Name: "a", Roles: role}, []Object{{Kind: "Service", Name: "a-worker-0"}, {Kind: "Service", Name: "a-worker-1"}}},
		"arena's launcher is a Job":   {Spec{Framework: MPI, Name: "a", Roles: role, Version: contract.MPIAlphaVersion}, []Object{{Kind: "Job", Name: "a-launcher"}}},
		"an MPIJob has pods, no Jobs": {Spec{Framework: MPI, Name: "a", Roles: role}, nil},
		"the MPI operator's launcher": {Spec{Framework: MPI, Name: "a", Roles: role, Version: contract.MPIOperatorVersion}, []Object{{Kind: "Job", Name: "a-launcher"}, {Kind: "Service", Name: "a"}}},
		"a queued one has a unit":     {Spec{Framework: Batch, Name: "a", Roles: role, Queue: true}, []Object{{Kind: "QueueUnit", Name: "a"}, {Kind: "Job", Name: "a"}}},
		"whose name has the kind":     {Spec{Framework: MPI, Name: "a", Roles: role, Queue: true}, []Object{{Kind: "QueueUnit", Name: "a-mpi-qu"}}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.needs, test.spec.Needs()) })
	}
}
