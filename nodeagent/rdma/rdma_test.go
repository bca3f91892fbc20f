package rdma_test

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
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
		{Device: "erdma_2", Number: 1, Port: hardware.Port{State: "DOWN"}, Received: bytes(5), Sent: bytes(6)},
		{Device: "erdma_10", Number: 1, Port: hardware.Port{State: "ACTIVE"}, Received: bytes(18446744073709551615), Sent: bytes(7)},
		{Device: "mlx5_0", Number: 1, Port: hardware.Port{State: "ACTIVE"}, Received: bytes(40)},
		{Device: "mlx5_0", Number: 2},
	}, ports)
	best, err := rdma.Best(sysfs)
	require.NoError(t, err)
	assert.Equal(t, map[string]hardware.Port{"erdma_2": {State: "DOWN"}, "erdma_10": {State: "ACTIVE"}, "mlx5_0": {State: "ACTIVE"}}, best)
	assert.True(t, ports[1].Active())
	assert.False(t, ports[0].Active())
}

// A port is reached by a GID of RoCE v2, of IPv4 where there is one, over the network interface that has it.
func TestAddressesOfPorts(t *testing.T) {
	const (
		local = "fe80:0000:0000:0000:0216:3eff:fe01:0203"
		ipv4  = "0000:0000:0000:0000:0000:ffff:c0a8:0001"
		empty = "0000:0000:0000:0000:0000:0000:0000:0000"
	)
	type gid struct{ value, kind string }
	for name, test := range map[string]struct {
		layer string
		gids  []gid
		want  hardware.Port
		// pod means that the tree is that of a pod with a network of its own.
		pod bool
	}{
		"IPv4 goes before the rest": {"Ethernet", []gid{{local, "IB/RoCE v1"}, {local, "RoCE v2"}, {ipv4, "IB/RoCE v1"}, {ipv4, "RoCE v2"}}, hardware.Port{GID: "3", MTUBytes: 8500}, false},
		"of a pod":                  {"Ethernet", []gid{{ipv4, "RoCE v2"}}, hardware.Port{GID: "0"}, true},
		"link-local alone":          {"Ethernet", []gid{{empty, ""}, {local, "RoCE v2"}}, hardware.Port{GID: "1", MTUBytes: 8500}, false},
		"no address":                {"Ethernet", []gid{{empty, "RoCE v2"}, {"what is this", "RoCE v2"}, {local, "IB/RoCE v1"}}, hardware.Port{GID: contract.NoGID}, false},
		"no table":                  {"Ethernet", nil, hardware.Port{}, false},
		"InfiniBand":                {"InfiniBand", []gid{{local, ""}}, hardware.Port{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sysfs := t.TempDir()
			port := filepath.Join(sysfs, "class", "infiniband", "erdma_0", "ports", "1")
			write := func(text string, path ...string) {
				t.Helper()
				file := filepath.Join(path...)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
			}
			write(test.layer, port, "link_layer")
			write("8500", sysfs, "class", "net", "eth1", "mtu")
			if !test.pod {
				write("0", port, "hw_counters", "rx_bytes_cnt")
			}
			for i, gid := range test.gids {
				index := strconv.Itoa(i)
				write(gid.value, port, "gids", index)
				write(gid.kind, port, "gid_attrs", "types", index)
				write("eth1", port, "gid_attrs", "ndevs", index)
			}
			device := filepath.Join(sysfs, "class", "infiniband", "erdma_0", "device")
			require.NoError(t, os.MkdirAll(device, 0o700))
			require.NoError(t, os.Symlink("../../../../bus/pci/drivers/erdma", filepath.Join(device, "driver")))
			test.want.Driver = "erdma"

			ports, err := rdma.Ports(sysfs)

			require.NoError(t, err)
			require.Len(t, ports, 1)
			assert.Equal(t, test.want, ports[0].Port)
		})
	}
}

// Whatever a driver writes, what is told of a port makes sense.
func FuzzPorts(f *testing.F) {
	f.Add("4: ACTIVE", "Ethernet", "0000:0000:0000:0000:0000:ffff:c0a8:0001", "RoCE v2", "8500", "7")
	f.Add("ACTIVE", "InfiniBand", "", "IB/RoCE v1", "1500", "N/A (no PMA)")
	f.Add(":", "Ethernet", "fe80::1", "RoCE v2", "-1", "-18446744073709551616")
	f.Add("4: \xff", "Ethernet", "fe80::1", "RoCE v2", "99999999999999999999", "1e3")
	f.Fuzz(func(t *testing.T, state, layer, gid, kind, mtu, count string) {
		sysfs := t.TempDir()
		for file, text := range map[string]string{
			"infiniband/erdma_0/ports/1/state": state, "infiniband/erdma_0/ports/1/link_layer": layer, "infiniband/erdma_0/ports/1/gids/0": gid,
			"infiniband/erdma_0/ports/1/gid_attrs/types/0": kind, "infiniband/erdma_0/ports/1/gid_attrs/ndevs/0": "eth1", "net/eth1/mtu": mtu,
			"infiniband/erdma_0/ports/1/hw_counters/rx_bytes_cnt": count,
		} {
			path := filepath.Join(sysfs, "class", file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		ports, err := rdma.Ports(sysfs)
		require.NoError(t, err)
		require.Len(t, ports, 1)
		assert.Contains(t, []string{"", contract.NoGID, "0"}, ports[0].GID)
		assert.True(t, ports[0].MTUBytes >= 0 && ports[0].MTUBytes <= math.MaxInt32, ports[0].MTUBytes)
		if ports[0].MTUBytes > 0 {
			assert.Equal(t, "0", ports[0].GID, "the MTU is that of the GID's interface")
		}
		if ports[0].Received != nil {
			assert.GreaterOrEqual(t, *ports[0].Received, 0.0)
		}
		assert.Nil(t, ports[0].Sent)
	})
}
