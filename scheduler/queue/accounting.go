package queue

import (
	"cmp"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// listed is how many units of a queue its status lists.
const listed = 100

// accounts add up what the status of the tree and of the queues says.
type accounts struct {
	tree *quota.Tree
	// nodes are those that are charged, "" for what no node is.
	nodes map[string]*account
	// resources are those that the tree names somewhere.
	resources map[string]bool
	// counted are the jobs whose whole charge is in what is asked for.
	counted map[types.UID]bool
}

// account is the sums of a node.
type account struct {
	used, asked     quota.Resources
	active, pending int64
	details, off    []*entry
}

func newAccounts(t *tree) *accounts {
	b := &accounts{nodes: map[string]*account{}, resources: map[string]bool{}, counted: map[types.UID]bool{}}
	if t != nil {
		b.tree = t.empty
		b.name(t.spec)
	}
	return b
}

func (b *accounts) name(node quota.Spec) {
	for _, list := range []quota.Resources{node.Min, node.Max} {
		for name := range list {
			b.resources[name] = true
		}
	}
	for _, child := range node.Children {
		b.name(child)
	}
}

// leaf is the account of the node that pays for a leaf ([quota.Tree.Payer]).
func (b *accounts) leaf(name string) *account {
	if b.tree != nil {
		name = b.tree.Payer(name)
	}
	return b.of(name)
}

func (b *accounts) of(node string) *account {
	a := b.nodes[node]
	if a == nil {
		a = &account{used: quota.Resources{}, asked: quota.Resources{}}
		b.nodes[node] = a
	}
	return a
}

// use adds what bound pods use, ask what pods ask for.
func (b *accounts) use(leaf string, amounts quota.Resources) { add(b.leaf(leaf).used, amounts, 1) }
func (b *accounts) ask(leaf string, amounts quota.Resources) { add(b.leaf(leaf).asked, amounts, 1) }

// active counts a job that may run, wait one that waits in the queue or is off.
func (b *accounts) active(e *entry) {
	b.job(e)
	b.leaf(e.leaf).active++
}

func (b *accounts) pending(e *entry, off bool) {
	b.job(e)
	a := b.leaf(e.leaf)
	a.pending++
	if off {
		a.off = append(a.off, e)
	}
}

func (b *accounts) job(e *entry) {
	b.counted[e.job.uid] = true
	b.ask(e.leaf, e.job.charge)
}

// list adds a unit to the list of its queue; it is called in the order of the line.
func (b *accounts) list(e *entry) {
	a := b.leaf(e.leaf)
	a.details = append(a.details, e)
}

// sum adds up a node with everything below it.
func (b *accounts) sum(node quota.Spec) *account {
	own := b.of(node.Name)
	if len(node.Children) == 0 {
		return own
	}
	total := &account{used: maps.Clone(own.used), asked: maps.Clone(own.asked), active: own.active, pending: own.pending}
	for _, child := range node.Children {
		below := b.sum(child)
		add(total.used, below.used, 1)
		add(total.asked, below.asked, 1)
		total.active += below.active
		total.pending += below.pending
	}
	return total
}

// node is the status of a node, in the form of koord-queue.
func (b *accounts) node(node quota.Spec) map[string]any {
	a := b.sum(node)
	status := map[string]any{
		"name":    node.Name,
		"used":    b.amounts(a.used, a.active),
		"request": b.amounts(a.asked, a.active+a.pending),
	}
	if len(node.Namespaces) > 0 {
		status["namespaces"] = anySlice(node.Namespaces, func(n string) any { return n })
	}
	if len(node.Children) > 0 {
		status["children"] = anySlice(node.Children, func(child quota.Spec) any { return b.node(child) })
	}
	return status
}

func anySlice[T any](in []T, convert func(T) any) []any {
	out := make([]any, len(in))
	for i, item := range in {
		out[i] = convert(item)
	}
	return out
}

// amounts are those of the resources that the tree names, and the number of jobs.
func (b *accounts) amounts(sums quota.Resources, jobs int64) map[string]any {
	list := map[string]any{contract.MaxJobsKey: resource.NewQuantity(jobs, resource.DecimalSI).String()}
	for name := range b.resources {
		q := inventory.Quantity(name, sums[name])
		list[name] = q.String()
	}
	return list
}

// queueReport is a Queue whose status is to be written.
type queueReport struct {
	queue  *queue
	status contract.QueueStatus
}

// reportQueues finds the Queues whose status is not as it should be.
func (p *reconciler) reportQueues() {
	if p.tree == nil {
		return
	}
	p.out.counts = map[string]contract.QueueStatus{}
	p.reportQueue(p.tree.spec, "")
	slices.SortFunc(p.out.queues, func(a, b queueReport) int { return cmp.Compare(a.queue.Name, b.queue.Name) })
}

func (p *reconciler) reportQueue(node quota.Spec, above string) {
	path := above + node.Name
	for _, child := range node.Children {
		p.reportQueue(child, path+"/")
	}
	a := p.accounts.sum(node)
	status := contract.QueueStatus{Pending: int32(a.pending), Active: int32(a.active)}
	p.out.counts[path] = status
	q := p.queueOf[path]
	if q == nil {
		return
	}
	for name, units := range map[string][]*entry{"active": a.details, "backoff": a.off} {
		if len(units) == 0 {
			continue
		}
		if status.QueueItemDetails == nil {
			status.QueueItemDetails = map[string][]contract.QueueItemDetail{}
		}
		status.QueueItemDetails[name] = details(units)
	}
	if !apiequality.Semantic.DeepEqual(q.Status, status) {
		p.out.queues = append(p.out.queues, queueReport{q, status})
	}
}

// details lists the first units.
func details(units []*entry) []contract.QueueItemDetail {
	slices.SortFunc(units, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.status.Position, b.status.Position), cmp.Compare(a.id(), b.id()))
	})
	var list []contract.QueueItemDetail
	for _, e := range units[:min(len(units), listed)] {
		list = append(list, contract.QueueItemDetail{
			Name: e.job.unitName(), Namespace: e.job.namespace,
			Priority: priority(e.spec), Position: e.status.Position,
		})
	}
	return list
}
