package simulate

import (
	"cmp"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// A request to take a pod away that comes late does not hit its successor of that name.
func TestOnlyPodsThatAreBeingDeletedGo(t *testing.T) {
	client := kubelets{localtest.Start(t).Client(t)}
	all := client.CoreV1().Pods(metav1.NamespaceDefault)
	made, err := all.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubelet-", Finalizers: []string{"test.gpuplan.dev/lingers"}},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "test"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	now := *metav1.NewDeleteOptions(0)
	require.NoError(t, all.Delete(t.Context(), made.Name, now))
	pod, err := all.Get(t.Context(), made.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Nil(t, pod.DeletionTimestamp)

	require.NoError(t, client.Interface.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), made.Name, metav1.DeleteOptions{}))
	require.NoError(t, all.Delete(t.Context(), made.Name, now))
	_, err = all.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// The controller of Jobs, which keeps a pod until it has seen its end, sees it. For anyone else a pod that is being
// deleted goes on.
func TestEndOfAPodThatIsKept(t *testing.T) {
	for finalizer, want := range map[string]corev1.PodPhase{
		batchv1.JobTrackingFinalizer: corev1.PodFailed, "test.gpuplan.dev/lingers": corev1.PodRunning,
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kept", Finalizers: []string{finalizer}, DeletionTimestamp: new(metav1.Now())},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		client := fake.NewClientset(pod)
		var ended corev1.PodPhase
		client.PrependReactor("update", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			ended = action.(clienttesting.UpdateAction).GetObject().(*corev1.Pod).Status.Phase
			return false, nil, nil
		})
		require.NoError(t, kubelets{client}.CoreV1().Pods("ns").Delete(t.Context(), "kept", metav1.DeleteOptions{}))
		assert.Equal(t, want, cmp.Or(ended, pod.Status.Phase), finalizer)
	}
}
