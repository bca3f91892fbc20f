package simulate

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	pod, err = all.Get(t.Context(), made.Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.PodFailed, pod.Status.Phase, "who keeps it sees its end")
	_, err = all.Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}
