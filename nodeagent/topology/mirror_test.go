package topology

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
)

// The labels and keys by which `arena top node` finds and reads the mirror
// (kubeflow/arena, pkg/topnode/gputopology.go).
func TestMirrorIsReadableByArena(t *testing.T) {
	for name, want := range map[string]struct {
		gpus    int
		first   []string
		gbps01  float64
		gbpsFar float64
	}{
		"dgx1-v100":         {8, []string{"N-A", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"}, 50, 0},
		"ack-sample-4xv100": {4, []string{"N-A", "NV2", "NV1", "NV2"}, 100, 100},
		"a100-sxm-4-nv4":    {4, []string{"N-A", "NV4", "NV4", "NV4"}, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start(t, machine(t, name)).round()
			mirror := w.mirror(t)

			assert.Equal(t, "topology", mirror.GetLabels()["ack.node.gpu.schedule"])
			assert.Equal(t, nodeName, mirror.GetLabels()["nodename"])
			var devices map[string]string
			var links [][]string
			var bandwidths [][]float64
			decode(t, mirror, "devices", &devices)
			decode(t, mirror, "linkType", &links)
			decode(t, mirror, "bandwidth", &bandwidths)
			assert.Len(t, devices, want.gpus)
			assert.Equal(t, contract.Healthy, devices["0"])
			assert.Equal(t, want.first, links[0])
			assert.Len(t, bandwidths, want.gpus)
			assert.InDelta(t, want.gbps01, bandwidths[0][1], 1e-9, "both directions")
			if want.gbpsFar > 0 {
				assert.InDelta(t, want.gbpsFar, bandwidths[0][want.gpus-1], 1e-9)
			} else {
				assert.Less(t, bandwidths[0][want.gpus-1], bandwidths[0][1], "across the sockets is slower")
			}
		})
	}
}

// What others put beside what is the agent's in the mirror is no reason to write it again.
func TestWhatOthersAddToTheMirrorStays(t *testing.T) {
	w := newWorld(t)
	a := w.start(t, machine(t, "dgx1-v100"))
	a.round()
	mirror := w.mirror(t)
	require.NoError(t, unstructured.SetNestedField(mirror.Object, "theirs", "data", "note"))
	labels := mirror.GetLabels()
	labels["backup"] = "weekly"
	mirror.SetLabels(labels)
	w.Put(mirror)
	a.seen("what another has added", func() bool { return a.Nodes.Get(cluster.Mirror, nodeName).GetLabels()["backup"] == "weekly" })
	live, err := a.live()
	require.NoError(t, err)
	owner := mirror.GetOwnerReferences()[0]
	assert.Nil(t, a.writeMirror(a.status(live.Status), modeTopology, owner))

	require.NoError(t, unstructured.SetNestedField(mirror.Object, "theirs", "data", "devices"))
	w.Put(mirror)
	a.seen("what another has changed", func() bool {
		text, _, _ := unstructured.NestedString(a.Nodes.Get(cluster.Mirror, nodeName).Object, "data", "devices")
		return text == "theirs"
	})
	assert.NotNil(t, a.writeMirror(a.status(live.Status), modeTopology, owner))
}
