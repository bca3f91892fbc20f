package preemption

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// fakeHandle runs one filter, of CPU, and no PreFilter.
type fakeHandle struct {
	fwk.Handle
	informers informers.SharedInformerFactory
}

func (h fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }
func (fakeHandle) RunPreFilterExtensionAddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
func (fakeHandle) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
func (fakeHandle) RunFilterPluginsWithNominatedPods(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if node.GetRequested().GetMilliCPU()+pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() > node.GetAllocatable().GetMilliCPU() {
		return fwk.NewStatus(fwk.Unschedulable, "too little CPU")
	}
	return nil
}

func newPod(name, node string, cpu int64, priority int32, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Priority: &priority, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}},
		}}},
	}
}

func of(gang string) map[string]string {
	return map[string]string{contract.TopologyGroupLabel: gang, contract.TopologyReplicasLabel: "2"}
}

// Who is evicted from node "a" of 4 CPUs for a pod of priority 10.
func TestVictims(t *testing.T) {
	member := func(name, node string) *corev1.Pod { return newPod(name, node, 2, 0, of("job")) }
	kept := of("job")
	kept[contract.PreemptibleLabel] = "false"
	leaving := member("job-0", "a")
	now := metav1.Now()
	leaving.DeletionTimestamp = &now
	ofDaemon := member("job-1", "b")
	controller := true
	ofDaemon.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "daemon", Controller: &controller}}

	tests := map[string]struct {
		pods []*corev1.Pod
		// asks is how many CPUs the pod asks for, in which gang it is.
		asks int64
		gang string
		// allowed is what a budget for all pods of the namespace allows, nil for no budget.
		allowed *int32
		want    []string
	}{
		"a gang goes whole": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b"), newPod("plain", "a", 2, 20, nil)},
			asks: 2, want: []string{"job-0", "job-1"},
		},
		"a member of higher priority keeps the gang": {
			pods: []*corev1.Pod{member("job-0", "a"), newPod("job-1", "b", 2, 10, of("job"))},
			asks: 2,
		},
		"a member that is not preemptible keeps the gang": {
			pods: []*corev1.Pod{member("job-0", "a"), newPod("job-1", "b", 2, 0, kept)},
			asks: 2,
		},
		"a member of a DaemonSet keeps the gang": {
			pods: []*corev1.Pod{member("job-0", "a"), ofDaemon},
			asks: 2,
		},
		"a pod on its own is preferred": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b"), newPod("plain", "a", 2, 0, nil)},
			asks: 2, want: []string{"plain"},
		},
		"lower priority is preferred, as in the stock scheduler": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b"), newPod("plain", "a", 2, 5, nil)},
			asks: 2, want: []string{"job-0", "job-1"},
		},
		"who makes room together with its gang spares others": {
			pods: []*corev1.Pod{newPod("job-0", "a", 1, 0, of("job")), newPod("job-1", "a", 2, 0, of("job")), newPod("plain", "a", 1, 0, nil)},
			asks: 3, want: []string{"job-0", "job-1"},
		},
		"members that run elsewhere or not at all": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", ""), newPod("plain", "a", 2, 20, nil)},
			asks: 2, want: []string{"job-0"},
		},
		"who leaves already is waited for alone": {
			pods: []*corev1.Pod{leaving, member("job-1", "b"), newPod("plain", "a", 2, 20, nil)},
			asks: 2, want: []string{"job-0"},
		},
		"a budget that lets go one member keeps the gang": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b")},
			asks: 2, allowed: new(int32(1)),
		},
		"a budget that lets go all": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b"), newPod("plain", "a", 2, 20, nil)},
			asks: 2, allowed: new(int32(2)), want: []string{"job-0", "job-1"},
		},
		"a gang is not torn for a pod of its own": {
			pods: []*corev1.Pod{member("job-0", "a"), member("job-1", "b"), newPod("plain", "a", 2, 20, nil)},
			asks: 2, gang: "job",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := clustercache.New()
			handle := fakeHandle{informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
			plugin, err := Factory(cache)(t.Context(), nil, handle)
			require.NoError(t, err)
			assert.Equal(t, Name, plugin.Name())
			if test.allowed != nil {
				_, err := cache.SetBudget(&policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "all"},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
					Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: *test.allowed},
				})
				require.NoError(t, err)
			}
			node := framework.NewNodeInfo()
			node.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			}})
			for _, pod := range test.pods {
				cache.SetPod(pod)
				if pod.Spec.NodeName == "a" {
					info, err := framework.NewPodInfo(pod)
					require.NoError(t, err)
					node.AddPodInfo(info)
				}
			}
			preemptor := newPod("high", "", test.asks, 10, nil)
			if test.gang != "" {
				preemptor.Labels = of(test.gang)
			}
			victims, _, status := plugin.(*Plugin).Evaluator.SelectVictimsOnNode(t.Context(), framework.NewCycleState(), preemptor, node, nil)
			var names []string
			for _, victim := range victims {
				names = append(names, victim.Name)
			}
			assert.Equal(t, len(test.want) > 0, status.IsSuccess(), status.Message())
			assert.ElementsMatch(t, test.want, names)
		})
	}
}
