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

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// selectedNode is the annotation by which kube-scheduler asks a provisioner for a volume.
const selectedNode = "volume.kubernetes.io/selected-node"

// lateClaim makes a claim whose volume is made for the node of its first pod, by the test: provision makes it once a node is
// selected, for all nodes with the value that this one has of a label.
func (s *testCluster) lateClaim(name string) (selected func() string, provision func(label, value string)) {
	t := s.t
	ctx, mode := t.Context(), storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Provisioner: "test.gpuplan.dev/late", VolumeBindingMode: &mode}
	_, err := api().StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, api().StorageV1().StorageClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err = api().CoreV1().PersistentVolumeClaims(s.namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class.Name},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	selected = func() (node string) {
		s.await("a node to be selected for the volume", func(ctx context.Context) (bool, string) {
			claim, err := api().CoreV1().PersistentVolumeClaims(s.namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			node = claim.Annotations[selectedNode]
			return node != "", fmt.Sprint(claim.Annotations)
		})
		return node
	}
	provision = func(label, value string) {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: size, AccessModes: modes, StorageClassName: class.Name, NodeAffinity: reachedFrom(label, value),
				ClaimRef:               &corev1.ObjectReference{Namespace: s.namespace, Name: name},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + name}},
			},
		}
		_, err = api().CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, api().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{}))
		})
	}
	return selected, provision
}

// mounts has a pod mount a claim.
func mounts(p *corev1.Pod, claim string) {
	p.Spec.Volumes = []corev1.Volume{{Name: claim, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
}

// A gang of which one member waits for its volume holds nothing but its places: nobody runs before
// all can.
func TestGangWaitsForTheVolumeOfOneMember(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	selected, provision := s.lateClaim("scratch")
	startScheduler(t)
	gang := topologyGang("train", 4, 2)
	gang.change = func(p *corev1.Pod) {
		if p.Name == "train-worker-3" {
			mounts(p, "scratch")
		}
	}
	s.submit(gang)
	node := selected()
	s.submit(topologyGang("other", 2, 4)) // what is bound after the gang could have been
	s.awaitBound("other")
	assert.Zero(t, bound(s.list(t.Context(), "train")), "a gang runs whole or not at all")
	provision(corev1.LabelHostname, node)
	s.awaitBound("train")
}

// Members on several nodes share a volume that is made for the first of them: it is made before the others have their places, and
// nobody runs before all can. Where the volume is not on all nodes, the gang runs where it is.
func TestGangSharesALateVolume(t *testing.T) {
	for name, members := range map[string]int{"everywhere": 4, "on-one-node": 2} {
		t.Run(name, func(t *testing.T) {
			s := newTestCluster(t, machine{count: 2, mode: "topology"})
			selected, provision := s.lateClaim("data")
			startScheduler(t)
			gang := topologyGang("train", members, 4)
			gang.change = func(p *corev1.Pod) {
				mounts(p, "data")
				if members == 2 { // they begin on two nodes
					p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
						TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: "train"}},
					}}
				}
			}
			s.submit(gang)
			node := selected()
			assert.Zero(t, bound(s.list(t.Context(), "train")), "a gang runs whole or not at all")
			if members == 2 {
				provision(corev1.LabelHostname, node)
			} else {
				provision(contract.NodePoolNameLabel, s.namespace)
			}
			nodes := map[string]bool{}
			for _, pod := range s.awaitBound("train") {
				nodes[pod.Spec.NodeName] = true
			}
			assert.Len(t, nodes, members/2)
			assert.True(t, nodes[node])
		})
	}
}
