package placementtest

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// World makes random clusters and gangs from one seed, and keeps its own books of
// them, apart from the view.
type World struct {
	*rand.Rand
	TB       testing.TB
	View     *snapshot.View
	Workload placement.Workload
	Spec     quota.Spec
	Nodes    []placement.Node
	Pods     map[string]placement.Pod
	// Hosts lets gangs ask for a node by its host name, or for one node as a whole.
	Hosts bool
	gangs int
	// Raised counts the fixes that raised a maximum, Grown those that let a pool grow too.
	Raised, Grown int
}

var worldTables = map[string]*gpu.Table{}

// Table is a machine whose GPUs have 16 and 32 GiB in turn.
func (w *World) Table(name string) *gpu.Table {
	if worldTables[name] == nil {
		m := Machine(w.TB, name)
		for i := range m.GPUs {
			m.GPUs[i].MemoryMiB = int64(16+16*(i%2)) << 10
		}
		table, err := gpu.NewTable(m)
		require.NoError(w.TB, err)
		worldTables[name] = table
	}
	return worldTables[name]
}

// NewWorld makes a random cluster.
func NewWorld(tb testing.TB, seed int64) *World {
	w := &World{Rand: rand.New(rand.NewSource(seed)), TB: tb, View: snapshot.NewView(), Pods: map[string]placement.Pod{}}
	for range 1 + w.Intn(7) {
		w.AddNode()
	}
	if w.Intn(3) > 0 {
		limit := func(n int) quota.Resources {
			return quota.Resources{"aliyun.com/gpu": int64(n), "cpu": int64(n) * 10_000}
		}
		leaf := func(name string) quota.Spec {
			return quota.Spec{Name: name, Min: limit(w.Intn(4)), Max: limit(4 + w.Intn(20)), MaxJobs: int64(w.Intn(6))}
		}
		w.Spec = quota.Spec{Min: limit(40), Max: limit(40), Children: []quota.Spec{leaf("a"), leaf("b")}}
		SetQuota(tb, w.View, w.Spec)
	}
	if w.Intn(3) == 0 {
		w.Workload = placement.Workload{}
	}
	return w
}

// hostname is the label by which a node differs from all others, also from those that its pool gets.
const hostname = "kubernetes.io/hostname"

// AddNode adds a random node.
func (w *World) AddNode() {
	modes := []placement.Mode{placement.ModeTopology, placement.ModeTopology, placement.ModeDefault, placement.ModeShare, placement.ModeCoreMem, placement.ModeNone}
	mode := modes[w.Intn(len(modes))]
	name := fmt.Sprint("n", len(w.Nodes))
	n := placement.Node{
		Name: name, Pool: string(rune('p' + w.Intn(2))), Mode: mode, Since: int64(w.Intn(3)),
		Labels:      map[string]string{"rack": fmt.Sprint("r", w.Intn(3)), hostname: name},
		Allocatable: placement.Resources{MilliCPU: int64(4+w.Intn(60)) * 1000, MemoryBytes: 64 << 30, Pods: int64(2 + w.Intn(12)), Extended: map[string]int64{"aliyun/erdma": int64(w.Intn(4))}},
	}
	if mode != placement.ModeNone {
		n.GPUs = w.Table([]string{"dgx1-v100", "ack-sample-4xv100", "pcie-8-2x4-node"}[w.Intn(3)])
	}
	if w.Intn(2) == 0 {
		n.GPUPolicy = placement.Spread
	}
	if w.Intn(6) == 0 {
		n.Taints = []placement.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
	}
	if w.Intn(10) == 0 {
		n.Unschedulable, n.Taints = true, append(n.Taints, cordon)
	}
	w.Nodes = append(w.Nodes, n)
	w.View.SetNode(n)
}

// Request is what a member asks for, at random.
func (w *World) Request() placement.Request {
	r := placement.Request{Resources: placement.Resources{MilliCPU: int64(w.Intn(5)) * 1000, MemoryBytes: int64(w.Intn(4)) << 30}}
	switch w.Intn(8) {
	case 0:
	case 1:
		r.Mode, r.MemoryGiB = placement.ModeShare, int64(1+w.Intn(20))
	case 2:
		r.Mode, r.GPUs, r.MemoryGiB = placement.ModeShare, 2+w.Intn(2), 12
	case 3:
		r.Mode, r.MemoryGiB, r.CorePercent = placement.ModeCoreMem, int64(1+w.Intn(12)), int64(5+5*w.Intn(20))
	case 4:
		r.Mode, r.GPUs = placement.ModeDefault, 1+w.Intn(4)
	default:
		r.Mode, r.GPUs = placement.ModeTopology, 1<<w.Intn(4)
	}
	if w.Intn(6) == 0 {
		r.Extended = map[string]int64{"aliyun/erdma": 1}
	}
	if w.Intn(6) == 0 {
		r.HostPorts = []string{"TCP/23456"}
	}
	return r
}

// Gang is a random gang with so many roles.
func (w *World) Gang(roles int) placement.Gang {
	g := placement.Gang{ID: fmt.Sprint("ml/g", w.gangs), Preemptible: w.Intn(4) > 0, Priority: int32(w.Intn(3))}
	w.gangs++
	for i := range roles {
		r := Role(fmt.Sprint("role", i), 1+w.Intn(6), w.Request())
		if w.Intn(8) == 0 {
			r.MaxPerNode = 1 + w.Intn(2)
		}
		if w.Intn(8) == 0 {
			r.Pools = []string{"p"}
		}
		if w.Intn(4) == 0 {
			r.Tolerations = []placement.Toleration{{Key: "team", Operator: "Exists"}}
		}
		g.Roles = append(g.Roles, r)
	}
	if w.Spec.Children != nil && w.Intn(3) > 0 {
		g.Leaf = []string{"a", "b"}[w.Intn(2)]
	}
	if w.Intn(5) == 0 {
		g.RequiredDomain = "rack"
	}
	if w.Intn(5) == 0 {
		g.Domains = []placement.Domain{{Label: "rack"}}
	}
	if w.Intn(8) == 0 {
		for i := range g.Roles {
			g.Roles[i].Apart = "job"
		}
	}
	g.Spread = w.Intn(6) == 0
	if w.Intn(5) == 0 {
		g.Minimum = 1 + w.Intn(4)
	}
	if w.Hosts && w.Intn(20) == 0 {
		g.Roles[0].NodeSelector = map[string]string{hostname: fmt.Sprint("n", w.Intn(len(w.Nodes)))}
	}
	if w.Hosts && w.Intn(20) == 0 {
		g.RequiredDomain = hostname
	}
	return g
}

// Apply charges a placement to the view and to the world's own books.
func (w *World) Apply(g placement.Gang, p placement.Placement) {
	w.View.Apply(g, p)
	var members []string
	for _, r := range g.Roles {
		for _, member := range r.Members {
			members = append(members, g.ID+"/"+member)
		}
	}
	w.View.SetMinimum(g.ID, g.Minimum, members)
	for _, r := range g.Roles {
		for _, a := range p.Assignments {
			for _, member := range r.Members {
				if member == a.Member {
					w.Pods[g.ID+"/"+member] = placement.Pod{Node: a.Node, Request: r.Request, Own: a.Own, Shares: a.Shares, Gang: g.ID, Leaf: g.Leaf, Preemptible: g.Preemptible}
				}
			}
		}
	}
}

// CheckBooks fails the test when the pods take more than there is.
func (w *World) CheckBooks() {
	type use struct {
		cpu, memory, pods, erdma int64
		whole                    int
		owned                    gpu.Set
		gib, core                map[int]int64
		ports, memoryOnly, cores int
	}
	uses := map[string]*use{}
	gpus := map[string]int64{}
	for id, p := range w.Pods {
		u := uses[p.Node]
		if u == nil {
			u = &use{gib: map[int]int64{}, core: map[int]int64{}}
			uses[p.Node] = u
		}
		u.cpu, u.memory, u.pods, u.erdma = u.cpu+p.Request.MilliCPU, u.memory+p.Request.MemoryBytes, u.pods+1, u.erdma+p.Request.Extended["aliyun/erdma"]
		u.ports += len(p.Request.HostPorts)
		switch p.Request.Mode {
		case placement.ModeDefault:
			u.whole += p.Request.GPUs
		case placement.ModeTopology:
			require.Zero(w.TB, u.owned&p.Own, "%s shares a GPU", id)
			require.Equal(w.TB, p.Request.GPUs, p.Own.Len(), id)
			u.owned |= p.Own
			gpus[p.Leaf] += int64(p.Request.GPUs)
		case placement.ModeShare, placement.ModeCoreMem:
			require.Len(w.TB, p.Shares, max(p.Request.GPUs, 1), id)
			var gib int64
			for _, s := range p.Shares {
				u.gib[s.GPU] += s.MemoryGiB
				u.core[s.GPU] += s.CorePercent
				gib += s.MemoryGiB
			}
			require.Equal(w.TB, p.Request.MemoryGiB, gib, id)
			if p.Request.CorePercent > 0 {
				u.cores++
			} else {
				u.memoryOnly++
			}
		}
	}
	for _, n := range w.Nodes {
		u := uses[n.Name]
		if u == nil {
			continue
		}
		require.LessOrEqual(w.TB, u.cpu, n.Allocatable.MilliCPU, n.Name)
		require.LessOrEqual(w.TB, u.memory, n.Allocatable.MemoryBytes, n.Name)
		require.LessOrEqual(w.TB, u.pods, n.Allocatable.Pods, n.Name)
		require.LessOrEqual(w.TB, u.erdma, n.Allocatable.Extended["aliyun/erdma"], n.Name)
		require.LessOrEqual(w.TB, u.ports, 1, n.Name)
		require.True(w.TB, u.cores == 0 || u.memoryOnly == 0, "%s mixes kinds of shares", n.Name)
		if n.GPUs == nil {
			continue
		}
		require.LessOrEqual(w.TB, u.whole, len(n.GPUs.Machine().GPUs), n.Name)
		for device, gib := range u.gib {
			require.LessOrEqual(w.TB, gib, n.GPUs.Machine().GPUs[device].MemoryMiB/1024, n.Name)
			require.LessOrEqual(w.TB, u.core[device], int64(100), n.Name)
		}
	}
	for _, leaf := range w.Spec.Children {
		require.LessOrEqual(w.TB, gpus[leaf.Name], leaf.Max["aliyun.com/gpu"], leaf.Name)
	}
}

// CheckPlacement checks what a placement promises beyond the books.
func (w *World) CheckPlacement(g placement.Gang, p placement.Placement) {
	nodes := map[string]placement.Node{}
	for _, n := range w.Nodes {
		nodes[n.Name] = n
	}
	domains := map[string]bool{}
	visible := map[string]gpu.Set{}
	for _, a := range p.Assignments {
		domains[nodes[a.Node].Labels[g.RequiredDomain]] = true
		visible[a.Node] |= a.Own
	}
	if g.RequiredDomain != "" {
		require.LessOrEqual(w.TB, len(domains), 1, "one %s was required", g.RequiredDomain)
	}
	for _, a := range p.Assignments {
		if a.Own != 0 {
			require.Equal(w.TB, visible[a.Node], a.Visible)
			require.Equal(w.TB, nodes[a.Node].GPUs.Ring(a.Visible), a.Ring)
		}
	}
	apart := map[string]bool{}
	for _, r := range g.Roles {
		on := map[string]int{}
		for _, a := range p.Assignments {
			if strings.HasPrefix(a.Member, r.Name+"-") {
				on[a.Node]++
				require.False(w.TB, r.Apart != "" && apart[a.Node], "two members on %s that keep apart", a.Node)
				apart[a.Node] = r.Apart != ""
				require.True(w.TB, r.Pools == nil || nodes[a.Node].Pool == "p")
				require.False(w.TB, nodes[a.Node].Unschedulable)
				require.True(w.TB, nodes[a.Node].Taints == nil || r.Tolerations != nil)
			}
		}
		for node, n := range on {
			require.True(w.TB, r.MaxPerNode == 0 || n <= r.MaxPerNode, "%d of %s on %s", n, r.Name, node)
		}
	}
}

// CheckFix applies a fix with all that belongs to it, and plans again.
func (w *World) CheckFix(g placement.Gang, fix placement.Fix) {
	v := w.View.Clone()
	spec := w.Spec
	spec.Children = append([]quota.Spec(nil), spec.Children...)
	grow, by := "", 0
	for _, f := range append([]placement.Fix{fix}, fix.With...) {
		to, _ := strconv.Atoi(f.To)
		from, _ := strconv.Atoi(f.From)
		roles := append([]placement.Role(nil), g.Roles...)
		g.Roles = roles
		switch f.Kind {
		case placement.FixPoolSize:
			grow, by = f.Target, to-from
		case placement.FixMembers:
			if f.Target == "minimum" {
				g.Minimum = to
				continue
			}
			for i := range roles {
				if roles[i].Name == f.Target {
					roles[i].Members = roles[i].Members[:to]
					if g.Whole {
						g.Minimum -= from - to
					}
				}
			}
		case placement.FixGPUs:
			for i := range roles {
				if roles[i].Request.Mode == placement.ModeTopology || roles[i].Request.Mode == placement.ModeDefault {
					if roles[i].Request.GPUs == from {
						roles[i].Request.GPUs = to
					}
				}
			}
		case placement.FixCPU, placement.FixMemory:
			for i := range roles {
				amount := &roles[i].Request.MilliCPU
				if f.Kind == placement.FixMemory {
					amount = &roles[i].Request.MemoryBytes
				}
				if !roles[i].Late && *amount == int64(from) {
					*amount = int64(to)
				}
			}
		case placement.FixGPUMemory:
			for i := range roles {
				if r := &roles[i].Request; r.MemoryGiB == int64(from) {
					r.MemoryGiB = int64(to)
				}
			}
		case placement.FixMode:
			for i := range roles {
				if roles[i].Request.Mode == placement.Mode(f.From) {
					roles[i].Request.Mode = placement.Mode(f.To)
				}
			}
		case placement.FixPreemptible:
			g.Preemptible = true
		case placement.FixToleration:
			for i := range roles {
				roles[i].Tolerations = append(append([]placement.Toleration(nil), roles[i].Tolerations...), placement.Toleration{Key: "team", Value: "a", Effect: "NoSchedule"})
			}
		case placement.FixSelector:
			for i := range roles {
				roles[i].NodeSelector = maps.Clone(roles[i].NodeSelector)
				for _, label := range strings.Split(f.From, ", ") {
					if key, value, _ := strings.Cut(label, "="); roles[i].NodeSelector[key] == value {
						delete(roles[i].NodeSelector, key)
					}
				}
			}
		case placement.FixPort:
			for i := range roles {
				roles[i].Request.HostPorts = slices.Clone(roles[i].Request.HostPorts)
				for at, port := range roles[i].Request.HostPorts {
					if port == f.From {
						roles[i].Request.HostPorts[at] = f.To
					}
				}
			}
		case placement.FixUncordon:
			for _, name := range strings.Split(f.Target, ", ") {
				n, ok := v.Node(name)
				require.True(w.TB, ok, name)
				v.SetNode(uncordoned(n))
			}
		case placement.FixQuotaMax:
			w.Raised++
			w.raise(&spec, f, int64(to))
		}
	}
	if spec.Children != nil {
		SetQuota(w.TB, v, spec)
	}
	if grow != "" {
		if len(fix.With) > 0 {
			w.Grown++
		}
		w.grow(v, g, grow, by)
		return
	}
	require.NotNil(w.TB, planner.Plan(v, g).Placement, "%s does not help %+v", fix.Text, g)
}

func (w *World) raise(spec *quota.Spec, f placement.Fix, to int64) {
	target := spec
	if name, below := strings.CutPrefix(f.Target, "root/"); below {
		for i := range spec.Children {
			if spec.Children[i].Name == name {
				target = &spec.Children[i]
			}
		}
	}
	if f.Resource == quota.Jobs {
		target.MaxJobs = to
		return
	}
	limits := quota.Resources{}
	for resource, amount := range target.Max {
		limits[resource] = amount
	}
	limits[f.Resource] = to
	target.Max = limits
	if target == spec {
		target.Min = limits
	}
}

// cordon is the taint that Kubernetes puts on a node that is cordoned.
var cordon = placement.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}

// uncordoned is a node as it is when it is not cordoned any more.
func uncordoned(n placement.Node) placement.Node {
	n.Unschedulable = false
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t placement.Taint) bool { return t == cordon })
	return n
}

// grow adds nodes to a pool like one of its own and demands that the gang fits for
// one of them as the model.
func (w *World) grow(v *snapshot.View, g placement.Gang, pool string, by int) {
	require.Positive(w.TB, by)
	for _, model := range w.Nodes {
		if model.Pool != pool {
			continue
		}
		grown := v.Clone()
		for i := range by {
			n := uncordoned(model)
			n.Name, n.Labels = fmt.Sprint("new", i), maps.Clone(n.Labels)
			n.Labels[hostname] = n.Name
			grown.SetNode(n)
		}
		if planner.Plan(grown, g).Placement != nil {
			return
		}
	}
	require.Failf(w.TB, "no help", "%d more nodes in pool %s do not help %+v", by, pool, g)
}

// RemoveGang ends a gang.
func (w *World) RemoveGang() {
	gone := fmt.Sprint("ml/g", w.Intn(w.gangs))
	for id, p := range w.Pods {
		if p.Gang == gone {
			delete(w.Pods, id)
			w.View.RemovePod(id)
		}
	}
}
