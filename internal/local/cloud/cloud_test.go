package cloud

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

const v100Type = "ecs.gn6v-c10g1.20xlarge"

func cloudNode(mode string) acsfake.Node {
	node := acsfake.Node{
		Name: "cn-hangzhou.10.0.1.2", InstanceID: "i-1", InstanceType: v100Type, Index: 1,
		Labels: map[string]string{contract.InstanceTypeLabel: v100Type},
		Taints: []acsfake.Taint{{Key: "a", Value: "1", Effect: "NoSchedule"}},
	}
	if mode != "" {
		node.Labels[contract.NodeModeLabel] = mode
	}
	return node
}

func count(t *testing.T, node *corev1.Node, name corev1.ResourceName) int64 {
	t.Helper()
	require.Contains(t, node.Status.Allocatable, name)
	quantity := node.Status.Allocatable[name]
	return quantity.Value()
}

func TestNodeOffersWhatItsModeDoes(t *testing.T) {
	for mode, want := range map[string]map[corev1.ResourceName]int64{
		"":         {contract.ResourceDefaultGPU: 8, contract.ResourceTopologyGPU: 0, contract.ResourceGPUMemory: 0},
		"default":  {contract.ResourceDefaultGPU: 8, contract.ResourceTopologyGPU: 0, contract.ResourceGPUMemory: 0},
		"topology": {contract.ResourceDefaultGPU: 0, contract.ResourceTopologyGPU: 8, contract.ResourceGPUMemory: 0},
		"share":    {contract.ResourceDefaultGPU: 0, contract.ResourceTopologyGPU: 0, contract.ResourceGPUMemory: 120},
		"core_mem": {contract.ResourceDefaultGPU: 0, contract.ResourceGPUMemory: 120, contract.ResourceCorePercent: 800},
	} {
		t.Run(mode, func(t *testing.T) {
			node, err := nodeObject(cloudNode(mode), true)
			require.NoError(t, err)
			for name, n := range want {
				assert.Equal(t, n, count(t, node, name), name)
			}
			assert.Positive(t, count(t, node, corev1.ResourceEphemeralStorage), "launchers of MPI jobs ask for some")
			assert.Equal(t, "dgx1-v100", node.Annotations[contract.SimulatedWiringAnnotation])
			assert.Equal(t, "10.0.1.2", node.Status.Addresses[0].Address)
			assert.Equal(t, []corev1.Taint{{Key: "a", Value: "1", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints)
		})
	}
	_, err := nodeObject(cloudNode("no-such-mode"), true)
	assert.ErrorContains(t, err, "no-such-mode")
	unknown := cloudNode("")
	unknown.InstanceType = "ecs.no.such"
	_, err = nodeObject(unknown, true)
	assert.ErrorContains(t, err, "not in the catalogue")
}

// A node has eRDMA devices when what sets them up was there before it, whatever its mode becomes.
func TestERDMADevices(t *testing.T) {
	n := &nodes{client: fake.NewClientset(), hardware: t.TempDir()}
	for _, state := range []string{"", "initial", "active", "deleting"} {
		t.Run(state, func(t *testing.T) {
			var s acsfake.State
			if state != "" {
				s.Addons = append(s.Addons, &acsfake.AddonRecord{Name: contract.ERDMAController, State: state})
			}
			n.observe(s)
			node := cloudNode("topology")
			node.Labels[contract.InstanceTypeLabel], node.InstanceType = "ecs.gn8v-8x.16xlarge", "ecs.gn8v-8x.16xlarge"
			object, err := nodeObject(node, n.erdma.Load())
			require.NoError(t, err)
			devices, some := object.Status.Allocatable[contract.ResourceERDMA]
			assert.Equal(t, state == "active", some)
			if some {
				assert.EqualValues(t, 200, devices.Value())
			}
			client := fake.NewClientset(object)
			object.Labels[contract.NodeModeLabel] = "default"
			require.NoError(t, followMode(t.Context(), client, object))
			after, err := client.CoreV1().Nodes().Get(t.Context(), object.Name, metav1.GetOptions{})
			require.NoError(t, err)
			_, still := after.Status.Allocatable[contract.ResourceERDMA]
			assert.Equal(t, some, still)
		})
	}
}

func TestFollowMode(t *testing.T) {
	ctx := context.Background()
	node, err := nodeObject(cloudNode("topology"), true)
	require.NoError(t, err)
	client := fake.NewClientset(node)
	now := func() *corev1.Node {
		node, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return node
	}
	relabel := func(change func(labels map[string]string)) {
		node := now()
		change(node.Labels)
		node, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		require.NoError(t, err)
		client.ClearActions()
		require.NoError(t, followMode(ctx, client, node))
	}
	relabel(func(map[string]string) {})
	assert.Empty(t, client.Actions(), "nothing to do, nothing written")
	relabel(func(labels map[string]string) { labels[contract.NodeModeLabel] = "default" })
	assert.EqualValues(t, 8, count(t, now(), contract.ResourceDefaultGPU))
	assert.EqualValues(t, 0, count(t, now(), contract.ResourceTopologyGPU))
	relabel(func(labels map[string]string) { delete(labels, contract.NodeModeLabel) })
	assert.Empty(t, client.Actions(), "without the label the node keeps what it had")
	relabel(func(labels map[string]string) { labels[contract.NodeModeLabel] = "nonsense" })
	assert.Empty(t, client.Actions())
}

func TestUpdateNode(t *testing.T) {
	ctx := context.Background()
	old := cloudNode("topology")
	object, err := nodeObject(old, true)
	require.NoError(t, err)
	object.Labels["mine"] = "yes"
	mine := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute}
	object.Spec.Taints = append(object.Spec.Taints, mine)
	client := fake.NewClientset(object)
	n := &nodes{client: client, hardware: t.TempDir()}

	changed := cloudNode("share")
	changed.Labels["new"] = "1"
	changed.Taints = []acsfake.Taint{{Key: "b", Effect: "NoSchedule"}}
	require.NoError(t, n.UpdateNode(ctx, old, changed))
	require.NoError(t, n.UpdateNode(ctx, old, changed), "once more is no harm")
	got, err := client.CoreV1().Nodes().Get(ctx, old.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "share", got.Labels[contract.NodeModeLabel])
	assert.Equal(t, "1", got.Labels["new"])
	assert.Equal(t, "yes", got.Labels["mine"])
	assert.Equal(t, "linux", got.Labels[corev1.LabelOSStable])
	assert.Equal(t, []corev1.Taint{mine, {Key: "b", Effect: corev1.TaintEffectNoSchedule}}, got.Spec.Taints)

	require.NoError(t, n.UpdateNode(ctx, changed, old))
	got, err = client.CoreV1().Nodes().Get(ctx, old.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, got.Labels, "new")

	missing := old
	missing.Name = "gone"
	assert.NoError(t, n.DeleteNode(ctx, missing), "a node that is gone is deleted")
	client.PrependReactor("create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		node := action.(clienttesting.CreateAction).GetObject().(*corev1.Node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return false, nil, nil
	})
	require.NoError(t, n.UpdateNode(ctx, missing, missing))
	_, err = client.CoreV1().Nodes().Get(ctx, missing.Name, metav1.GetOptions{})
	assert.NoError(t, err, "a node that was deleted from Kubernetes registers again")
}

// machines makes real nodes that exist only in the API, or fails.
type machines struct {
	client  kubernetes.Interface
	dir     string
	made    map[string]kubelet.Machine
	limit   int
	failure error
}

func (m *machines) Choose(name string) bool {
	_, made := m.made[name]
	return made || len(m.made) < m.limit
}

func (m *machines) Ensure(ctx context.Context, name string, machine kubelet.Machine) error {
	if m.failure != nil {
		return m.failure
	}
	m.made[name] = machine
	node, err := m.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = m.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (m *machines) HardwareDir(name string) (string, bool) {
	_, made := m.made[name]
	return m.dir, made
}

func (m *machines) Remove(name string) error {
	delete(m.made, name)
	return m.failure
}

func TestRealNode(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset()
	fake := &machines{client: client, dir: t.TempDir(), made: map[string]kubelet.Machine{}, limit: 1}
	n := &nodes{client: client, hardware: t.TempDir(), real: fake}
	node := cloudNode("topology")
	require.NoError(t, n.EnsureNode(ctx, node))
	object, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, simulate.IsSimulated(object))
	assert.Equal(t, "topology", object.Labels[contract.NodeModeLabel])
	assert.Equal(t, "dgx1-v100", object.Annotations[contract.SimulatedWiringAnnotation])
	assert.Empty(t, object.Status.Allocatable, "its kubelet says that")
	assert.FileExists(t, filepath.Join(fake.dir, node.Name+".json"), "an agent of its own serves it")
	assert.NoFileExists(t, filepath.Join(n.hardware, node.Name+".json"))

	simulated, err := nodeObject(node, false)
	require.NoError(t, err)
	machine := fake.made[node.Name]
	assert.Equal(t, simulated.Status.Allocatable.Cpu().MilliValue(), int64(machine.CPUs)*1000-machine.ReservedMilliCPU)
	assert.Equal(t, simulated.Status.Allocatable.Memory().Value(), machine.MemoryBytes)
	assert.Equal(t, simulated.Status.Allocatable.Pods().Value(), machine.Pods)

	require.NoError(t, n.DeleteNode(ctx, node))
	assert.Empty(t, fake.made)
	fake.failure = errors.New("no containerd")
	require.ErrorIs(t, n.EnsureNode(ctx, node), fake.failure)
	require.ErrorIs(t, n.DeleteNode(ctx, node), fake.failure)
}

func TestHardwareOnceWrittenStays(t *testing.T) {
	n := &nodes{hardware: t.TempDir()}
	node := cloudNode("topology")
	require.NoError(t, n.describeHardware(node))
	file := filepath.Join(n.hardware, node.Name+".json")
	require.FileExists(t, file)
	require.NoError(t, os.WriteFile(file, []byte("broken on purpose"), 0o600))
	require.NoError(t, n.describeHardware(node))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "broken on purpose", string(data))
}

func TestCredentialsAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, err := ensureCredentials(dir)
	require.NoError(t, err)
	assert.Len(t, first.AccessKeyID, 24)
	assert.GreaterOrEqual(t, len(first.AccessKeySecret), 26)
	second, err := ensureCredentials(dir)
	require.NoError(t, err)
	assert.Equal(t, first, second)
	other, err := ensureCredentials(t.TempDir())
	require.NoError(t, err)
	assert.NotEqual(t, first, other)
	info, err := os.Stat(credentialsFile(dir))
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077)
}

func TestRequestsAreLoggedWithoutSecrets(t *testing.T) {
	var log bytes.Buffer
	handler := logged(slog.New(slog.NewTextHandler(&log, nil)), http.NotFoundHandler())
	request := httptest.NewRequest(http.MethodGet, "/clusters/c", nil)
	request.Header.Set("Authorization", "acs LTAI:signature")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	assert.Contains(t, log.String(), "/clusters/c status=404")
	assert.NotContains(t, log.String(), "signature")
}
