package queue

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// pod is a pod as the queue sees it.
type pod struct {
	owner types.UID
	place place
	// charge is what it asks for.
	charge quota.Resources
	// asks means that it has not ended, holds that it also has a node.
	asks, holds bool
	// runs means that it is ready, or has succeeded, which done does.
	runs, done bool
}

// place is where pods are charged, as far as it is known without the tree.
type place struct {
	namespace, leaf string
	preemptible     bool
}

// newPod reads a pod. Pods without a controller are their own owner.
func newPod(p *corev1.Pod) *pod {
	consumer := inventory.ConsumerOf(p, nil)
	n := &pod{
		owner:  p.UID,
		place:  place{p.Namespace, consumer.Leaf, consumer.Preemptible},
		charge: consumer.Charge,
		asks:   !inventory.Finished(p),
		done:   p.Status.Phase == corev1.PodSucceeded,
	}
	n.runs = n.done || p.DeletionTimestamp == nil && ready(p)
	n.holds = n.asks && p.Spec.NodeName != ""
	if controller := metav1.GetControllerOfNoCopy(p); controller != nil {
		n.owner = controller.UID
	}
	return n
}

func ready(p *corev1.Pod) bool {
	if p.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// same reports whether nothing changed that matters.
func (p *pod) same(other *pod) bool {
	return p.owner == other.owner && p.place == other.place && maps.Equal(p.charge, other.charge) &&
		p.asks == other.asks && p.holds == other.holds && p.runs == other.runs && p.done == other.done
}

// owner is the pods of one job, or of something else that makes pods.
type owner struct {
	// runs is how many of them run, or have succeeded, done how many have.
	runs, done int
	// asked and used are what those ask for that have not ended, and that have a node.
	asked, used map[place]quota.Resources
	pods        int
}

func newOwner() *owner {
	return &owner{asked: map[place]quota.Resources{}, used: map[place]quota.Resources{}}
}

// add counts a pod in, or out with sign -1.
func (o *owner) add(p *pod, sign int64) {
	o.pods += int(sign)
	if p.runs {
		o.runs += int(sign)
	}
	if p.done {
		o.done += int(sign)
	}
	if p.asks {
		addTo(o.asked, p, sign)
	}
	if p.holds {
		addTo(o.used, p, sign)
	}
}

func addTo(sums map[place]quota.Resources, p *pod, sign int64) {
	sum := sums[p.place]
	if sum == nil {
		sum = quota.Resources{}
		sums[p.place] = sum
	}
	add(sum, p.charge, sign)
}

// add changes sum by sign × other, and drops what becomes zero.
func add(sum, other quota.Resources, sign int64) {
	for name, amount := range other {
		if total := sum[name] + sign*amount; total != 0 {
			sum[name] = total
		} else {
			delete(sum, name)
		}
	}
}
