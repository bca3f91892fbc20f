package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// GPUMap is where everything is: every GPU of every node, and who is on it.
type GPUMap struct {
	Pools []Pool `json:"pools"`
	// Holders are the gangs and pods that hold GPUs, in the order in which they are met.
	Holders []Holder `json:"holders"`
	// Bare is the number of nodes without GPUs.
	Bare int `json:"bareNodes"`
}

// Pool is nodes of one pool whose GPUs are alike.
type Pool struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"`
	Model string `json:"model,omitempty"`
	// GPUGiB is the memory of one GPU that pods can have, 0 when nobody knows it.
	GPUGiB int64  `json:"gpuGiB,omitempty"`
	Nodes  []Node `json:"nodes"`
}

// Node is one node with its GPUs.
type Node struct {
	Name string `json:"name"`
	// Cordoned means that the node takes no new pods.
	Cordoned bool `json:"cordoned,omitempty"`
	// Unsure means that the scheduler hands out GPUs here, and that a pod past it has some of
	// which nobody knows which they are: nobody gets any of the node until it has ended.
	Unsure bool  `json:"unsure,omitempty"`
	GPUs   []GPU `json:"gpus"`
}

// GPU is one GPU. It is free when nobody is on it and it is healthy.
type GPU struct {
	// Index is the NVML index.
	Index int `json:"index"`
	// Unhealthy says why the GPU is not used, "" when it is well.
	Unhealthy string      `json:"unhealthy,omitempty"`
	Holders   []GPUHolder `json:"uses,omitempty"`
}

// GPUHolder is one pod on a GPU.
type GPUHolder struct {
	// Holder is a position in GPUMap.Holders.
	Holder int `json:"holder"`
	// Pod is "namespace/name".
	Pod string `json:"pod"`
	// MemoryGiB and CorePercent are its part of the GPU; both 0 for the whole GPU.
	MemoryGiB   int64 `json:"memoryGiB,omitempty"`
	CorePercent int64 `json:"corePercent,omitempty"`
	// Guessed means that the node's device plugin picked the GPU and nobody else
	// knows which: the pod holds one of the node's GPUs for each such entry.
	Guessed bool `json:"guessed,omitempty"`
	// Confirmed means that the agent of the node has given containers of the pod the GPU.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Holder is a gang, or a pod on its own, that holds GPUs.
type Holder struct {
	Gang string `json:"gang"`
	Pods int    `json:"pods"`
	// GPUs counts the GPUs that it holds, wholly or in part, each once.
	GPUs int `json:"gpus"`
	// Confirmed counts the pods of which the node agents have confirmed for all containers which GPUs they were given.
	Confirmed int `json:"confirmed,omitempty"`
	// Differs says of its pods that were given other GPUs than the scheduler has recorded which ones.
	Differs []string `json:"differs,omitempty"`
}

// Free reports whether nobody is on the GPU and it is healthy.
func (c GPU) Free() bool { return c.Unhealthy == "" && len(c.Holders) == 0 }

// taken reports whether a pod has the whole GPU.
func (c GPU) taken() bool {
	return slices.ContainsFunc(c.Holders, func(h GPUHolder) bool { return h.MemoryGiB == 0 && h.CorePercent == 0 })
}

// used sums what the pods on the GPU hold of it.
func (c GPU) used() (memoryGiB, corePercent int64) {
	for _, h := range c.Holders {
		memoryGiB += h.MemoryGiB
		corePercent += h.CorePercent
	}
	return memoryGiB, corePercent
}

// shared reports whether the pool's GPUs are given away in parts.
func (p Pool) shared() bool {
	return p.Mode != string(placement.ModeDefault) && p.Mode != string(placement.ModeTopology)
}

// GPUs answers where everything is.
func GPUs(snapshot *clusterstate.Snapshot) GPUMap {
	m := GPUMap{Pools: []Pool{}, Holders: []Holder{}}
	holders := map[string]int{}
	for _, name := range snapshot.View.Nodes() {
		node, _ := snapshot.View.Node(name)
		if node.GPUs == nil {
			m.Bare++
			continue
		}
		pool := m.pool(snapshot, node)
		pool.Nodes = append(pool.Nodes, m.node(snapshot, node, holders))
	}
	return m
}

// pool returns the pool of a node, which is new when the node is unlike the one before.
func (m *GPUMap) pool(snapshot *clusterstate.Snapshot, node placement.Node) *Pool {
	gpus := node.GPUs.Machine().GPUs
	p := Pool{Name: node.Pool, Mode: string(node.Mode), Model: snapshot.Model(node.Name)}
	for _, device := range gpus {
		p.GPUGiB = max(p.GPUGiB, (device.MemoryMiB-node.HeadroomMiB)/1024)
	}
	i := slices.IndexFunc(m.Pools, func(q Pool) bool {
		return q.Name == p.Name && q.Mode == p.Mode && q.Model == p.Model && q.GPUGiB == p.GPUGiB && len(q.Nodes[0].GPUs) == len(gpus)
	})
	if i < 0 {
		i = len(m.Pools)
		m.Pools = append(m.Pools, p)
	}
	return &m.Pools[i]
}

// node lists the GPUs of a node with what is on them.
func (m *GPUMap) node(snapshot *clusterstate.Snapshot, node placement.Node, holders map[string]int) Node {
	out := Node{Name: node.Name, Cordoned: node.Unschedulable}
	for _, device := range node.GPUs.Machine().GPUs {
		out.GPUs = append(out.GPUs, GPU{Index: device.Index, Unhealthy: device.Unhealthy})
	}
	pods := snapshot.View.Pods(node.Name)
	slices.SortFunc(pods, func(a, b placement.Pod) int {
		return cmp.Or(compareKnown(a, b), comparePods(snapshot.Pod(a.ID), snapshot.Pod(b.ID)))
	})
	for _, pod := range pods {
		if pod.Request.Mode == placement.ModeNone && pod.Own == 0 && len(pod.Shares) == 0 {
			continue
		}
		given := m.put(&out, pod, snapshot.Pod(pod.ID), node.GPUs, holders)
		guessed := !given && pod.Own == 0 && len(pod.Shares) == 0
		out.Unsure = out.Unsure || guessed && node.Mode != placement.ModeDefault && !pod.Request.Shared()
	}
	return out
}

// put puts a pod on its GPUs, and reports whether these are known from the agent of the node alone; a pod whose GPUs nobody knows,
// on the first that are free.
func (m *GPUMap) put(node *Node, pod placement.Pod, object *corev1.Pod, gpus *gpu.Table, holders map[string]int) (given bool) {
	hold := GPUHolder{Pod: object.Namespace + "/" + object.Name}
	gang := pod.Gang
	if gang == "" {
		gang = hold.Pod
	}
	i, ok := holders[gang]
	if !ok {
		i = len(m.Holders)
		holders[gang] = i
		m.Holders = append(m.Holders, Holder{Gang: gang})
	}
	hold.Holder = i
	m.Holders[i].Pods++
	on := func(device int, h GPUHolder) {
		if !slices.ContainsFunc(node.GPUs[device].Holders, func(other GPUHolder) bool { return other.Holder == i }) {
			m.Holders[i].GPUs++
		}
		node.GPUs[device].Holders = append(node.GPUs[device].Holders, h)
	}
	confirmed, isConfirmed := inventory.GivenTo(object)
	if isConfirmed {
		m.Holders[i].confirm(object, confirmed)
	}
	has, own := inventory.Positions(confirmed.GPUs, gpus), pod.Own
	if own == 0 && len(pod.Shares) == 0 && !pod.Request.Shared() {
		own, given = has, has != 0
	}
	for _, device := range own.GPUs() {
		whole := hold
		whole.Confirmed = has.Has(device)
		on(device, whole)
	}
	for _, share := range pod.Shares {
		part := hold
		part.MemoryGiB, part.CorePercent, part.Confirmed = share.MemoryGiB, share.CorePercent, has.Has(share.GPU)
		on(share.GPU, part)
	}
	if own != 0 || len(pod.Shares) > 0 {
		return given
	}
	hold.Guessed = true
	left := pod.Request.GPUs
	if pod.Request.Shared() {
		part := pod.Request.PerGPU()
		hold.MemoryGiB, hold.CorePercent = part.MemoryGiB, part.CorePercent
		left = max(left, 1)
	}
	for device := range node.GPUs {
		if left > 0 && (node.GPUs[device].Free() || pod.Request.Shared() && node.GPUs[device].Unhealthy == "") {
			on(device, hold)
			left--
		}
	}
	return false
}

// confirm counts a pod that was given its GPUs.
func (h *Holder) confirm(pod *corev1.Pod, given inventory.Given) {
	if given.Whole {
		h.Confirmed++
	}
	record, _, err := contract.AllocationFrom(pod.Annotations)
	if differs := given.Differs(record); err == nil && differs != "" {
		h.Differs = append(h.Differs, fmt.Sprintf("%s/%s on %s: %s", pod.Namespace, pod.Name, pod.Spec.NodeName, differs))
	}
}

// compareKnown orders pods whose GPUs are known before those that get what is left.
func compareKnown(a, b placement.Pod) int {
	guessed := func(p placement.Pod) int {
		if p.Own == 0 && len(p.Shares) == 0 {
			return 1
		}
		return 0
	}
	return guessed(a) - guessed(b)
}

// comparePods orders pods by namespace and name.
func comparePods(a, b *corev1.Pod) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// gpuIndex is the NVML index of a GPU by its position.
func gpuIndex(node placement.Node, position int) int {
	return inventory.Indexes(gpu.SetOf(position), node.GPUs)[0]
}

// key is the letter of a holder: a to z, then aa, ab and so on.
func key(holder int) string {
	letters := string(rune('a' + holder%26))
	if holder >= 26 {
		return key(holder/26-1) + letters
	}
	return letters
}

// Heading names the pool and its GPUs: "pool v100: mode topology, 8 × Tesla V100, 32 GiB".
func (p Pool) Heading() string {
	name := "no pool"
	if p.Name != "" {
		name = "pool " + p.Name
	}
	text := fmt.Sprintf("%s: mode %s, %d", name, p.Mode, len(p.Nodes[0].GPUs))
	if p.Model != "" {
		text += " × " + p.Model
	} else {
		text += " GPUs"
	}
	if p.GPUGiB > 0 {
		text += fmt.Sprintf(", %d GiB", p.GPUGiB)
	}
	return text
}

// summary says how much of the node is free, for its mode.
func (p Pool) summary(n Node) string {
	if !p.shared() {
		free := 0
		for _, c := range n.GPUs {
			if c.Free() && !n.Unsure {
				free++
			}
		}
		return fmt.Sprintf("%d of %d free", free, len(n.GPUs))
	}
	var free, all int64
	for _, c := range n.GPUs {
		used, _ := c.used()
		all += p.GPUGiB
		if c.Unhealthy == "" && !n.Unsure && !c.taken() {
			free += max(p.GPUGiB-used, 0)
		}
	}
	return fmt.Sprintf("%d of %d GiB free", free, all)
}
