package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTopologyGangOnBestGPUs(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)

	s.submit(topologyGang("vgg16", 4, 1))

	var gpus []int
	for _, pod := range s.awaitBound("vgg16") {
		record := s.allocation(pod)
		gpus = append(gpus, record.GPUs...)
		assert.Equal(t, s.nodes[0], record.Node)
		assert.Equal(t, []int{0, 1, 2, 3}, record.Visible)
		assert.Equal(t, 2, record.NVLinkRings)
		assert.Equal(t, s.namespace+"/vgg16", record.Gang)
	}
	assert.ElementsMatch(t, []int{0, 1, 2, 3}, gpus)
}

func TestGangThatDoesNotFitWaits(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)

	s.submit(topologyGang("big", 20, 1))

	text := s.awaitReason("big", "16 of 20")
	t.Log(text)
	s.addNode(machine{mode: "topology"})
	s.awaitBound("big")
	s.requireNoSharedGPUs()
}

func TestTwoGangsThatFitAloneButNotTogether(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)

	s.submit(topologyGang("first", 6, 1))
	s.submit(topologyGang("second", 6, 1))

	winner, loser := "first", "second"
	s.await("exactly one gang to run", func(ctx context.Context) (bool, string) {
		first, second := bound(s.list(ctx, "first")), bound(s.list(ctx, "second"))
		if second > 0 {
			winner, loser = "second", "first"
		}
		return max(first, second) == 6, fmt.Sprintf("%d and %d members bound", first, second)
	})
	s.awaitReason(loser, "2 of 6")
	s.finish(winner)
	s.awaitBound(loser)
}
