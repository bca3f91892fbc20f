package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectedNode is the annotation by which kube-scheduler asks a provisioner for a volume.
const selectedNode = "volume.kubernetes.io/selected-node"

// A gang of which one member waits for its volume holds nothing but its places: nobody runs before
// all can.
func TestGangWaitsForTheVolumeOfOneMember(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	ctx, mode := t.Context(), storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: "test.gpuplan.dev/late", VolumeBindingMode: &mode}
	_, err := api().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err = api().CoreV1().PersistentVolumeClaims(s.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "scratch"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class.Name},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	startScheduler(t)

	gang := topologyGang("train", 4, 2)
	gang.change = func(p *corev1.Pod) {
		if p.Name == "train-worker-3" {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "scratch"},
			}}}
		}
	}
	s.submit(gang)
	var node string
	s.await("a node to be selected for the volume", func(ctx context.Context) (bool, string) {
		claim, err := api().CoreV1().PersistentVolumeClaims(s.namespace).Get(ctx, "scratch", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node = claim.Annotations[selectedNode]
		return node != "", fmt.Sprint(claim.Annotations)
	})
	s.submit(topologyGang("other", 2, 4)) // what is bound after the gang could have been
	s.awaitBound("other")
	assert.Zero(t, bound(s.list(ctx, "train")), "a gang runs whole or not at all")

	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-scratch"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: class.Name, NodeAffinity: reachedFrom(corev1.LabelHostname, node),
			ClaimRef:               &corev1.ObjectReference{Namespace: s.namespace, Name: "scratch"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/scratch"}},
		},
	}
	_, err = api().CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}))
	})
	s.awaitBound("train")
}
