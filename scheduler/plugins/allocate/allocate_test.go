package allocate

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// fakeHandle has a client and no queue of API calls.
type fakeHandle struct {
	fwk.Handle
	client kubernetes.Interface
}

func (h fakeHandle) ClientSet() kubernetes.Interface { return h.client }
func (fakeHandle) APICacher() fwk.APICacher          { return nil }

func shared(memory, cores int64) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		contract.ResourceGPUMemory:   *resource.NewQuantity(memory, resource.DecimalSI),
		contract.ResourceCorePercent: *resource.NewQuantity(cores, resource.DecimalSI),
	}}}
}

func TestBind(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}})
	plugin := newPlugin(fakeHandle{client: client})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{}, shared(4, 30)}},
	}

	state := framework.NewCycleState()
	assert.True(t, plugin.Bind(t.Context(), state, pod, "node").IsSkip(), "a pod that is not planned")
	assert.Empty(t, client.Actions())

	verdict := fwk.NewStatus(fwk.Unschedulable)
	Decide(state, contract.Allocation{Gang: "ns/job", Node: "node", Shares: []contract.GPUShare{{GPU: 3, MemoryGiB: 4, CorePercent: 30}}},
		func(context.Context) *fwk.Status { return verdict })
	assert.True(t, plugin.Bind(t.Context(), state, pod, "node").IsRejected(), "others of its gang cannot be bound")
	assert.Empty(t, client.Actions())

	verdict = nil
	require.NoError(t, plugin.Bind(t.Context(), state, pod, "node").AsError())
	require.Len(t, client.Actions(), 1, "node and GPUs in one call")
	binding := client.Actions()[0].(clienttesting.CreateAction).GetObject().(*corev1.Binding)
	assert.Equal(t, "node", binding.Target.Name)
	assert.Equal(t, pod.UID, binding.UID)
	record, ok, err := contract.AllocationFrom(binding.Annotations)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "ns/job", record.Gang)
	assert.JSONEq(t, `{"1":{"3":4}}`, binding.Annotations[contract.ShareMemoryAnnotation])
	assert.JSONEq(t, `{"1":{"3":30}}`, binding.Annotations[contract.ShareCoreAnnotation])
}

// No cycle starts while more bindings wait than the API server takes in a moment.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin := newPlugin(fakeHandle{client: fake.NewClientset()})
		plugin.Wait(t.Context())
		for range maxCalls {
			plugin.calls <- struct{}{}
		}
		for range maxPending + 1 {
			go func() { _ = plugin.bind(t.Context(), &corev1.Binding{}) }()
		}
		synctest.Wait()
		returned := make(chan struct{})
		go func() {
			plugin.Wait(t.Context())
			close(returned)
		}()
		synctest.Wait()
		select {
		case <-returned:
			t.Error("it did not wait")
		default:
		}
		<-plugin.calls
		<-returned
	})
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestDescribeShares(t *testing.T) {
	tests := map[string]struct {
		init         []corev1.Container
		containers   []corev1.Container
		shares       []contract.GPUShare
		memory, core string
	}{
		"whole GPUs": {containers: []corev1.Container{{}}},
		"memory over two GPUs": {
			containers: []corev1.Container{shared(8, 0)},
			shares:     []contract.GPUShare{{GPU: 0, MemoryGiB: 4}, {GPU: 5, MemoryGiB: 4}},
			memory:     `{"0":{"0":4,"5":4}}`,
		},
		"two containers on one GPU": {
			containers: []corev1.Container{shared(2, 10), shared(3, 20)},
			shares:     []contract.GPUShare{{GPU: 1, MemoryGiB: 5, CorePercent: 30}},
			memory:     `{"0":{"1":2},"1":{"1":3}}`,
			core:       `{"0":{"1":10},"1":{"1":20}}`,
		},
		"a container beside a sidecar, after an init container": {
			init:       []corev1.Container{shared(8, 0), sidecar(shared(3, 0))},
			containers: []corev1.Container{shared(5, 0)},
			shares:     []contract.GPUShare{{GPU: 0, MemoryGiB: 4}, {GPU: 5, MemoryGiB: 4}},
			memory:     `{"0":{"0":1,"5":4}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			require.NoError(t, describeShares(annotations, &corev1.Pod{Spec: corev1.PodSpec{InitContainers: test.init, Containers: test.containers}}, test.shares))
			for key, want := range map[string]string{contract.ShareMemoryAnnotation: test.memory, contract.ShareCoreAnnotation: test.core} {
				if want == "" {
					assert.NotContains(t, annotations, key)
				} else {
					assert.JSONEq(t, want, annotations[key])
				}
			}
		})
	}
}
