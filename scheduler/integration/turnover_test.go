package integration

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var (
	turnoverNodes = flag.Int("turnover.nodes", 10, "how many nodes are full in front of a long queue")
	turnoverQueue = flag.Int("turnover.queue", 300, "how many jobs wait in it")
	turnoverEnds  = flag.Int("turnover.ends", 20, "how many of those that run end")
)

// TestLongQueueInFrontOfAFullCluster lets jobs end one after the other while many wait
// that one GPU would do for each. The place of each that ends goes to one that waits, and
// the others are not tried in vain. How long that took, and what it cost, is logged.
func TestLongQueueInFrontOfAFullCluster(t *testing.T) {
	s := newTestCluster(t)
	w := startWatching(t)
	s.addPassiveNodes(w, *turnoverNodes)
	scheduler := startScheduler(t)
	submit := func(name string, n int) []*corev1.Pod {
		pods := s.pods(job{name: name, workers: n, gpus: 1, resource: contract.ResourceTopologyGPU})
		s.createAll(pods)
		return pods
	}
	count := func(pods []*corev1.Pod, is func(*corev1.Pod) bool) (n int) {
		for _, p := range pods {
			if pod := w.pod(p); pod != nil && is(pod) {
				n++
			}
		}
		return n
	}
	runs := func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }
	await := func(what string, pods []*corev1.Pod, is func(*corev1.Pod) bool, want int) {
		w.await(t, what, func() error {
			if n := count(pods, is); n != want {
				return fmt.Errorf("%d of %d", n, want)
			}
			return nil
		})
	}
	running := submit("running", 8**turnoverNodes)
	await("all GPUs to be in use", running, runs, len(running))
	waiting := submit("waiting", *turnoverQueue)
	await("all others to wait", waiting, func(p *corev1.Pod) bool { return reason([]corev1.Pod{*p}) != "" }, len(waiting))

	begin, before := time.Now(), cpuTime(t, scheduler.Command.Process.Pid)
	for i := range *turnoverEnds {
		w.remove(t, running[i:i+1])
		await("the next to run", waiting, runs, i+1)
	}
	took, cpu := time.Since(begin), cpuTime(t, scheduler.Command.Process.Pid)-before
	scheduler.End(syscall.SIGTERM)
	attempts := strings.Count(scheduler.Log.String(), "Unable to schedule pod")
	t.Logf("%d jobs wait on %d nodes: %d times the next one ran after %s, for %s of the scheduler's CPU time; %d cycles were in vain",
		*turnoverQueue, *turnoverNodes, *turnoverEnds, (took / time.Duration(*turnoverEnds)).Round(time.Millisecond),
		(cpu / time.Duration(*turnoverEnds)).Round(time.Millisecond), attempts-*turnoverQueue)
	assert.LessOrEqual(t, attempts, *turnoverQueue+3**turnoverEnds)
}
