package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var rivalRounds = flag.Int("rivals.rounds", 100, "how often two gangs compete")

// TestOneOfTwoGangsRuns submits two gangs that each fit alone but not together, their
// pods all at once in random order: exactly one runs, whichever it is, and the other
// waits as a whole.
func TestOneOfTwoGangsRuns(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	w := startWatching(t)
	wins := map[string]int{}
	for round := range *rivalRounds {
		random := rand.New(rand.NewPCG(1, uint64(round)))
		gangs := map[string][]*corev1.Pod{}
		var all []*corev1.Pod
		for _, name := range []string{"first", "second"} {
			gangs[name] = s.pods(topologyGang(fmt.Sprintf("%s-%d", name, round), 3, 2))
			all = append(all, gangs[name]...)
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		inParallel(t, all, func(p *corev1.Pod) error { return s.createPod(p) })
		w.await(t, "one gang to run and the other to wait", func() error {
			first, second := w.state(gangs["first"]), w.state(gangs["second"])
			if states := []string{first, second}; !slices.Contains(states, "runs") || !slices.Contains(states, "waits") {
				return fmt.Errorf("round %d: the first %s, the second %s", round, first, second)
			}
			if first == "runs" {
				wins["first"]++
			} else {
				wins["second"]++
			}
			return nil
		})
		w.remove(t, all)
	}
	t.Logf("%d rounds: %v", *rivalRounds, wins)
}

// state says whether all of some pods are bound ("runs"), or none and all know why ("waits").
func (w *watched) state(pods []*corev1.Pod) string {
	bound, told := 0, 0
	for _, p := range pods {
		switch pod := w.pod(p); {
		case pod == nil:
		case pod.Spec.NodeName != "":
			bound++
		case strings.Contains(reason([]corev1.Pod{*pod}), "of 3 members fit"):
			told++
		}
	}
	switch len(pods) {
	case bound:
		return "runs"
	case told:
		return "waits"
	}
	return fmt.Sprintf("has %d pods bound and %d waiting", bound, told)
}
