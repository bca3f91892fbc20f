package gpu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMachine(t *testing.T) {
	m, err := ParseMachine([]byte(`{
		"name": "two", "gpuModel": "Some GPU", "nvlinkGen": 5, "pcieGen": 5, "p2p": false, "nvswitch": true,
		"note": "ignored", "sources": ["a dump"],
		"gpus": [
			{"index": 3, "uuid": "GPU-3", "memoryMiB": 81920, "pciBusId": "0000:0A:00.0"},
			{"index": 1, "numa": 1, "cpuAffinity": "0-7", "unhealthy": "XID 79"}
		],
		"links": [["X", "NV2"], ["NV1", "X"]],
		"pcieLinks": [["X", "PHB"], ["NODE", "X"]],
		"nics": {"mlx5_10": ["SYS", "PIX"], "mlx5_2": ["PIX", "SYS"]}
	}`))
	require.NoError(t, err)
	assert.Equal(t, Machine{
		Name: "two", Model: "Some GPU", NVLinkGBps: 50, PCIeGeneration: 5, P2P: NoP2P(2), NVSwitch: true,
		GPUs: []GPU{
			{Index: 1, NUMANode: 1, CPUAffinity: "0-7", Unhealthy: "XID 79"},
			{Index: 3, UUID: "GPU-3", MemoryMiB: 81920, NUMANode: -1, PCIBusID: "0000:0A:00.0"},
		},
		Links:     [][]Link{{{Class: Self}, {Class: NVLink, Lanes: 1}}, {{Class: NVLink, Lanes: 2}, {Class: Self}}},
		PCIeLinks: [][]Link{{{Class: Self}, {Class: NODE}}, {{Class: PHB}, {Class: Self}}},
		NICs: []NIC{
			{Name: "mlx5_2", Links: []Link{{Class: SYS}, {Class: PIX}}},
			{Name: "mlx5_10", Links: []Link{{Class: PIX}, {Class: SYS}}},
		},
	}, m)
}

func TestParseMachineRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:               "parse machine: unexpected end of JSON input",
		`[]`:             "parse machine: json: cannot unmarshal array",
		`{}`:             "parse machine: gpus is missing",
		`{"gpus": [3]}`:  "parse machine: json: cannot unmarshal number",
		`{"gpus": [{}]}`: "links has 0 rows: want one per GPU, 1",
		`{"gpus": [{}, {"index": 1}], "links": [["X", "NV99"], ["NV99", "X"]]}`:              `unknown link "NV99"`,
		`{"gpus": [{}, {"index": 1}], "links": [["X", "NV1"], ["NV1", "X"]]}`:                "the bandwidth of one NVLink is missing",
		`{"gpus": [{}], "links": [["X"]], "gbpsPerLinkUni": -1}`:                             "bandwidth of one NVLink of -1 GB/s",
		`{"gpus": [{}], "links": [["X"]], "nics": {"mlx5_0": []}}`:                           `network device "mlx5_0" has 0 links`,
		`{"gpus": [{}], "links": [["X"]], "nvlinkGen": -1, "pcieLinks": [["X"], ["X"]]}`:     "pcieLinks has 2 rows",
		`{"gpus": [{}], "links": [["X"]], "p2p": {"read": [["no"]]}}`:                        `unknown peer-to-peer status "no"`,
		`{"gpus": [{}], "links": [["X"]], "p2p": {"write": [["X"], ["X"]]}}`:                 "p2p.write has 2 rows: want one per GPU, 1",
		`{"gpus": [{}], "links": [["X"]], "p2p": {"nvlink": [[]]}}`:                          "p2p.nvlink row 0 has 0 cells: want one per GPU, 1",
		`{"gpus": [{}, {"index": 0}], "links": [["X", "PIX"], ["PIX", "X"]], "pcieGen": 3 }`: "both have index 0",
	} {
		_, err := ParseMachine([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestMachineSurvivesJSON(t *testing.T) {
	machines := fixtures(t)
	paired := machines["a100-pcie-4-one-bridge"]
	paired.P2P = P2P{Read: NoP2P(4).Read, Atomics: NoP2P(4).Write}
	machines["some of P2P"] = paired
	machines["without GPUs"] = Machine{GPUs: []GPU{}, Links: [][]Link{}}
	for name, m := range machines {
		data, err := json.Marshal(m)
		require.NoError(t, err)
		back, err := ParseMachine(data)
		require.NoError(t, err, name)
		assert.Equal(t, m, back, name)
	}
}

func FuzzParseMachine(f *testing.F) {
	paths, err := filepath.Glob("testdata/topologies/*.json")
	require.NoError(f, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"gpus": [{"index": 2}, {}], "links": [["X", "N/A"], ["SYS", "X"]], "nics": {"": ["PIX", "X"]}}`))
	f.Add([]byte(`{"gpus": [{"index": 2}, {}], "links": [["X", "PHB"], ["PHB", "X"]], "p2p": {"read": [["U", "OK"], ["GNS", "X"]], "atomics": []}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMachine(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		back, err := ParseMachine(again)
		require.NoError(t, err)
		require.Equal(t, m, back)
		if len(m.GPUs) > 8 && len(m.GPUs) <= maxExactGPUs {
			return // takes too long for fuzzing
		}
		table := newTable(t, m)
		best, ok := table.Best(Full(MaxGPUs), m.Healthy().Len())
		require.True(t, ok)
		require.Equal(t, m.Healthy(), best)
	})
}
