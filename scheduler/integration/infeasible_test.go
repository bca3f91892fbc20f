package integration

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

var (
	infeasibleJobs   = flag.Int("infeasible.jobs", 200, "how many small jobs pass a infeasible gang")
	infeasibleRounds = flag.Int("infeasible.rounds", 1, "how often they do, in turns with and without the gang")
)

// TestInfeasibleGangInFront lets small jobs pass a gang that can never run and that stands
// before them in the queue. It looks at the gang's cycles: each costs a plan. What the
// gang costs in time is logged, as medians of all rounds.
func TestInfeasibleGangInFront(t *testing.T) {
	var took, cpu [2][]time.Duration
	for range *infeasibleRounds {
		for with, members := range []int{0, 64} {
			wall, used, cycles := passInfeasible(t, members)
			require.LessOrEqual(t, cycles, 3)
			took[with], cpu[with] = append(took[with], wall), append(cpu[with], used)
		}
	}
	for what, of := range map[string][2][]time.Duration{"time": took, "CPU": cpu} {
		without, with := median(of[0]), median(of[1])
		t.Logf("%d jobs: %s of %s without the gang, %s with it: %.0f %%", *infeasibleJobs,
			without.Round(time.Millisecond), what, with.Round(time.Millisecond), 100*with.Seconds()/without.Seconds())
	}
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// passInfeasible runs small jobs behind a gang of as many members, none for 0. It returns
// how long they took, what CPU time the scheduler took, and how many cycles the gang had.
func passInfeasible(t *testing.T, members int) (took, cpu time.Duration, cycles int) {
	s := newTestCluster(t)
	w := startWatching(t)
	s.addPassiveNodes(w, (*infeasibleJobs+7)/8)
	scheduler := startScheduler(t)
	infeasible := s.pods(topologyGang("infeasible", members, 16))
	inParallel(t, infeasible, func(p *corev1.Pod) error { return s.createPod(p) })
	w.await(t, "the gang to wait", func() error {
		for _, p := range infeasible {
			if pod := w.pod(p); pod == nil || reason([]corev1.Pod{*pod}) == "" {
				return fmt.Errorf("%s does not say why it waits", p.Name)
			}
		}
		return nil
	})
	jobs := s.pods(job{name: "small", workers: *infeasibleJobs, gpus: 1, resource: contract.ResourceTopologyGPU})
	begin, before := time.Now(), cpuTime(t, scheduler.Command.Process.Pid)
	s.createAll(jobs)
	w.await(t, "the small jobs to run", func() error {
		for _, p := range jobs {
			if pod := w.pod(p); pod == nil || pod.Spec.NodeName == "" {
				return fmt.Errorf("%s waits", p.Name)
			}
		}
		return nil
	})
	took, cpu = time.Since(begin), cpuTime(t, scheduler.Command.Process.Pid)-before
	scheduler.End(syscall.SIGTERM)
	for line := range strings.SplitSeq(scheduler.Log.String(), "\n") {
		if strings.Contains(line, "Unable to schedule pod") && strings.Contains(line, "/infeasible-") {
			cycles++
		}
	}
	return took, cpu, cycles
}

// cpuTime is the CPU time that a process has taken, as the kernel counts it: in
// hundredths of a second.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, numbers, _ := strings.Cut(string(text), ") ") // after the program's name
	ticks := int64(0)
	for _, field := range strings.Fields(numbers)[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
