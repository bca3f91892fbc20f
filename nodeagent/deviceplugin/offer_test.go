package deviceplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// No container begins on a GPU that cannot be used. One that had it starts again.
func TestGPUsThatCannotBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*contract.GPUNodeStatus)
		want   string
		all    bool // all GPUs of the node
	}{
		"sick": {func(s *contract.GPUNodeStatus) { s.GPUs[1].Health, s.GPUs[1].Reason = contract.Unhealthy, "XID 79" }, "GPU 1 GPU-1 cannot be used: XID 79", false},
		"MIG":  {func(s *contract.GPUNodeStatus) { s.GPUs[1].MIG = true }, "GPU 1 GPU-1 cannot be used: it is in MIG mode", false},
		"unreadable": {func(s *contract.GPUNodeStatus) {
			s.Conditions = []metav1.Condition{{Type: contract.ConditionReady, Status: metav1.ConditionUnknown, Reason: "Hangs", Message: "it hangs", LastTransitionTime: metav1.Now()}}
		}, "GPU 1 GPU-1 cannot be used: the node agent cannot read the GPUs: it hangs", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "topology")
			ask := w.asked()
			w.offers(map[string]int{gpu: 4})
			p := w.pod("p", recordOf(1), container("main", amounts{gpu: 1}))
			_, _, err := ask(p, "main", "GPU-1", false)
			require.NoError(t, err)
			w.gpus(test.change)
			require.Eventually(t, func() bool { status, _ := w.agent.hardware(); return usable(status.GPUs[1], status) != "" }, 20*time.Second, time.Millisecond)
			_, _, err = ask(p, "main", "GPU-1", false)
			require.NoError(t, err)
			w.terminated(p)
			w.Remove(podKind, "default", "p")
			want := map[string]int{gpu: 3}
			if test.all {
				want = map[string]int{}
			}
			w.offers(want)
			next := w.pod("next", recordOf(1), container("main", amounts{gpu: 1}))
			require.ErrorContains(t, w.kubelet.prestart(w.kubelet.admit(next, "main", gpu, 1)), test.want)
			_, _, err = ask(next, "main", "GPU-1", false)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// What was published before the machine started says nothing of its GPUs.
func TestGPUsOfAnEarlierBoot(t *testing.T) {
	for name, test := range map[string]struct {
		instance, boot string
		want           map[string]int
	}{
		"by an earlier agent":                   {"before", "1", map[string]int{}},
		"by this agent, which cannot read them": {"this", "1", map[string]int{gpu: 4}},
		"by another agent":                      {"other", "2", map[string]int{gpu: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "topology")
			w.gpus(func(s *contract.GPUNodeStatus) {
				s.BootID, s.Agent = test.boot, &contract.AgentInfo{Instance: test.instance, Heartbeat: metav1.Unix(1, 0)}
			})
			w.kubelet.start()
			w.run(func(a *Agent) { a.Instance, a.Boot = "this", "2" })
			if len(test.want) == 0 {
				require.Never(t, func() bool { return w.kubelet.registered(gpu) > 0 }, 500*time.Millisecond, 5*time.Millisecond)
			}
			w.offers(test.want)
		})
	}
}

// A sick GPU that a pod has takes no other pod's place: the kubelet and the scheduler count that pod among the devices that are healthy.
func TestSickGPUsThatPodsHave(t *testing.T) {
	const memory, core, count = contract.ResourceGPUMemory, contract.ResourceCorePercent, contract.ResourceGPUCount
	for mode, test := range map[string]struct {
		record         *contract.Allocation
		asks           amounts
		while, without map[string]int
	}{
		"topology": {recordOf(1), amounts{gpu: 1}, map[string]int{gpu: 3}, map[string]int{gpu: 2}},
		"core_mem": {&contract.Allocation{Shares: []contract.GPUShare{{GPU: 1, MemoryGiB: 4, CorePercent: 30}}}, amounts{memory: 4, core: 30},
			map[string]int{memory: 34, core: 230, count: 3}, map[string]int{memory: 30, core: 200, count: 2}},
		"default": {nil, amounts{contract.ResourceDefaultGPU: 1}, map[string]int{contract.ResourceDefaultGPU: 2}, map[string]int{contract.ResourceDefaultGPU: 2}},
	} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, mode)
			w.kubelet.start()
			w.run()
			require.Eventually(t, func() bool { return len(w.kubelet.allocatable()) == len(test.while) }, 20*time.Second, time.Millisecond)
			p := w.pod("p", test.record, container("main", test.asks))
			w.gpus(func(s *contract.GPUNodeStatus) {
				s.GPUs[1].Health, s.GPUs[2].Health = contract.Unhealthy, contract.Unhealthy
			})
			w.offers(test.while)
			p.Status.Phase = corev1.PodSucceeded
			w.put(podKind, "p", p)
			w.offers(test.without)
		})
	}
}

// A driver that says nonsense about memory does not take the agent's.
func TestAGPUWithTooMuchMemory(t *testing.T) {
	status := contract.GPUNodeStatus{GPUs: []contract.GPUInfo{{MemoryMiB: 1 << 60, Health: contract.Healthy}}}
	assert.Len(t, devicesOf(contract.ResourceGPUMemory, status, nil), 16<<10)
}
