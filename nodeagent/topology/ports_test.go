package topology

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// The states of RDMA ports are published, and an event tells when one can no longer be used, or can again.
func TestRDMAPorts(t *testing.T) {
	w := newWorld(t)
	m := wired(t, "dgx1-v100")
	m.NICs = nil
	for _, name := range []string{"erdma_0", "erdma_1"} {
		m.NICs = append(m.NICs, gpu.NIC{Name: name, Links: make([]gpu.Link, len(m.GPUs))})
	}
	a := w.start(t, m)
	states := func(ports map[string]string) {
		a.source.change(func(r *hardware.Reading) {
			r.Ports, r.LockableKiB = map[string]hardware.Port{}, 64
			for name, state := range ports {
				r.Ports[name] = hardware.Port{State: state, GID: "1", MTUBytes: 1500, Driver: "erdma"}
			}
			r.Redirecting = map[string][]string{"erdma_1": {"0000:02:00.0"}}
		})
		a.round()
	}
	for _, step := range []struct {
		ports     map[string]string
		want      []string
		condition string
		event     string
	}{
		{nil, []string{"", ""}, "", ""},
		{map[string]string{"erdma_0": "ACTIVE"}, []string{"ACTIVE", ""}, "True: 1 RDMA devices", ""},
		{map[string]string{"erdma_0": "DOWN"}, []string{"DOWN", ""}, "False: the port of RDMA device erdma_0 is DOWN, and not ACTIVE", "Warning RDMAPortDown The port of RDMA device erdma_0 is DOWN, and not ACTIVE: jobs that use it run without RDMA, or not at all"},
		{map[string]string{"erdma_0": "INIT", "erdma_1": "ACTIVE"}, []string{"INIT", "ACTIVE"}, "False: the port of RDMA device erdma_0 is INIT, and not ACTIVE", ""},
		{map[string]string{"erdma_0": "ACTIVE", "erdma_1": "ACTIVE"}, []string{"ACTIVE", "ACTIVE"}, "True: 2 RDMA devices", "Normal RDMAPortActive The port of RDMA device erdma_0 can be used again"},
		{nil, []string{"", ""}, "False: the machine has no RDMA device with a port, and had one", ""},
	} {
		states(step.ports)
		var have []string
		status := w.gpuNode(t).Status
		for _, nic := range status.NICs {
			have = append(have, nic.Port)
			if nic.Port != "" {
				assert.Equal(t, contract.NICInfo{Name: nic.Name, Links: nic.Links, Port: nic.Port, GID: "1", MTUBytes: 1500, Driver: "erdma", RedirectedBy: nic.RedirectedBy}, nic)
			}
		}
		assert.Equal(t, int64(64), status.LockableKiB)
		assert.Equal(t, step.want, have)
		assert.Empty(t, status.NICs[0].RedirectedBy)
		assert.Equal(t, []string{"0000:02:00.0"}, status.NICs[1].RedirectedBy)
		events := slices.DeleteFunc(w.eventsSoFar(), func(e string) bool { return !strings.Contains(e, "RDMA") })
		assert.Equal(t, step.event, strings.Join(events, "\n"))
		assert.Equal(t, step.condition, w.rdmaReady(t))
	}
}

// rdmaReady is what the Node says of its RDMA devices, "" for nothing.
func (w *world) rdmaReady(t *testing.T) string {
	t.Helper()
	node, err := w.client.Get(w.ctx, nodeKind, "", nodeName)
	require.NoError(t, err)
	gpus, err := condition.Find(node, contract.GPUsReadyCondition)
	require.NoError(t, err)
	require.NotNil(t, gpus, "it stays beside the other")
	ready, err := condition.Find(node, contract.RDMAReadyCondition)
	require.NoError(t, err)
	if ready == nil {
		return ""
	}
	return string(ready.Status) + ": " + ready.Message
}

// A device goes with its kernel module.
func TestAnRDMADeviceThatIsGone(t *testing.T) {
	w := newWorld(t)
	m := wired(t, "dgx1-v100")
	m.NICs = []gpu.NIC{{Name: "erdma_0", Links: make([]gpu.Link, len(m.GPUs))}}
	a := w.start(t, m)
	a.source.change(func(r *hardware.Reading) {
		r.Ports = map[string]hardware.Port{"erdma_0": {State: contract.PortActive, GID: "1", Driver: "erdma"}}
	})
	a.round()
	assert.Empty(t, w.eventsSoFar())
	a.source.change(func(r *hardware.Reading) { r.Machine.NICs, r.Ports = nil, nil })
	a.round()
	assert.Equal(t, []string{"Warning RDMADeviceGone The machine has no RDMA device erdma_0 any more: jobs that use it run without RDMA, or not at all"}, w.eventsSoFar())
	assert.Equal(t, "False: the machine has no RDMA device with a port, and had one", w.rdmaReady(t))
	writes := w.Writes()
	a.round()
	assert.Equal(t, writes, w.Writes(), "it is no news")
}
