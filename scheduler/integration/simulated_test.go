package integration

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// `kubectl logs` of a simulated pod says that nothing runs; following it ends with the pod.
func TestSimulatedPodHasLogs(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	gang := topologyGang("logs", 1, 2)
	gang.change = func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"python", "train.py"}
		p.Annotations = map[string]string{contract.RunForAnnotation: "1s"}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	s.submit(gang)
	pod := s.awaitBound("logs")[0]
	s.await("the pod to run", func(ctx context.Context) (bool, string) {
		phase := s.list(ctx, "logs")[0].Status.Phase
		return phase != corev1.PodPending, string(phase)
	})
	read := func(options *corev1.PodLogOptions) string {
		stream, err := api().CoreV1().Pods(s.namespace).GetLogs(pod.Name, options).Stream(t.Context())
		require.NoError(t, err)
		defer func() { _ = stream.Close() }()
		text, err := io.ReadAll(stream)
		require.NoError(t, err)
		return string(text)
	}
	followed := read(&corev1.PodLogOptions{Follow: true})
	assert.Equal(t, corev1.PodSucceeded, s.list(t.Context(), "logs")[0].Status.Phase)
	assert.Contains(t, followed, "This pod is simulated by gpuplan-local")
	assert.Contains(t, followed, "It would run: python train.py")
	assert.Contains(t, followed, "on the GPUs "+contract.IndexList(s.allocation(pod).GPUs)+" of the node.")
	assert.Equal(t, followed, read(&corev1.PodLogOptions{}))
	assert.Equal(t, followed[strings.LastIndex(followed, "It ends when "):], read(&corev1.PodLogOptions{TailLines: ptr.To[int64](1)}))
}

// Claims bind: one to a volume that is there, one of the platform's class when the gang
// that mounts it is placed; the volume goes with the claim.
func TestClaimsBind(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	startScheduler(t)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		},
	}
	_, err := api().CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}))
	})
	claims := api().CoreV1().PersistentVolumeClaims(s.namespace)
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"there": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.VolumeName = ptr.To(""), volume.Name
		},
		"made": func(*corev1.PersistentVolumeClaim) {},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes,
			Resources:   corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
		}}
		change(claim)
		_, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	gang := topologyGang("reads", 2, 4)
	gang.change = func(p *corev1.Pod) {
		for _, name := range []string{"there", "made"} {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
	s.submit(gang)
	s.awaitBound("reads")
	made, err := claims.Get(t.Context(), "made", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.ClaimBound, made.Status.Phase)
	for _, pod := range s.list(t.Context(), "reads") {
		require.NoError(t, api().CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	require.NoError(t, claims.Delete(t.Context(), "made", metav1.DeleteOptions{}))
	s.await("the volume to go with its claim", func(ctx context.Context) (bool, string) {
		list, err := api().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		claim, err := claims.Get(ctx, "made", metav1.GetOptions{})
		var have []string
		for _, v := range list.Items {
			have = append(have, fmt.Sprintf("%s %s %v", v.Name, v.Status.Phase, v.DeletionTimestamp))
		}
		return len(list.Items) == 1, fmt.Sprint(have, claim.Finalizers, claim.DeletionTimestamp, err)
	})
}
