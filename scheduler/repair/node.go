package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// maxNamed bounds the members that a text names: an event holds 1,024 characters.
const maxNamed = 8

// syncNode fails the members on a node that is lost, and else looks at the GPUs of
// the gangs on it.
func (c *Controller) syncNode(ctx context.Context, name string) error {
	members := slices.DeleteFunc(c.cache.MembersOn(name), func(p *corev1.Pod) bool {
		return p.Spec.SchedulerName != contract.SchedulerName || c.failing[p.UID]
	})
	if len(members) == 0 {
		return nil
	}
	gangs := map[string][]*corev1.Pod{}
	for _, pod := range members {
		key, _ := inventory.GangKey(pod)
		gangs[key] = append(gangs[key], pod)
	}
	loss, err := c.loss(ctx, name)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(gangs)) {
		if loss == "" {
			c.cache.Regain(gangs[key])
			c.queue.Add(item{gang: key})
			continue
		}
		if err := c.failMembers(ctx, key, gangs[key], loss); err != nil {
			return err
		}
	}
	return nil
}

// loss says how a node was lost, "" while it is not. A node whose grace runs is looked
// at again when it is over.
func (c *Controller) loss(ctx context.Context, name string) (string, error) {
	node := c.cache.NodeObject(name)
	if node == nil {
		_, err := c.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("node %s is gone", name), nil
		case err != nil:
			return "", fmt.Errorf("check that node %s is gone: %w", name, err)
		}
		return "", nil // the cache is a moment behind
	}
	text, left := lossOf(node, c.grace, c.clock.Now())
	if left > 0 {
		c.queue.AddAfter(item{node: name}, left)
	}
	return text, nil
}

// lossOf reads from a node's taints how it was lost, "" while it is not; left is what
// is left of the grace of a node that is about to be.
func lossOf(node *corev1.Node, grace time.Duration, now time.Time) (text string, left time.Duration) {
	for _, taint := range node.Spec.Taints {
		state := ""
		switch taint.Key {
		case corev1.TaintNodeOutOfService:
			return fmt.Sprintf("node %s is out of service", node.Name), 0
		case corev1.TaintNodeUnreachable:
			state = "unreachable"
		case corev1.TaintNodeNotReady:
			state = "not ready"
		}
		if state == "" || taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil {
			continue
		}
		if left = taint.TimeAdded.Add(grace).Sub(now); left <= 0 {
			return fmt.Sprintf("node %s has been %s since %s", node.Name, state, taint.TimeAdded.UTC().Format(time.RFC3339)), 0
		}
	}
	return "", max(left, 0)
}

// failMembers tells a gang that it loses members, and fails them, also when it cannot be told: they
// would hold up the whole gang.
func (c *Controller) failMembers(ctx context.Context, key string, members []*corev1.Pod, loss string) error {
	c.cache.Lose(members)
	health := c.cache.Health(key)
	remaining := slices.DeleteFunc(health.Running, func(p *corev1.Pod) bool {
		return slices.ContainsFunc(members, func(lost *corev1.Pod) bool { return lost.UID == p.UID })
	})
	text := fmt.Sprintf("%s, and with it %s of the gang", loss, named(members))
	untold := c.record(ctx, key, health.PodGroup, remaining, reasonNodeLost, text)
	errs := []error{untold}
	for _, pod := range members {
		err := c.fail(ctx, pod, loss)
		if errs = append(errs, err); err == nil && untold != nil {
			c.untold[key] = text
			c.queue.AddRateLimited(item{gang: key})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Failed members of a gang", "gang", key, "why", text)
	return nil
}

// named lists members: "worker-1, worker-2".
func named(members []*corev1.Pod) string {
	names := inventory.MemberNames(members)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
