package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
)

// placed is a bound pod with an allocation record.
func placed(t *testing.T, name, gang string, record contract.Allocation) *corev1.Pod {
	t.Helper()
	annotations, err := record.Annotations()
	require.NoError(t, err)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: record.Node},
	}
	if gang != "" {
		p.Labels = map[string]string{contract.LightGangLabel: gang, contract.LightGangMinLabel: "2"}
	}
	return p
}

// Members that are about to be failed one after the other do not run any more, all at once.
func TestLostMembersAreNoMembers(t *testing.T) {
	c := newCache(t, "a", "b")
	pods := podtest.Gang(4)
	for i, p := range pods {
		if i < 2 {
			podtest.OnNode("a")(p)
		}
		c.SetPod(p)
	}
	require.Len(t, mustGang(t, c).Gang.Running, 2)
	c.Lose(pods[:2])
	state := mustGang(t, c)
	assert.Empty(t, state.Gang.Running)
	assert.Equal(t, "2 more pods of gang ns/job must appear before it can start", state.MissingText)
	assert.Len(t, c.state.View.Pods("a"), 2, "they hold what they have")
	assert.Len(t, c.Health("ns/job").Running, 2)
}

func mustGang(t *testing.T, c *Cache) inventory.GangState {
	t.Helper()
	state, ok := c.Gang("ns/job")
	require.True(t, ok)
	return state
}

func TestHealth(t *testing.T) {
	c := New()
	_, err := c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	require.NoError(t, err)
	change, err := c.SetGPUNode(&contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: contract.GPUNodeStatus{
		Links: []string{"X SYS", "SYS X"},
		GPUs:  []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 2, Health: contract.Unhealthy, Reason: "XID 48"}},
	}})
	require.NoError(t, err)
	assert.Equal(t, "n", change.Node)
	c.SetPod(placed(t, "good", "job", contract.Allocation{Node: "n", GPUs: []int{0}}))
	assert.False(t, c.Health("ns/job").Whole, "one of two")
	c.SetPod(placed(t, "bad", "job", contract.Allocation{Node: "n", GPUs: []int{0, 1, 2}}))
	c.SetPod(placed(t, "part", "", contract.Allocation{Node: "n", Shares: []contract.GPUShare{{GPU: 2, MemoryGiB: 1}}}))

	health := c.Health("ns/job")
	assert.True(t, health.Whole)
	assert.Len(t, health.Running, 2)
	assert.Equal(t, []Fault{
		{Member: "bad", Node: "n", GPU: 1, Reason: "the node agent does not find it any more"},
		{Member: "bad", Node: "n", GPU: 2, Reason: "XID 48"},
	}, health.Faults)
	members := c.MembersOn("n")
	require.Len(t, members, 2, "a pod on its own is no member")
	assert.Equal(t, "bad", members[0].Name)

	_, err = c.RemoveGPUNode("n")
	require.NoError(t, err)
	assert.Empty(t, c.Health("ns/job").Faults, "nobody reports")
}

// In mode default the node chooses the GPUs of a member, and its agent tells which.
func TestHealthOfGPUsThatTheNodeHasChosen(t *testing.T) {
	c := New()
	_, err := c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	require.NoError(t, err)
	_, err = c.SetGPUNode(&contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: contract.GPUNodeStatus{
		Links: []string{"X SYS", "SYS X"},
		GPUs:  []contract.GPUInfo{{Index: 0, Health: contract.Healthy}, {Index: 1, Health: contract.Unhealthy, Reason: "XID 48"}},
	}})
	require.NoError(t, err)
	p := placed(t, "member", "job", contract.Allocation{Node: "n"})
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	c.SetPod(p)
	assert.Empty(t, c.Health("ns/job").Faults, "nobody knows yet")

	p = p.DeepCopy()
	p.Annotations[contract.ConfirmedAnnotation], err = contract.Confirmation{Node: "n", Containers: map[string]contract.ConfirmedContainer{
		"main": {Way: contract.WayCDI, GPUs: []string{"GPU-0", "GPU-1"}, Indexes: []int{0, 1}},
	}}.Annotation()
	require.NoError(t, err)
	c.SetPod(p)
	assert.Equal(t, []Fault{{Member: "member", Node: "n", GPU: 1, Reason: "XID 48"}}, c.Health("ns/job").Faults)
}

func TestNodesThatChange(t *testing.T) {
	c := New()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	set := func(n *corev1.Node) string {
		change, err := c.SetNode(n)
		require.NoError(t, err)
		return change.Node
	}
	assert.Equal(t, "n", set(node), "new")
	assert.Empty(t, set(node.DeepCopy()), "the same")
	tainted := node.DeepCopy()
	tainted.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	assert.Equal(t, "n", set(tainted))
	p := placed(t, "a", "job", contract.Allocation{Node: "n"})
	pending := p.DeepCopy()
	pending.Spec.NodeName = ""
	assert.Equal(t, clusterstate.Change{Gang: "ns/job"}, c.SetPod(pending))
	c.Assume(p)
	assert.Equal(t, clusterstate.Change{Bound: "ns/job", Placed: true}, c.SetPod(p))
	assert.Equal(t, clusterstate.Change{}, c.SetPod(p))
	assert.True(t, c.Holds(p.UID))
	assert.Equal(t, clusterstate.Change{Node: "n", Freed: true}, c.RemoveNode("n"))
	assert.Nil(t, c.NodeObject("n"))
	assert.Equal(t, "n", c.SetPod(p).Node, "bound to a node that does not exist")
	nodes, gangs := c.Keys()
	assert.Equal(t, []string{"n"}, nodes)
	assert.Equal(t, []string{"ns/job"}, gangs)
}
