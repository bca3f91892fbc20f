package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// machines returns the described machines of the gpu package by file name.
func machines(t *testing.T) map[string]gpu.Machine {
	t.Helper()
	files, err := filepath.Glob("../gpu/testdata/topologies/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string]gpu.Machine{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		m, err := gpu.ParseMachine(data)
		require.NoError(t, err, file)
		found[filepath.Base(file)] = m
	}
	return found
}

func TestStatusRoundTrip(t *testing.T) {
	for name, m := range machines(t) {
		t.Run(name, func(t *testing.T) {
			m.GPUs[0].Unhealthy = "XID 79: the GPU has fallen off the bus"
			m.GPUs[1].NUMANode = -1

			text, err := json.Marshal(contract.StatusOf(m))
			require.NoError(t, err)
			var status contract.GPUNodeStatus
			require.NoError(t, json.Unmarshal(text, &status))
			got, err := status.Machine()

			require.NoError(t, err)
			assert.Equal(t, m, got)
		})
	}
}

// What each pair of GPUs can is published; an earlier agent said it of all of them, and an earlier scheduler reads it so.
func TestStatusOfPeerToPeer(t *testing.T) {
	m := machines(t)["rtx4090-8-all-sys.json"]
	status := contract.StatusOf(m)
	assert.Equal(t, "X NS NS NS NS NS NS NS", status.P2P.Read[0])
	assert.True(t, status.NoP2P)
	earlier := status
	earlier.P2P = nil
	got, err := earlier.Machine()
	require.NoError(t, err)
	assert.Equal(t, m, got)

	m.P2P.Read[0][1], m.P2P.Read[1][0] = gpu.P2POK, gpu.P2POK
	m.P2P.Write[0][1], m.P2P.Write[1][0] = gpu.P2POK, gpu.P2PTopology
	status = contract.StatusOf(m)
	assert.Equal(t, "TNS X NS NS NS NS NS NS", status.P2P.Write[1])
	assert.False(t, status.NoP2P, "it does not hold for all pairs")
	got, err = status.Machine()
	require.NoError(t, err)
	assert.Equal(t, m, got)

	status.P2P.Atomics = []string{"?"}
	_, err = status.Machine()
	assert.ErrorContains(t, err, `p2p.atomics row 0: unknown peer-to-peer status "?"`)
	assert.Nil(t, contract.StatusOf(machines(t)["dgx1-v100.json"]).P2P, "nothing is known")
}

func TestStatusAfterAGPUWasLost(t *testing.T) {
	m := machines(t)["dgx1-v100.json"]
	m.GPUs = append(m.GPUs[:3:3], m.GPUs[4:]...)
	for i, row := range m.Links {
		m.Links[i] = append(row[:3:3], row[4:]...)
	}
	m.Links = append(m.Links[:3:3], m.Links[4:]...)
	m.PCIeLinks, m.NICs = nil, nil

	got, err := contract.StatusOf(m).Machine()

	require.NoError(t, err)
	assert.Equal(t, 4, got.GPUs[3].Index, "the position is not the NVML index")
	assert.Equal(t, "NV2", got.Links[0][3].String(), "link 0-4")
}

// Who looks once has the clock of the node alone.
func TestDoubtOfASilentAgent(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		0: "", contract.HeartbeatLimit: "", -contract.HeartbeatLimit: "",
		26 * time.Minute:  "the node agent is silent since 2026-01-02T02:34:00Z",
		-26 * time.Minute: "the node agent may be silent: by the clock of the node, which is ahead of the one here, it was heard of at 2026-01-02T03:26:00Z",
	} {
		status := contract.GPUNodeStatus{Agent: &contract.AgentInfo{Heartbeat: metav1.NewTime(now.Add(-age))}}
		assert.Equal(t, want, status.Doubt(now), "%s", age)
	}
	assert.Empty(t, contract.GPUNodeStatus{}.Doubt(now))
}

func TestStatusForm(t *testing.T) {
	status := contract.StatusOf(machines(t)["dgx1-v100.json"])

	assert.Equal(t, "25", status.NVLinkGBps)
	assert.Equal(t, "X NV1 NV1 NV2 NV2 SYS SYS SYS", status.Links[0])
	assert.Equal(t, contract.Healthy, status.GPUs[0].Health)
	assert.Equal(t, contract.NICInfo{Name: "mlx5_0", Links: "PIX PIX PHB PHB SYS SYS SYS SYS"}, status.NICs[0])
}

func TestStatusThatCannotBeUsed(t *testing.T) {
	good := contract.StatusOf(machines(t)["a100-sxm-4-nv4.json"])
	for name, test := range map[string]struct {
		spoil func(*contract.GPUNodeStatus)
		want  string
	}{
		"unknown link":       {func(s *contract.GPUNodeStatus) { s.Links = []string{"X NV0"} }, "links row 0: unknown link"},
		"missing row":        {func(s *contract.GPUNodeStatus) { s.Links = s.Links[:3] }, "links has 3 rows"},
		"no number":          {func(s *contract.GPUNodeStatus) { s.NVLinkGBps = "fast" }, `nvlinkGBps "fast"`},
		"network device":     {func(s *contract.GPUNodeStatus) { s.NICs = []contract.NICInfo{{Name: "e0", Links: "up"}} }, "network device e0"},
		"link without speed": {func(s *contract.GPUNodeStatus) { s.NVLinkGBps = "" }, "bandwidth of one NVLink is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			status := good
			test.spoil(&status)
			_, err := status.Machine()
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestUnhealthyWithoutAReasonIsStillUnhealthy(t *testing.T) {
	status := contract.StatusOf(machines(t)["a100-sxm-4-nv4.json"])
	status.GPUs[2].Health = contract.Unhealthy

	m, err := status.Machine()

	require.NoError(t, err)
	assert.Equal(t, gpu.SetOf(0, 1, 3), m.Healthy())
}
