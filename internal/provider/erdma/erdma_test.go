package erdma_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/erdma"
)

func TestByNUMANode(t *testing.T) {
	for config, want := range map[string]bool{
		`{}`: true, `{"agent":{}}`: true, `{"agent":{"preferDriver":"ofed"}}`: true, `{"agent":""}`: true, `{"agent":{"allocateAllDevices":""}}`: true,
		`{"agent":{"allocateAllDevices":false}}`: true, `{"agent":{"allocateAllDevices":true}}`: false,
	} {
		var c map[string]any
		require.NoError(t, json.Unmarshal([]byte(config), &c))
		assert.Equal(t, want, erdma.ByNUMANode(c), config)
	}
}

func TestHasDevices(t *testing.T) {
	const with, without = "ecs.ebmgn8is.32xlarge", "ecs.gn6v-c10g1.20xlarge"
	assert.True(t, erdma.HasDevices([]string{with}))
	assert.True(t, erdma.HasDevices([]string{without, with}), "a fallback")
	assert.False(t, erdma.HasDevices([]string{without, "ecs.unknown.large"}))
	assert.False(t, erdma.HasDevices(nil))
}

func TestPins(t *testing.T) {
	pool := func(policy, kubelet string) acs.NodePoolSpec {
		return acs.NodePoolSpec{KubernetesConfig: acs.KubernetesConfig{CPUPolicy: policy}, NodeConfig: acs.NodeConfig{Kubelet: &acs.KubeletConfig{CPUManagerPolicy: kubelet}}}
	}
	assert.True(t, erdma.Pins(pool("static", "")))
	assert.True(t, erdma.Pins(pool("none", "static")))
	assert.False(t, erdma.Pins(pool("none", "")))
	assert.False(t, erdma.Pins(acs.NodePoolSpec{}))
}
