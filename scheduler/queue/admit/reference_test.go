package admit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// The slow reference: the rules as the documents state them, each computed again from
// the lists of what runs, without a tree that keeps sums.

// refJob is a job of the reference.
type refJob struct {
	id       string
	leaf     string
	priority int32
	since    int64
	request  quota.Resources
	fixed    bool // not preemptible
}

// refWorld is a tree and what runs in it.
type refWorld struct {
	root    quota.Spec
	running []refJob
}

// chain returns the nodes from the root to the leaf of that name.
func chain(node quota.Spec, leaf string) []quota.Spec {
	if len(node.Children) == 0 {
		if node.Name == leaf {
			return []quota.Spec{node}
		}
		return nil
	}
	for _, child := range node.Children {
		if below := chain(child, leaf); below != nil {
			return append([]quota.Spec{node}, below...)
		}
	}
	return nil
}

func leavesOf(node quota.Spec) []string {
	if len(node.Children) == 0 {
		return []string{node.Name}
	}
	var all []string
	for _, child := range node.Children {
		all = append(all, leavesOf(child)...)
	}
	return all
}

// counts reports whether a job is charged to a node: to its leaf and all above, or to the root alone
// when the tree has no leaf of that name.
func counts(node quota.Spec, j refJob) bool {
	leaves := leavesOf(node)
	return slices.Contains(leaves, j.leaf) || node.Name == quota.RootName && j.leaf != ""
}

// uses adds up what jobs use below a node.
func uses(node quota.Spec, jobs []refJob, resource string, fixedOnly bool) int64 {
	var sum int64
	for _, j := range jobs {
		if counts(node, j) && (j.fixed || !fixedOnly) {
			sum += j.request[resource]
		}
	}
	return sum
}

// takes is what a node takes of its parent: what it uses, and of its minimum what it does not lend.
func takes(node quota.Spec, jobs []refJob, resource string) int64 {
	sum := uses(node, jobs, resource, false)
	if len(node.Children) > 0 {
		sum = 0
		for _, child := range node.Children {
			sum += takes(child, jobs, resource)
		}
	}
	if lend, limited := node.LendLimit[resource]; limited {
		sum = max(sum, node.Min[resource]-lend)
	}
	return sum
}

// allowed reports whether the tree allows all these jobs, as far as the newest is concerned.
func (w refWorld) allowed(jobs []refJob, newest refJob) bool {
	governed := map[string]bool{}
	var collect func(quota.Spec)
	collect = func(n quota.Spec) {
		for r := range n.Min {
			governed[r] = true
		}
		for r := range n.Max {
			governed[r] = true
		}
		for _, c := range n.Children {
			collect(c)
		}
	}
	collect(w.root)
	for resource, amount := range newest.request {
		if amount == 0 || !governed[resource] {
			continue
		}
		nodes := chain(w.root, newest.leaf)
		for i, node := range nodes {
			if newest.fixed && uses(node, jobs, resource, true) > node.Min[resource] {
				return false
			}
			high, limited := node.Max[resource]
			if !limited {
				continue
			}
			// Inside of the node the branch of the job counts with what it uses and
			// keeps further down, every other branch with what it takes.
			if along(nodes[i:], jobs, resource) > high {
				return false
			}
		}
	}
	return true
}

// along is what a node has to give when the job at the end of the nodes runs: the nodes
// on the way to it count without what they themselves keep.
func along(nodes []quota.Spec, jobs []refJob, resource string) int64 {
	if len(nodes) == 1 {
		return uses(nodes[0], jobs, resource, false)
	}
	sum := along(nodes[1:], jobs, resource) + uses(nodes[0], jobs, resource, false)
	for _, child := range nodes[0].Children {
		if sum -= uses(child, jobs, resource, false); child.Name != nodes[1].Name {
			sum += takes(child, jobs, resource)
		}
	}
	return sum
}

func (w refWorld) jobsFit(leaf string) bool {
	for _, node := range chain(w.root, leaf) {
		count := int64(0)
		for _, j := range w.running {
			if counts(node, j) {
				count++
			}
		}
		if node.MaxJobs > 0 && count >= node.MaxJobs {
			return false
		}
	}
	return true
}

// starts reports whether a job may start now.
func (w refWorld) starts(j refJob, holders []refJob) bool {
	if !w.jobsFit(j.leaf) {
		return false
	}
	if w.allowed(append(slices.Clone(w.running), j), j) {
		return true
	}
	// Entitled: within the leaf's own minimum once it runs.
	nodes := chain(w.root, j.leaf)
	leaf := nodes[len(nodes)-1]
	for resource, amount := range j.request {
		if amount > 0 && w.governs(resource) && uses(leaf, w.running, resource, false)+amount > leaf.Min[resource] {
			return false
		}
	}
	// Whoever borrows gives back, one after the other, while its leaf still borrows.
	left := slices.Clone(w.running)
	for _, h := range holders {
		if h.fixed || h.leaf == j.leaf {
			continue
		}
		chainOf := chain(w.root, h.leaf)
		if chainOf == nil { // it has no minimum that it could exceed
			continue
		}
		own := chainOf[len(chainOf)-1]
		for resource, amount := range h.request {
			if amount > 0 && j.request[resource] > 0 && w.governs(resource) && uses(own, left, resource, false) > own.Min[resource] {
				left = slices.DeleteFunc(left, func(r refJob) bool { return r.id == h.id })
				break
			}
		}
	}
	return w.allowed(append(left, j), j)
}

func (w refWorld) governs(resource string) bool {
	var names func(quota.Spec) bool
	names = func(n quota.Spec) bool {
		_, inMin := n.Min[resource]
		_, inMax := n.Max[resource]
		return inMin || inMax || slices.ContainsFunc(n.Children, names)
	}
	return names(w.root)
}

// share is the leaf's dominant share of what the job asks for and the tree counts.
func (w refWorld) share(j refJob) float64 {
	nodes := chain(w.root, j.leaf)
	leaf := nodes[len(nodes)-1]
	most := 0.0
	for resource, amount := range j.request {
		if used := uses(leaf, w.running, resource, false); amount > 0 && used > 0 && w.governs(resource) {
			most = max(most, float64(used)/float64(leaf.Min[resource]))
		}
	}
	return most
}

// rounds lets jobs start by the rules until none may, and returns their names in order
// and the place in the queue of the others.
func (w refWorld) rounds(waiting []refJob, queues map[string]Queue) (started []string, places map[string]int) {
	holders := slices.Clone(w.running)
	looked := map[string]bool{} // jobs that need not be looked at any more
	closed := map[string]bool{} // leaves whose queue is blocked
	for {
		// The first of each leaf that was not looked at.
		heads := map[string]refJob{}
		for _, j := range waiting {
			if looked[j.id] || closed[j.leaf] {
				continue
			}
			if head, ok := heads[j.leaf]; !ok || earlier(j, head) {
				heads[j.leaf] = j
			}
		}
		if len(heads) == 0 {
			break
		}
		order := slices.Collect(maps.Values(heads))
		sort.Slice(order, func(a, b int) bool {
			x, y := order[a], order[b]
			if p, q := queues[x.leaf].Priority, queues[y.leaf].Priority; p != q {
				return p > q
			}
			if p, q := w.share(x), w.share(y); p != q {
				return p < q
			}
			return earlier(x, y)
		})
		j := order[0]
		looked[j.id] = true
		switch {
		case w.starts(j, holders):
			w.running = append(w.running, j)
			started = append(started, j.id)
		case queues[j.leaf].Block:
			closed[j.leaf] = true
		}
	}
	places = map[string]int{}
	for _, leaf := range leavesOf(w.root) {
		line := slices.DeleteFunc(slices.Clone(waiting), func(j refJob) bool { return j.leaf != leaf || slices.Contains(started, j.id) })
		sort.Slice(line, func(a, b int) bool { return earlier(line[a], line[b]) })
		for i, j := range line {
			places[j.id] = i + 1
		}
	}
	return started, places
}

func earlier(a, b refJob) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}
	if a.since != b.since {
		return a.since < b.since
	}
	return a.id < b.id
}

var resources = []string{"cpu", "aliyun.com/gpu", "ungoverned"}

// randomTree makes a valid tree of up to three levels.
func randomTree(r *rand.Rand) quota.Spec {
	count := 0
	var node func(depth int) quota.Spec
	node = func(depth int) quota.Spec {
		count++
		n := quota.Spec{Name: fmt.Sprintf("n%d", count)}
		if r.IntN(3) == 0 {
			n.MaxJobs = 1 + r.Int64N(4)
		}
		children := 0
		if depth < 3 {
			children = r.IntN(4)
		}
		for range children {
			n.Children = append(n.Children, node(depth+1))
		}
		n.Min, n.Max, n.LendLimit = quota.Resources{}, quota.Resources{}, quota.Resources{}
		for _, resource := range resources[:2] {
			var below int64
			for _, c := range n.Children {
				below += c.Min[resource]
			}
			low := below + r.Int64N(8)
			if r.IntN(4) > 0 || below > 0 {
				n.Min[resource] = low
			}
			if r.IntN(3) > 0 {
				n.Max[resource] = n.Min[resource] + r.Int64N(10)
			}
			if r.IntN(4) == 0 && n.Min[resource] > 0 {
				n.LendLimit[resource] = r.Int64N(n.Min[resource] + 1)
			}
		}
		return n
	}
	root := node(0)
	for len(root.Children) == 0 {
		count = 0
		root = node(0)
	}
	root.Name, root.LendLimit = quota.RootName, nil
	for _, resource := range resources[:2] { // the root's min and max are one
		root.Max[resource] = max(root.Min[resource], root.Max[resource])
		root.Min[resource] = root.Max[resource]
	}
	return root
}

func randomJob(r *rand.Rand, id int, leaves []string) refJob {
	j := refJob{
		id: fmt.Sprintf("job-%03d", id), leaf: leaves[r.IntN(len(leaves))],
		priority: r.Int32N(3), since: int64(id / 2), request: quota.Resources{}, fixed: r.IntN(6) == 0,
	}
	for _, resource := range resources {
		if r.IntN(2) == 0 {
			j.request[resource] = r.Int64N(6)
		}
	}
	return j
}

// TestAgainstReference lets jobs arrive, start and end in random trees, and compares
// every pass with the reference.
func TestAgainstReference(t *testing.T) {
	const trees, steps = 200, 30
	started, blocked, waited := 0, 0, 0
	for seed := range uint64(trees) {
		r := rand.New(rand.NewPCG(seed, 7))
		root := randomTree(r)
		leaves := leavesOf(root)
		queues := map[string]Queue{}
		for _, leaf := range leaves {
			queues[leaf] = Queue{Block: r.IntN(2) == 0, Priority: r.Int32N(2)}
		}
		w := refWorld{root: root}
		var waiting []refJob
		for step := range steps {
			for range r.IntN(3) {
				waiting = append(waiting, randomJob(r, step*3+r.IntN(3)+1000*len(waiting), leaves))
			}
			if len(w.running) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(w.running))
				w.running = slices.Delete(w.running, i, i+1)
			}
			if len(w.running) > 0 && r.IntN(8) == 0 {
				w.running[r.IntN(len(w.running))].leaf = "gone"
			}
			decisions := decide(t, w, queues, waiting)
			wantStarted, wantPlaces := w.rounds(waiting, queues)

			var gotStarted []string
			gotPlaces := map[string]int{}
			for _, d := range decisions {
				if d.Start {
					gotStarted = append(gotStarted, d.ID)
					continue
				}
				gotPlaces[d.ID] = d.Position
				require.NotEmpty(t, d.Reason)
				waited++
				if strings.HasPrefix(d.Reason, "nothing passes") {
					blocked++
				}
			}
			require.Equal(t, wantStarted, gotStarted, "seed %d, step %d", seed, step)
			require.Equal(t, wantPlaces, gotPlaces, "seed %d, step %d", seed, step)
			started += len(gotStarted)
			waiting = slices.DeleteFunc(waiting, func(j refJob) bool {
				if slices.Contains(gotStarted, j.id) {
					w.running = append(w.running, j)
					return true
				}
				return false
			})
			// The order of those that started is that of their starting.
			slices.SortStableFunc(w.running, func(a, b refJob) int { return strings.Compare(a.id, b.id) })
		}
	}
	t.Logf("%d jobs started, %d times one waited, %d of them blocked", started, waited, blocked)
	require.Greater(t, started, 1000, "too few jobs started for the test to mean something")
	require.Greater(t, blocked, 1000)
}

func decide(t *testing.T, w refWorld, queues map[string]Queue, waiting []refJob) []Decision {
	t.Helper()
	tree, err := quota.New(w.root)
	require.NoError(t, err)
	var holders []Holder
	for _, j := range w.running {
		tree.Add(j.leaf, j.request, !j.fixed)
		tree.AddJob(j.leaf)
		holders = append(holders, Holder{Leaf: j.leaf, Request: j.request, Preemptible: !j.fixed})
	}
	var units []Unit
	for _, j := range waiting {
		units = append(units, Unit{ID: j.id, Leaf: j.leaf, Priority: j.priority, Since: j.since, Request: j.request, Preemptible: !j.fixed})
	}
	return Decide(tree, queues, units, holders)
}
