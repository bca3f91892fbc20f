package topology

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/features"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// labelling starts an agent of a machine whose GPUs are not simulated, which labels its Node.
func (w *world) labelling(t *testing.T) *agent {
	t.Helper()
	m := wired(t, "dgx1-v100")
	for i := range m.GPUs {
		m.GPUs[i].MemoryMiB = 32768
	}
	a := w.start(t, m)
	a.FeatureLabels = true
	a.source.change(func(r *hardware.Reading) {
		for range m.GPUs {
			r.GPUs = append(r.GPUs, hardware.GPU{NVLinks: 6})
		}
	})
	return a
}

// label has someone else write a label of the Node, and give up the one of before.
func (w *world) label(t *testing.T, key, value string) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(nodeKind)
	obj.SetName(nodeName)
	obj.SetLabels(map[string]string{key: value})
	_, err := w.client.ApplyAs(w.ctx, "someone", obj)
	require.NoError(t, err)
}

func (w *world) labels(t *testing.T) map[string]string {
	t.Helper()
	node, err := w.client.Get(w.ctx, nodeKind, "", nodeName)
	require.NoError(t, err)
	return node.GetLabels()
}

// shows waits until the agent knows of a label of the Node.
func (a *agent) shows(key, value string) {
	a.t.Helper()
	a.seen("the label", func() bool { return a.Nodes.Get(cluster.Node, nodeName).GetLabels()[key] == value })
}

func TestTheNodeIsLabelled(t *testing.T) {
	w := newWorld(t)
	a := w.labelling(t)
	a.round()
	labels := w.labels(t)
	assert.Equal(t, "topology", labels[contract.NodeModeLabel], "others' labels stay")
	assert.Equal(t, "8", labels[contract.GFDCountLabel])
	assert.Equal(t, "32768", labels[contract.GFDMemoryLabel])
	assert.Equal(t, "550.1", labels[contract.GFDDriverVersionLabel])
	assert.Len(t, labels, 1+len(features.Labels(a.source.reading)))

	assert.Nil(t, a.labelsDue(t), "nothing is asked of the API server")
	a.source.change(func(r *hardware.Reading) { r.DriverVersion = "560.2" })
	a.round()
	assert.Equal(t, "560.2", w.labels(t)[contract.GFDDriverVersionLabel])

	w.label(t, contract.GFDCountLabel, "7")
	w.label(t, "example.com/other", "x") // and gives up the other one, which is gone
	a.shows("example.com/other", "x")
	a.round()
	assert.Equal(t, "8", w.labels(t)[contract.GFDCountLabel])

	writes := w.Writes()
	again := w.labelling(t)
	again.source.change(func(r *hardware.Reading) { r.DriverVersion = "" })
	again.round()
	assert.NotContains(t, w.labels(t), contract.GFDDriverVersionLabel, "what an earlier agent had written goes")
	assert.Equal(t, writes+2, w.Writes(), "the labels, and who the agent is")

	again.source.fail(errors.New("driver not loaded"))
	again.round()
	assert.Equal(t, "8", w.labels(t)[contract.GFDCountLabel], "GPUs that cannot be read have not gone")
	again.source.set(hardware.Reading{GPUs: []hardware.GPU{}})
	again.round()
	assert.Equal(t, map[string]string{contract.NodeModeLabel: "topology", "example.com/other": "x"}, w.labels(t), "the GPUs have gone")
}

// labelsDue is the write of labels that is due.
func (a *agent) labelsDue(t *testing.T) func(context.Context) error {
	t.Helper()
	return a.writeLabels(a.Nodes.Get(cluster.Node, nodeName))
}

func TestLabelsAreAChoice(t *testing.T) {
	w := newWorld(t)
	w.labelling(t).round()
	without := w.labelling(t)
	without.FeatureLabels = false
	without.round()
	assert.Equal(t, map[string]string{contract.NodeModeLabel: "topology"}, w.labels(t))
	assert.Nil(t, without.labelsDue(t), "nothing is asked of the API server")
	again := w.labelling(t)
	again.FeatureLabels = false
	again.synced()
	again.look(w.ctx)
	assert.Nil(t, again.labelsDue(t), "the Node has no labels of an earlier agent")
}

func TestLabelsOfOthersStay(t *testing.T) {
	w := newWorld(t)
	w.label(t, contract.GFDProductLabel, "theirs")
	a := w.labelling(t)
	a.round()
	assert.Equal(t, "theirs", w.labels(t)[contract.GFDProductLabel])
	assert.Equal(t, "8", w.labels(t)[contract.GFDCountLabel], "the other labels are written")
	assert.Contains(t, a.log.String(), "label="+contract.GFDProductLabel+" manager=someone")
	assert.Nil(t, a.labelsDue(t), "the API server is not asked again")

	w.label(t, contract.GFDCountLabel, "7") // and gives up the other
	a.shows(contract.GFDCountLabel, "7")
	a.round()
	assert.Equal(t, "7", w.labels(t)[contract.GFDCountLabel])
	assert.NotEqual(t, "theirs", w.labels(t)[contract.GFDProductLabel])

	w.label(t, "example.com/other", "x") // gives it up
	a.shows("example.com/other", "x")
	a.round()
	assert.Equal(t, "8", w.labels(t)[contract.GFDCountLabel])
}

func TestFeatureDiscoveryGoesFirst(t *testing.T) {
	w := newWorld(t)
	a := w.labelling(t)
	a.round()
	w.eventsSoFar()
	w.label(t, contract.GFDTimestampLabel, "1724632719")
	a.shows(contract.GFDTimestampLabel, "1724632719")
	a.source.change(func(r *hardware.Reading) { r.DriverVersion = "560.2" })
	a.round()
	assert.Equal(t, "550.1", w.labels(t)[contract.GFDDriverVersionLabel], "it is GFD's to write")
	assert.Equal(t, []string{"Normal FeatureLabelsStayOut NVIDIA's GPU feature discovery labels the Node: the node agent leaves these labels alone"}, w.eventsSoFar())
	a.round()
	assert.Empty(t, w.eventsSoFar(), "it is said once")

	w.label(t, "example.com/other", "x") // GFD has gone
	a.shows("example.com/other", "x")
	a.round()
	assert.Equal(t, "560.2", w.labels(t)[contract.GFDDriverVersionLabel])
}
