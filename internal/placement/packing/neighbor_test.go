package packing_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// town is a small cluster, a gang with rules about which pods are near each other, and a
// slow model of what those rules allow, one pod after the other.
type town struct {
	*rand.Rand
	nodes []placement.Node
	free  map[string]int
	pods  []townPod
	gang  placement.Gang
	// tried are the states that lead to no end.
	tried map[string]bool
}

// townPod is a pod on its node.
type townPod struct {
	node   string
	labels map[string]string
	role   *placement.Role
}

func newTown(seed int64) *town {
	w := &town{Rand: rand.New(rand.NewSource(seed)), free: map[string]int{}, tried: map[string]bool{}}
	for i := range 2 + w.Intn(4) {
		n := placement.Node{
			Name: fmt.Sprint("n", i), Mode: placement.ModeTopology, GPUs: placementtest.V100(),
			Labels:      map[string]string{"kubernetes.io/hostname": fmt.Sprint("n", i), "zone": fmt.Sprint("z", w.Intn(3)), "pool": fmt.Sprint("p", w.Intn(2))},
			Allocatable: placement.Resources{MilliCPU: 64000, MemoryBytes: 64 << 30, Pods: int64(1 + w.Intn(3))},
		}
		if w.Intn(6) == 0 {
			delete(n.Labels, "zone")
		}
		if w.Intn(8) == 0 {
			n.Taints = []placement.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}}
		}
		w.nodes = append(w.nodes, n)
		w.free[n.Name] = int(n.Allocatable.Pods)
	}
	for range w.Intn(4) {
		n := w.nodes[w.Intn(len(w.nodes))]
		if w.free[n.Name] > 0 {
			w.free[n.Name]--
			w.pods = append(w.pods, townPod{node: n.Name, labels: map[string]string{"app": []string{"job", "web"}[w.Intn(2)]}})
		}
	}
	w.gang = placement.Gang{ID: "ns/job"}
	for i := range 1 + w.Intn(2) {
		name := []string{"alpha", "beta"}[i]
		r := placementtest.Role(name, 1+w.Intn(3), placement.Request{Mode: placement.ModeTopology, GPUs: 1})
		r.Labels = map[string]string{"app": "job", "role": name}
		w.rules(&r)
		w.gang.Roles = append(w.gang.Roles, r)
	}
	w.domains()
	return w
}

// domains makes the domains in which members of a role must be near each other those of the
// gang, as adapters do, though other roles need not be there and other pods may be in several.
func (w *town) domains() {
	for _, r := range w.gang.Roles {
		for _, term := range r.Neighbors {
			known := slices.ContainsFunc(w.gang.Domains, func(d placement.Domain) bool { return d.Label == term.Label })
			if !term.Apart && !known && selects(term.Pods, r.Labels) {
				w.gang.Domains = append(w.gang.Domains, placement.Domain{Label: term.Label, Required: true})
			}
		}
		if len(w.gang.Domains) > 0 {
			break
		}
	}
	slices.SortFunc(w.gang.Domains, func(a, b placement.Domain) int { return strings.Compare(b.Label, a.Label) })
}

func (w *town) selector() placement.Selector {
	s := placement.Selector{Namespaces: []string{"ns"}}
	switch w.Intn(4) {
	case 0:
		s.Requirements = []placement.Requirement{{Key: "role", Operator: "In", Values: []string{"alpha"}}}
	case 1:
		s.Requirements = []placement.Requirement{{Key: "role", Operator: "Exists"}}
	default:
		s.Requirements = []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"job"}}}
	}
	return s
}

func (w *town) rules(r *placement.Role) {
	label := func() string { return []string{"kubernetes.io/hostname", "zone", "zone"}[w.Intn(3)] }
	for range w.Intn(3) {
		switch w.Intn(4) {
		case 0:
			r.Neighbors = append(r.Neighbors, placement.Neighbor{Label: label(), Pods: w.selector(), Apart: true})
		case 1:
			r.Neighbors = append(r.Neighbors, placement.Neighbor{Label: label(), Pods: w.selector()})
		default:
			r.Spreads = append(r.Spreads, placement.TopologySpread{
				Label: label(), Pods: w.selector(), MaxSkew: 1 + w.Intn(2), MinDomains: w.Intn(3),
				AnyAffinity: w.Intn(2) == 0, HonorTaints: w.Intn(2) == 0,
			})
		}
	}
	if w.Intn(4) == 0 {
		r.NodeSelector = map[string]string{"pool": "p0"}
	}
	if w.Intn(5) == 0 {
		r.NodeLimits = map[string]int{"n0": w.Intn(3)}
	}
}

func (w *town) view() *snapshot.View {
	v := snapshot.NewView()
	for _, n := range w.nodes {
		v.SetNode(n)
	}
	for i, p := range w.pods {
		v.AddPod(placement.Pod{ID: fmt.Sprint("pod", i), Node: p.node, Namespace: "ns", Labels: p.labels})
	}
	return v
}

func selects(s placement.Selector, labels map[string]string) bool {
	for _, r := range s.Requirements {
		value, ok := labels[r.Key]
		if !ok || len(r.Values) > 0 && value != r.Values[0] {
			return false
		}
	}
	return true
}

// admits reports whether a member of a role may be on a node by what does not change.
func (*town) admits(r *placement.Role, n *placement.Node) bool {
	return len(n.Taints) == 0 && (r.NodeSelector == nil || n.Labels["pool"] == r.NodeSelector["pool"])
}

// allows reports whether a member may come to a node beside the pods that are there.
func (w *town) allows(r *placement.Role, n *placement.Node, pods []townPod) bool {
	here, mine := 0, 0
	domain := func(label, node string) string {
		for _, o := range w.nodes {
			if o.Name == node {
				return o.Labels[label]
			}
		}
		return ""
	}
	for _, p := range pods {
		if p.node == n.Name {
			here++
			if p.role == r {
				mine++
			}
		}
	}
	limit, limited := r.NodeLimits[n.Name]
	if !w.admits(r, n) || int64(here) >= n.Allocatable.Pods || limited && mine >= limit {
		return false
	}
	same := func(label, node string) bool { d := domain(label, n.Name); return d != "" && domain(label, node) == d }
	near, nearAll, anywhere, self := true, true, false, true
	for _, term := range r.Neighbors {
		if term.Apart {
			for _, p := range pods {
				if same(term.Label, p.node) && selects(term.Pods, p.labels) {
					return false
				}
			}
			continue
		}
		nearAll = false
		self = self && selects(term.Pods, r.Labels)
	}
	matches := func(labels map[string]string) bool {
		for _, term := range r.Neighbors {
			if !term.Apart && !selects(term.Pods, labels) {
				return false
			}
		}
		return true
	}
	for _, term := range r.Neighbors {
		if term.Apart {
			continue
		}
		found := false
		for _, p := range pods {
			if matches(p.labels) && domain(term.Label, p.node) != "" {
				anywhere = true
				found = found || same(term.Label, p.node)
			}
		}
		near = near && found
		if n.Labels[term.Label] == "" {
			return false
		}
	}
	if !nearAll && !near && (anywhere || !self) {
		return false
	}
	for _, p := range pods {
		if p.role == nil {
			continue
		}
		for _, term := range p.role.Neighbors {
			if term.Apart && same(term.Label, p.node) && selects(term.Pods, r.Labels) {
				return false
			}
		}
	}
	return w.even(r, n, pods)
}

// even reports whether the spreads of a role allow a member on a node.
func (w *town) even(r *placement.Role, n *placement.Node, pods []townPod) bool {
	for _, s := range r.Spreads {
		if n.Labels[s.Label] == "" {
			return false
		}
		counts := map[string]int{}
		for i := range w.nodes {
			o := &w.nodes[i]
			looks := true
			for _, other := range r.Spreads {
				looks = looks && o.Labels[other.Label] != ""
			}
			looks = looks && (s.AnyAffinity || r.NodeSelector == nil || o.Labels["pool"] == r.NodeSelector["pool"]) && (!s.HonorTaints || len(o.Taints) == 0)
			if !looks {
				continue
			}
			counts[o.Labels[s.Label]] += 0
			for _, p := range pods {
				if p.node == o.Name && selects(s.Pods, p.labels) {
					counts[o.Labels[s.Label]]++
				}
			}
		}
		lowest := 1 << 30
		for _, c := range counts {
			lowest = min(lowest, c)
		}
		if len(counts) < s.MinDomains {
			lowest = 0
		}
		self := 0
		if selects(s.Pods, r.Labels) {
			self = 1
		}
		if counts[n.Labels[s.Label]]+self-lowest > s.MaxSkew {
			return false
		}
	}
	return true
}

// canBe reports whether the members that are left can come one after the other, in some order.
func (w *town) canBe(left []int, pods []townPod) bool {
	key := fmt.Sprint(left)
	for _, n := range w.nodes {
		for i := range w.gang.Roles {
			here := 0
			for _, p := range pods {
				if p.node == n.Name && p.role == &w.gang.Roles[i] {
					here++
				}
			}
			key += fmt.Sprint(" ", here)
		}
	}
	if w.tried[key] {
		return false
	}
	w.tried[key] = true
	done := true
	for i := range w.gang.Roles {
		if left[i] == 0 {
			continue
		}
		done = false
		r := &w.gang.Roles[i]
		for j := range w.nodes {
			if n := &w.nodes[j]; w.allows(r, n, pods) {
				left[i]--
				ok := w.canBe(left, append(pods[:len(pods):len(pods)], townPod{node: n.Name, labels: r.Labels, role: r}))
				left[i]++
				if ok {
					return true
				}
			}
		}
	}
	return done
}

// inOrder reports whether the members can take the places of a placement in some order.
func (w *town) inOrder(due []placement.Assignment, pods []townPod) bool {
	if len(due) == 0 {
		return true
	}
	for i, a := range due {
		var r *placement.Role
		for j := range w.gang.Roles {
			if strings.HasPrefix(a.Member, w.gang.Roles[j].Name+"-") {
				r = &w.gang.Roles[j]
			}
		}
		for j := range w.nodes {
			if n := &w.nodes[j]; n.Name == a.Node && w.allows(r, n, pods) {
				rest := append(append([]placement.Assignment(nil), due[:i]...), due[i+1:]...)
				if w.inOrder(rest, append(pods[:len(pods):len(pods)], townPod{node: a.Node, labels: r.Labels, role: r})) {
					return true
				}
			}
		}
	}
	return false
}

// A gang with rules about which pods are near each other is placed whenever its pods could
// be, one after the other, and only where they could be.
func TestNeighborsAgainstSlowModel(t *testing.T) {
	fits, waits := 0, 0
	for seed := range int64(4000) {
		w := newTown(seed)
		left := make([]int, len(w.gang.Roles))
		for i, r := range w.gang.Roles {
			left[i] = len(r.Members)
		}
		result := planner.Plan(w.view(), w.gang)
		require.Equal(t, w.canBe(left, w.pods), result.Placement != nil, "seed %d: %s\nnodes %+v\npods %+v\ngang %+v", seed, result.Verdict, w.nodes, w.pods, w.gang)
		require.Equal(t, result, planner.Plan(w.view(), w.gang), "seed %d", seed)
		if result.Placement == nil {
			waits++
			require.NotEmpty(t, result.Verdict.Reasons, "seed %d", seed)
			continue
		}
		fits++
		require.True(t, w.inOrder(result.Placement.Assignments, w.pods), "seed %d: %+v", seed, result.Placement)
	}
	t.Logf("%d placed, %d not", fits, waits)
	assert.Greater(t, fits, 500)
	assert.Greater(t, waits, 500)
}

// Wishes decide among places that are otherwise free: preferred nodes come first, and a
// soft spread is kept where all members get a place by it.
func TestWishes(t *testing.T) {
	v := snapshot.NewView()
	for i := range 4 {
		v.SetNode(placement.Node{
			Name: fmt.Sprint("n", i), Mode: placement.ModeTopology, GPUs: placementtest.V100(),
			Labels:      map[string]string{"zone": fmt.Sprint("z", i%2), "disk": []string{"hdd", "hdd", "hdd", "ssd"}[i]},
			Allocatable: placement.Resources{MilliCPU: 64000, MemoryBytes: 64 << 30, Pods: 110},
		})
	}
	nodes := func(g placement.Gang) map[string]int {
		result := planner.Plan(v, g)
		require.NotNil(t, result.Placement, result.Verdict.String())
		on := map[string]int{}
		for _, a := range result.Placement.Assignments {
			on[a.Node]++
		}
		return on
	}
	r := placementtest.Role("worker", 4, placement.Request{Mode: placement.ModeTopology, GPUs: 2})
	assert.Equal(t, map[string]int{"n0": 4}, nodes(placement.Gang{ID: "ns/a", Roles: []placement.Role{r}}))

	fast := r
	fast.Preferred = []placement.Preference{{Weight: 10, Requirements: []placement.Requirement{{Key: "disk", Operator: "In", Values: []string{"ssd"}}}}}
	assert.Equal(t, map[string]int{"n3": 4}, nodes(placement.Gang{ID: "ns/a", Roles: []placement.Role{fast}}))
	fast.Members = placementtest.Role("worker", 6, r.Request).Members
	assert.Equal(t, map[string]int{"n3": 4, "n0": 2}, nodes(placement.Gang{ID: "ns/a", Roles: []placement.Role{fast}}), "the rest goes elsewhere")

	even := r
	even.Labels = map[string]string{"app": "job"}
	even.Spreads = []placement.TopologySpread{{Label: "zone", MaxSkew: 1, Soft: true, Pods: placement.Selector{Requirements: []placement.Requirement{{Key: "app", Operator: "Exists"}}}}}
	assert.Equal(t, map[string]int{"n0": 2, "n1": 2}, nodes(placement.Gang{ID: "ns/a", Roles: []placement.Role{even}}))
	even.NodeSelector = map[string]string{"disk": "ssd"}
	even.Spreads[0].AnyAffinity = true
	assert.Equal(t, map[string]int{"n3": 4}, nodes(placement.Gang{ID: "ns/a", Roles: []placement.Role{even}}), "it does without")
}

// Members that are spread over many nodes are placed in one go.
func BenchmarkSpread(b *testing.B) {
	v := snapshot.NewView()
	for i := range 1000 {
		v.SetNode(placement.Node{
			Name: fmt.Sprint("n", i), Mode: placement.ModeTopology, GPUs: placementtest.V100(),
			Labels:      map[string]string{"kubernetes.io/hostname": fmt.Sprint("n", i), "zone": fmt.Sprint("z", i%3)},
			Allocatable: placement.Resources{MilliCPU: 64000, MemoryBytes: 64 << 30, Pods: 110},
		})
	}
	r := placementtest.Role("worker", 256, placement.Request{Mode: placement.ModeTopology, GPUs: 4})
	r.Labels = map[string]string{"app": "job"}
	r.Spreads = []placement.TopologySpread{{Label: "zone", MaxSkew: 1, Pods: placement.Selector{Requirements: []placement.Requirement{{Key: "app", Operator: "Exists"}}}}}
	g := placement.Gang{ID: "ns/a", Roles: []placement.Role{r}}
	for b.Loop() {
		if planner.Place(v, g) == nil {
			b.Fatal("it has no place")
		}
	}
}
