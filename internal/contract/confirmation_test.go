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

func FuzzConfirmationFrom(f *testing.F) {
	f.Add(`{"version":1,"node":"n1","containers":{"main":{"way":"CDI","gpus":["GPU-1"],"indexes":[-1],"shares":[{"gpu":1,"memoryGiB":4}],"unenforced":true}}}`)
	f.Add(`{"version":1,"containers":{"":null,"\ud800":{}}}`)
	f.Add(`{"version":1,"containers":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		confirmation, ok, err := contract.ConfirmationFrom(map[string]string{contract.ConfirmedAnnotation: text})
		assert.True(t, ok)
		if err != nil {
			assert.Zero(t, confirmation)
			assert.Less(t, len(err.Error()), 1000)
			return
		}
		written, err := confirmation.Annotation()
		require.NoError(t, err)
		again, _, err := contract.ConfirmationFrom(map[string]string{contract.ConfirmedAnnotation: written})
		require.NoError(t, err)
		same, err := again.Annotation()
		require.NoError(t, err)
		assert.Equal(t, written, same)
	})
}
