package queue

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// byArrival orders jobs that get their units.
func byArrival(a, b *entry) int {
	return cmp.Or(
		cmp.Compare(a.job.created, b.job.created),
		cmp.Compare(a.job.sequence, b.job.sequence), cmp.Compare(a.id(), b.id()))
}

// arrangeQueues finds the Queue of every node of the tree. Those that no node has are
// deleted when nothing waits in them any more.
func (p *reconciler) arrangeQueues() {
	p.queueOf = map[string]*queue{}
	wanted := map[string]bool{}
	if p.tree != nil {
		for _, path := range paths(p.tree.spec, "") {
			wanted[path] = true
		}
	}
	inUse := map[string]bool{}
	for _, u := range p.units {
		if u.Status.Phase != contract.UnitSucceed && u.Status.Phase != contract.UnitFailed {
			inUse[u.Spec.Queue] = true
		}
	}
	oldestFirst := slices.SortedFunc(maps.Values(p.queues), func(a, b *queue) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, q := range oldestFirst {
		path := q.Annotations[contract.QueuePathAnnotation]
		switch {
		case path == "" || q.DeletionTimestamp != nil:
		case wanted[path] && p.queueOf[path] == nil:
			p.queueOf[path] = q
		case p.bar != nil: // nobody knows whose it is
		case q.Labels[contract.QueueCreatedLabel] == contract.QueueCreatedValue && !inUse[q.Name]:
			p.out.deleteQueues = append(p.out.deleteQueues, q)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		if p.queueOf[path] == nil {
			p.out.createQueues = append(p.out.createQueues, path)
		}
	}
}

// paths lists the paths of all nodes of a tree.
func paths(node quota.Spec, above string) []string {
	path := above + node.Name
	all := []string{path}
	for _, child := range node.Children {
		all = append(all, paths(child, path+"/")...)
	}
	return all
}

// longestQueuePrefix is how much of a Queue's name comes from its path, as in koord-queue.
const longestQueuePrefix = 58

// queuePrefix is the beginning of the name of a node's Queue, "root-child-2-".
func queuePrefix(path string) string {
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(path))
	if excess := len(name) - (longestQueuePrefix - 1); excess > 0 {
		name = strings.TrimLeft(name[excess:], "-.")
	}
	return name + "-"
}

// describe writes into the unit's description what the job says.
func (p *reconciler) describe(e *entry) {
	j := e.job
	if e.unit == nil {
		e.spec = contract.QueueUnitSpec{
			ConsumerRef: corev1.ObjectReference{
				APIVersion: j.kind.gvk.GroupVersion().String(), Kind: j.kind.gvk.Kind,
				Namespace: j.namespace, Name: j.name, UID: j.uid,
			},
			PriorityClassName: j.priorityClass,
			Priority:          p.priorityOf(j),
		}
	}
	e.spec.Resource = j.requests
	if e.leaf == "" {
		return // it stays where it was, so that its Queue is not lost
	}
	if q := p.queueOf[e.path]; q != nil {
		e.spec.Queue = q.Name
	}
}

// priorityOf is the priority that the job's pods will have.
func (p *reconciler) priorityOf(j *job) *int32 {
	value := int32(0)
	switch class := p.classes[j.priorityClass]; {
	case class != nil:
		value = class.Value
	case j.priority != nil:
		value = *j.priority
	case j.priorityClass == "":
		for _, class := range p.classes {
			if class.GlobalDefault {
				value = class.Value
			}
		}
	}
	return &value
}

func priority(spec contract.QueueUnitSpec) int32 {
	if spec.Priority == nil {
		return 0
	}
	return *spec.Priority
}
