package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
)

func TestJobOf(t *testing.T) {
	for _, kind := range []string{contract.PyTorchJobKind, contract.MPIJobKind, contract.BatchJobKind, contract.JobSetKind} {
		name := fleet.BindingName(kind, "train-a")
		assert.Equal(t, "train-a", fleet.JobOf(corev1.ObjectReference{Kind: contract.ResourceBindingKind, Name: name}), name)
	}
	assert.Equal(t, "train-a", fleet.JobOf(corev1.ObjectReference{Kind: contract.PyTorchJobKind, Name: "train-a"}))
}
