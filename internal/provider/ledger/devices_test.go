package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Whoever is visited second finds out.
func TestDevicesOfUnpinnedPools(t *testing.T) {
	l := ledger.New()
	assert.False(t, l.UnpinnedPool("b"))
	assert.False(t, l.UnpinnedPool("a"))
	assert.Equal(t, []string{"a", "b"}, l.DevicesByNUMANode())
	assert.True(t, l.UnpinnedPool("c"))
	assert.Empty(t, ledger.New().DevicesByNUMANode())
}
