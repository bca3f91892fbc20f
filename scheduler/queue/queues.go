package queue

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

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
		}
	}
	e.spec.Resource = j.requests
	p.prioritize(e)
	if e.leaf == "" {
		return // it stays where it was, so that its Queue is not lost
	}
	if q := p.queueOf[e.path]; q != nil {
		e.spec.Queue = q.Name
	}
}

// prioritize gives the unit of a job that waits the priority that the job's pods will have, as
// soon as that is known, unless someone has given it another.
func (p *reconciler) prioritize(e *entry) {
	value, known := p.priorityOf(e.job)
	switch {
	case !known:
	case e.unit == nil, e.job.suspended && e.unit.classPriority() && priority(e.spec) != value:
		e.spec.PriorityClassName, e.spec.Priority = e.job.priorityClass, &value
	}
}

// classPriority reports whether nobody has edited the unit's priority.
func (u *unit) classPriority() bool {
	return u.Spec.Priority == nil || u.Annotations[contract.ClassPriorityAnnotation] == priorityText(u.Spec)
}

func priorityText(spec contract.QueueUnitSpec) string { return strconv.Itoa(int(priority(spec))) }

// priorityOf is the priority that the job's pods will have. It is not known while they name a class that
// there is not: the API server takes no such pods.
func (p *reconciler) priorityOf(j *job) (value int32, known bool) {
	class := p.classes[j.priorityClass]
	switch {
	case class != nil:
		return class.Value, true
	case j.priorityClass != "":
		return 0, false
	case j.priority != nil:
		return *j.priority, true
	}
	return p.podPriority, true
}

// defaultPriority is that of pods that name no class. Of several default classes the API server takes the lowest.
func (s *state) defaultPriority() int32 {
	var lowest *schedulingv1.PriorityClass
	for _, class := range s.classes {
		if class.GlobalDefault && (lowest == nil || class.Value < lowest.Value) {
			lowest = class
		}
	}
	if lowest == nil {
		return 0
	}
	return lowest.Value
}

func priority(spec contract.QueueUnitSpec) int32 {
	if spec.Priority == nil {
		return 0
	}
	return *spec.Priority
}
