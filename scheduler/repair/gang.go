package repair

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// fieldManager owns the one condition that this package writes.
const fieldManager = "gpuplan-repair"

// syncGang brings the gang's condition in line with its running members.
func (c *Controller) syncGang(ctx context.Context, key string) error {
	health := c.cache.Health(key)
	for uid := range c.failing {
		if !c.cache.Holds(uid) {
			delete(c.failing, uid)
		}
	}
	if text := c.untold[key]; text != "" {
		remaining := slices.DeleteFunc(slices.Clone(health.Running), func(p *corev1.Pod) bool { return c.failing[p.UID] })
		if err := c.record(ctx, key, health.PodGroup, remaining, reasonNodeLost, text); err != nil {
			return err
		}
	}
	for _, pod := range health.Running {
		if c.failing[pod.UID] {
			return nil // its end brings the gang here again
		}
	}
	if len(health.Faults) > 0 {
		return c.record(ctx, key, health.PodGroup, health.Running, reasonGPUUnhealthy, faultText(health.Faults))
	}
	delete(c.recorded, key)
	if health.PodGroup == nil {
		return nil
	}
	have, err := degraded(health.PodGroup)
	if err != nil || have == nil || have.Status != metav1.ConditionTrue {
		return err
	}
	if have.Reason == reasonNodeLost && !health.Whole {
		return nil // it has not been repaired yet
	}
	_, err = c.condition(ctx, health.PodGroup, metav1.ConditionFalse, reasonRecovered, "no member is on a lost node or an unhealthy GPU")
	return err
}

// syncBound looks at a gang of which a member was bound, if it waits to be whole again.
func (c *Controller) syncBound(ctx context.Context, key string) error {
	group := c.cache.PodGroup(key)
	if group == nil {
		return nil
	}
	if have, err := degraded(group); err != nil || have == nil || have.Status != metav1.ConditionTrue {
		return err
	}
	return c.syncGang(ctx, key)
}

// faultText puts the faults of a gang in words.
func faultText(faults []clustercache.Fault) string {
	var parts []string
	for i, fault := range faults {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d more", len(faults)-maxNamed))
			break
		}
		parts = append(parts, fmt.Sprintf("GPU %d of node %s, which %s has, is unhealthy: %s", fault.GPU, fault.Node, fault.Member, fault.Reason))
	}
	return strings.Join(parts, "; ")
}

// record writes the text on the gang's PodGroup and as an event on the given pods, once.
func (c *Controller) record(ctx context.Context, key string, group *unstructured.Unstructured, pods []*corev1.Pod, reason, text string) error {
	known := c.recorded[key] == text
	if group != nil {
		written, err := c.condition(ctx, group, metav1.ConditionTrue, reason, text)
		if err != nil {
			return err
		}
		known = known || !written
	}
	c.recorded[key] = text
	delete(c.untold, key)
	if known {
		return nil
	}
	if group != nil {
		c.Events.Eventf(group, nil, corev1.EventTypeWarning, reason, "Repair", "%s", text)
	}
	for _, pod := range pods {
		c.Events.Eventf(pod, nil, corev1.EventTypeWarning, reason, "Repair", "%s", text)
	}
	return nil
}

// degraded reads the condition of a PodGroup, nil when it has none.
func degraded(group *unstructured.Unstructured) (*metav1.Condition, error) {
	return condition.Find(group, contract.DegradedCondition)
}

// condition writes the condition, unless the PodGroup says so already.
func (c *Controller) condition(ctx context.Context, group *unstructured.Unstructured, status metav1.ConditionStatus, reason, text string) (written bool, err error) {
	return condition.Apply(ctx, c.Dynamic, contract.PodGroupResource, fieldManager, group, metav1.Condition{
		Type: contract.DegradedCondition, Status: status, Reason: reason, Message: text, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
}
