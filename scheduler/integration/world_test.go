package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// world is a random cluster and what it takes to make random gangs for it. Everything
// in it follows from the numbers that seeded its source.
type world struct {
	*rand.Rand
	// id makes the names in the world unique.
	id string
	// namespaces are those of its gangs.
	namespaces []string
	nodes      []worldNode
	// contended worlds are small, and their gangs big and unlike in rank, so that they preempt
	// each other.
	contended bool
	// shared worlds give out parts of GPUs alone, so that there is much to choose from.
	shared bool
	// leaves are the names of quota leaves without a namespace, tree the quota tree; nil without one.
	leaves []string
	tree   *unstructured.Unstructured
}

// worldNode is a node with the hardware that its agent publishes; nil when the
// catalogue knows it by the instance type.
type worldNode struct {
	object   *corev1.Node
	hardware *gpu.Machine
}

// dedicated is a taint that some nodes have and some gangs tolerate.
var dedicated = corev1.Taint{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoSchedule}

// blockLabel names network domains that are the cluster's own.
const blockLabel = "network.example.com/block"

func newWorld(random *rand.Rand, id string, namespaces []string) *world {
	w := &world{Rand: random, id: id, namespaces: namespaces}
	w.contended = w.chance(3)
	w.shared = !w.contended && w.chance(3)
	most := 5
	if w.contended {
		most = 2
	}
	for i := range 1 + w.IntN(most) {
		w.nodes = append(w.nodes, w.node(fmt.Sprintf("%s-%d", id, i)))
	}
	switch {
	case w.contended && w.chance(2):
		w.divide()
	case w.chance(3):
		w.growTree()
	}
	return w
}

// workload is one of members like those of the world's gangs. They are many beside those that
// the world sees: what the scheduler learns itself changes nothing.
func (w *world) workload(random *rand.Rand) placement.Workload {
	other := *w
	other.Rand = random
	workload := placement.Workload{}
	for len(workload) < 2+random.IntN(6) {
		g := worldGang{}
		g.add(contract.ReplicaWorker, 1, other.shape())
		if d, ok := inventory.DemandOf(g.pods[0]); ok {
			workload[d] = 500 + int64(random.IntN(2000))
		}
	}
	return workload
}

// chance is true once in n times.
func (w *world) chance(n int) bool { return w.IntN(n) == 0 }

func pick[T any](w *world, list ...T) T { return list[w.IntN(len(list))] }

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

func (w *world) node(name string) worldNode {
	mode := pick(w, "topology", "topology", "topology", "default", "core_mem", "core_mem", "share", "cgpu")
	switch {
	case w.contended:
		mode = "topology"
	case w.shared:
		mode = "share"
	}
	offers := corev1.ResourceList{
		corev1.ResourceCPU:    quantity(pick[int64](w, 16, 80, 96)),
		corev1.ResourceMemory: resource.MustParse("300Gi"),
		corev1.ResourcePods:   quantity(pick[int64](w, 5, 110, 110)),
	}
	if w.chance(2) {
		offers[contract.ResourceERDMA] = quantity(int64(1 + w.IntN(6)))
	}
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			contract.NodeModeLabel: mode, contract.NodePoolNameLabel: pick(w, "a100", "v100"), contract.InstanceTypeLabel: instanceType,
			corev1.LabelHostname: name, corev1.LabelTopologyZone: pick(w, "zone-a", "zone-b"), blockLabel: pick(w, "b1", "b2", "b3"),
		}},
		Spec: corev1.NodeSpec{Unschedulable: w.chance(15)},
	}
	if w.chance(2) {
		object.Labels[contract.NodeGPUPolicyLabel] = pick(w, "binpack", "spread")
	}
	if w.chance(6) {
		object.Spec.Taints = []corev1.Taint{dedicated}
	}
	machine, known := catalog.Machine(instanceType)
	var hardware *gpu.Machine
	if !known || w.chance(2) {
		object.Labels[contract.InstanceTypeLabel] = "example.unknown"
		machine = w.machine()
		hardware = &machine
	}
	gpus := int64(len(machine.GPUs))
	switch mode {
	case "topology":
		offers[contract.ResourceTopologyGPU] = quantity(gpus)
	case "default":
		offers[contract.ResourceDefaultGPU] = quantity(gpus)
	default:
		offers[contract.ResourceGPUCount] = quantity(gpus)
		offers[contract.ResourceGPUMemory] = quantity(gpus * (machine.GPUs[0].MemoryMiB >> 10))
		if mode == "core_mem" {
			offers[contract.ResourceCorePercent] = quantity(gpus * 100)
		}
	}
	object.Status = corev1.NodeStatus{Capacity: offers, Allocatable: offers, Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}}
	return worldNode{object: object, hardware: hardware}
}

// wirings are the link graphs of all kinds of machines: without NVLink, with bridges, the
// cube of eight, and with switches.
var wirings = []string{
	"a100-pcie-4-numa-split-pairs", "a100-pcie-4-one-bridge", "a100-pcie-8-bridged", "a100-sxm-4-nv4", "ack-sample-4xv100",
	"dgx-a100", "dgx1-v100", "dgx2-16xv100", "gb200-tray-4", "hgx-h100", "pcie-8-2x4-node", "pcie-8-switch-pix-phb", "rtx4090-8-all-sys",
}

// machine is hardware of any wiring that the catalogue knows, often with network
// devices, and now and then with a GPU that is unhealthy or has fallen off the bus, or
// with a link that is down.
func (w *world) machine() gpu.Machine {
	machine, _ := catalog.Wiring(pick(w, wirings...))
	memory := pick[int64](w, 16, 32, 80) << 10
	for i := range machine.GPUs {
		machine.GPUs[i].MemoryMiB = memory
	}
	if w.chance(2) {
		machine.NICs = nil
		for i := range 1 + w.IntN(2) {
			machine.NICs = append(machine.NICs, w.device(fmt.Sprintf("erdma_%d", i), len(machine.GPUs)))
		}
	}
	if w.chance(4) {
		machine.GPUs[w.IntN(len(machine.GPUs))].Unhealthy = "Xid 79"
	}
	if w.chance(4) {
		a, b := w.IntN(len(machine.GPUs)), w.IntN(len(machine.GPUs))
		if a != b {
			machine.Links[a][b], machine.Links[b][a] = gpu.Link{Class: gpu.SYS}, gpu.Link{Class: gpu.SYS}
		}
	}
	if w.chance(6) {
		lost := w.IntN(len(machine.GPUs))
		machine.GPUs = slices.Delete(machine.GPUs, lost, lost+1)
		machine.Links, machine.PCIeLinks = without(machine.Links, lost), without(machine.PCIeLinks, lost)
		for i := range machine.NICs {
			machine.NICs[i].Links = slices.Delete(machine.NICs[i].Links, lost, lost+1)
		}
	}
	return machine
}

// device is a network device that is near to some GPUs.
func (w *world) device(name string, gpus int) gpu.NIC {
	nic := gpu.NIC{Name: name}
	for range gpus {
		nic.Links = append(nic.Links, gpu.Link{Class: pick(w, gpu.PIX, gpu.PHB, gpu.SYS)})
	}
	return nic
}

// without takes a GPU out of a link matrix.
func without(matrix [][]gpu.Link, device int) [][]gpu.Link {
	if matrix == nil {
		return nil
	}
	matrix = slices.Delete(matrix, device, device+1)
	for i := range matrix {
		matrix[i] = slices.Delete(matrix[i], device, device+1)
	}
	return matrix
}

// divide makes a quota tree of two leaves, each of which has half of the GPUs for sure
// and may borrow the rest.
func (w *world) divide() {
	gpus := int64(0)
	for _, n := range w.nodes {
		offered := n.object.Status.Allocatable[contract.ResourceTopologyGPU]
		gpus += offered.Value()
	}
	var leaves []any
	for _, name := range []string{w.id + "-left", w.id + "-right"} {
		leaves = append(leaves, map[string]any{"name": name, "namespaces": []any{}, "min": w.amounts(gpus / 2), "max": w.amounts(gpus)})
		w.leaves = append(w.leaves, name)
	}
	all := w.amounts(gpus)
	w.tree = newTree(map[string]any{"name": "root", "min": all, "max": all, "children": leaves})
}

// growTree makes a quota tree of two or three levels over the namespaces, and with
// leaves that pods name themselves.
func (w *world) growTree() {
	owned := w.namespaces[:w.IntN(len(w.namespaces)+1)]
	var groups []any
	total := int64(0)
	leaf := func(name string, namespaces []string) (map[string]any, int64) {
		low := int64(w.IntN(5))
		node := map[string]any{
			"name": name, "namespaces": toAny(namespaces),
			"min": w.amounts(low), "max": w.amounts(low + 2 + int64(w.IntN(24))),
		}
		if w.chance(3) {
			lend, err := json.Marshal(w.amounts(int64(w.IntN(int(low) + 1))))
			if err != nil {
				panic(err)
			}
			node["attributes"] = map[string]any{contract.LendLimitAttribute: string(lend)}
		}
		return node, low
	}
	for i := range 1 + w.IntN(3) {
		var children []any
		sum := int64(0)
		for k := range 1 + w.IntN(2) {
			name := fmt.Sprintf("%s-leaf-%d-%d", w.id, i, k)
			var namespaces []string
			if len(owned) > 0 {
				namespaces, owned = owned[:1], owned[1:]
			} else {
				w.leaves = append(w.leaves, name)
			}
			node, low := leaf(name, namespaces)
			children, sum = append(children, node), sum+low
		}
		if w.chance(3) {
			groups, total = append(groups, children...), total+sum
			continue
		}
		groups = append(groups, map[string]any{
			"name": fmt.Sprintf("%s-group-%d", w.id, i), "children": children,
			"min": w.amounts(sum), "max": w.amounts(sum + 4 + int64(w.IntN(32))),
		})
		total += sum
	}
	all := w.amounts(total + 8 + int64(w.IntN(32)))
	w.tree = newTree(map[string]any{"name": "root", "min": all, "max": all, "children": groups})
}

// breaks draws whether the quota tree turns invalid before a gang comes that it holds back, and returns the broken tree, nil
// for none.
func (w *world) breaks(t *testing.T, g worldGang) *unstructured.Unstructured {
	t.Helper()
	if w.tree == nil || !w.chance(5) {
		return nil
	}
	broken := w.tree.DeepCopy()
	leaf := broken.Object["spec"].(map[string]any)["root"].(map[string]any)["children"].([]any)[0].(map[string]any)
	for children, ok := leaf["children"].([]any); ok; children, ok = leaf["children"].([]any) {
		leaf = children[0].(map[string]any)
	}
	how := pick(w, breaks...)
	how(leaf)
	_, _, why := inventory.ReadQuotaTree(broken)
	require.Error(t, why)
	if p := g.pods[0]; inventory.NewBar(broken, why).Holds(p.Namespace, p.Labels[contract.QuotaLabel]) {
		return broken
	}
	return nil
}

// newTree is a quota tree.
func newTree(root map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion, "kind": contract.QuotaTreeKind,
		"metadata": map[string]any{"name": contract.QuotaTreeName, "namespace": contract.QuotaTreeNamespace},
		"spec":     map[string]any{"root": root},
	}}
}

// amounts limits n whole GPUs of either kind, and as much of shared ones.
func (*world) amounts(n int64) map[string]any {
	return map[string]any{
		contract.ResourceTopologyGPU: fmt.Sprint(n), contract.ResourceDefaultGPU: fmt.Sprint(n),
		contract.ResourceGPUMemory: fmt.Sprint(16 * n), "cpu": fmt.Sprint(16 * n),
	}
}

func toAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// passiveNode is a node with eight V100 in mode topology that is ready from the start
// and that nobody plays: its pods are bound, and never run.
func passiveNode(name, pool string) worldNode {
	offers := corev1.ResourceList{corev1.ResourceCPU: quantity(64), corev1.ResourcePods: quantity(110), contract.ResourceTopologyGPU: quantity(8)}
	return worldNode{object: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: instanceType, corev1.LabelHostname: name, contract.NodePoolNameLabel: pool,
		}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers, Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}},
	}}
}

func createNode(ctx context.Context, node *corev1.Node) error {
	_, err := api().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// create makes the world's nodes and quota tree, and the returned function takes them away.
func (w *world) create(t *testing.T) (remove func()) {
	t.Helper()
	ctx := context.Background() // it is taken away after the test's own context has ended
	inParallel(t, w.nodes, func(n worldNode) error {
		if n.hardware != nil {
			if err := publish(ctx, n.object.Name, *n.hardware); err != nil {
				return err
			}
		}
		return createNode(ctx, n.object)
	})
	if w.tree != nil {
		_, err := cluster.client.Apply(ctx, w.tree)
		require.NoError(t, err)
	}
	return func() {
		inParallel(t, w.nodes, func(n worldNode) error {
			if n.hardware != nil {
				if err := cluster.client.Dynamic.Resource(gpuNodes).Delete(ctx, n.object.Name, metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
			return api().CoreV1().Nodes().Delete(ctx, n.object.Name, metav1.DeleteOptions{})
		})
		if w.tree != nil {
			require.NoError(t, cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).Delete(ctx, contract.QuotaTreeName, metav1.DeleteOptions{}))
		}
	}
}

var (
	gpuNodes   = gvr(contract.GPUNodeGroup, contract.GPUNodeVersion, contract.GPUNodeResource)
	quotaTrees = gvr(contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeResource)
	podGroups  = gvr(contract.PodGroupGroup, contract.PodGroupVersion, contract.PodGroupResource)
)

// publish writes a node's hardware as its agent does.
func publish(ctx context.Context, node string, machine gpu.Machine) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&contract.GPUNode{Status: contract.StatusOf(machine)})
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(contract.GPUNodeGroup + "/" + contract.GPUNodeVersion)
	object.SetKind(contract.GPUNodeKind)
	object.SetName(node)
	created, err := cluster.client.Dynamic.Resource(gpuNodes).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Object["status"] = content["status"]
	_, err = cluster.client.Dynamic.Resource(gpuNodes).UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
