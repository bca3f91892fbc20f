package contract_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestConfirmation(t *testing.T) {
	made := contract.Confirmation{Node: "n", Containers: map[string]contract.ConfirmedContainer{
		"a": {Way: contract.WayCDI, GPUs: []string{"GPU-1"}, Indexes: []int{1}, Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 2}}, Unenforced: true},
	}}
	text, err := made.Annotation()
	require.NoError(t, err)
	read, ok, err := contract.ConfirmationFrom(map[string]string{contract.ConfirmedAnnotation: text})
	require.NoError(t, err)
	assert.True(t, ok)
	made.Version = contract.ConfirmationVersion
	assert.Equal(t, made, read)

	_, ok, err = contract.ConfirmationFrom(nil)
	assert.False(t, ok)
	require.NoError(t, err)
	_, _, err = contract.ConfirmationFrom(map[string]string{contract.ConfirmedAnnotation: "yes"})
	require.ErrorContains(t, err, "is not a confirmation of GPUs")
	_, _, err = contract.ConfirmationFrom(map[string]string{contract.ConfirmedAnnotation: `{"version": 2}`})
	require.ErrorContains(t, err, "has version 2; this program reads version 1")
}
