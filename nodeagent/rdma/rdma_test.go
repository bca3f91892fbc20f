package rdma_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/rdma"
)

func TestPorts(t *testing.T) {
	sysfs := t.TempDir()
	ports, err := rdma.Ports(sysfs)
	require.NoError(t, err)
	assert.Empty(t, ports)

	for file, text := range map[string]string{
		"erdma_10/ports/1/state":                        "4: ACTIVE\n",
		"erdma_10/ports/1/hw_counters/rx_bytes_cnt":     "18446744073709551615\n",
		"erdma_10/ports/1/hw_counters/tx_bytes_cnt":     "7\n",
		"erdma_2/ports/1/state":                         "1: DOWN\n",
		"erdma_2/hw_counters/hw_rx_bytes_cnt":           "5\n",
		"erdma_2/hw_counters/hw_tx_bytes_cnt":           "6\n",
		"mlx5_0/ports/1/state":                          "4: ACTIVE\n",
		"mlx5_0/ports/1/counters/port_rcv_data":         "10\n",
		"mlx5_0/ports/1/counters/port_xmit_data":        "N/A (no PMA)\n",
		"mlx5_0/ports/2/state":                          "",
		"mlx5_0/ports/x/state":                          "4: ACTIVE\n",
		"mlx5_1/ports_of_another_driver/and/what/it/is": "",
	} {
		path := filepath.Join(sysfs, "class", "infiniband", file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	bytes := func(n float64) *float64 { return &n }
	ports, err = rdma.Ports(sysfs)
	require.NoError(t, err)
	assert.Equal(t, []rdma.Port{
		{Device: "erdma_2", Number: 1, State: "DOWN", Received: bytes(5), Sent: bytes(6)},
		{Device: "erdma_10", Number: 1, State: "ACTIVE", Received: bytes(18446744073709551615), Sent: bytes(7)},
		{Device: "mlx5_0", Number: 1, State: "ACTIVE", Received: bytes(40)},
		{Device: "mlx5_0", Number: 2},
	}, ports)
	states, err := rdma.States(sysfs)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"erdma_2": "DOWN", "erdma_10": "ACTIVE", "mlx5_0": "ACTIVE"}, states)
	assert.True(t, ports[1].Active())
	assert.False(t, ports[0].Active())
}
