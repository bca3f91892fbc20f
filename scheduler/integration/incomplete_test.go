package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Pods of a gang that lacks members say so, like those of any other gang that waits: each in its condition, and by an
// event. A gang that is about to be complete says nothing.
func TestIncompleteGangsSayWhatTheyLack(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	short := topologyGang("short", 3, 1)
	short.workers = 2
	flagged := topologyGang("flagged", 1, 1)
	flagged.labels[contract.TopologyGroupLabel], flagged.labels[contract.TopologyReplicasLabel] = "true", "2"
	nameless := topologyGang("nameless", 1, 1)
	delete(nameless.labels, contract.TopologyGroupLabel)
	nameless.labels[contract.TopologyReplicasLabel] = "4"
	unnamed := job{name: "unnamed", workers: 1, gpus: 1, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.LightGangMinLabel: "2"}}
	groupless := job{name: "groupless", workers: 2, gpus: 1, resource: contract.ResourceTopologyGPU, labels: map[string]string{contract.PodGroupLabel: "groupless"}}
	plain := topologyGang("plain", 2, 0) // no GPUs either
	plain.workers = 1
	for _, j := range []job{short, flagged, nameless, unnamed, groupless, plain} {
		s.submit(j)
	}
	missing := map[string]string{
		"short":     "1 more pod of gang " + s.namespace + "/short must appear before it can start",
		"flagged":   "1 more pod of gang " + s.namespace + "/flagged must appear before it can start",
		"nameless":  "no label names its gang",
		"unnamed":   "no label names its gang",
		"groupless": "PodGroup " + s.namespace + "/groupless must appear before its pods can start",
		"plain":     "1 more pod of gang " + s.namespace + "/plain must appear before it can start",
	}
	for name, text := range missing {
		s.awaitReason(name, text)
		for _, pod := range s.list(t.Context(), name) {
			s.await("an event of "+pod.Name, func(ctx context.Context) (bool, string) {
				said := s.events(ctx, pod.Name, "FailedScheduling")
				return len(said) == 1 && strings.Contains(said[0], text), fmt.Sprint(said)
			})
		}
	}
	assert.Contains(t, reason(s.list(t.Context(), "nameless")), contract.TopologyReplicasLabel)

	rest := s.pods(topologyGang("short", 3, 1))[2]
	s.create(rest)
	bound := s.awaitBound("short")
	s.await("a member that has come last to say nothing", func(ctx context.Context) (bool, string) {
		for _, pod := range bound {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
					return false, condition.Message
				}
			}
		}
		return len(s.events(ctx, rest.Name, "FailedScheduling")) == 0, "it has events"
	})
}
