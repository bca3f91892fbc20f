package integration

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// volume makes a claim and a volume for each other, which the controller of volumes
// binds, and returns the claim's name.
func (w *filterWorld) volume(name string, modes []corev1.PersistentVolumeAccessMode, change func(*corev1.PersistentVolume)) string {
	name, class := w.id+"-"+name, ""
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: w.namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		},
	}
	if change != nil {
		change(volume)
	}
	w.createVolume(volume)
	w.createClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class, VolumeName: name,
		},
	})
	require.Eventually(w.t, func() bool {
		claim, err := api().CoreV1().PersistentVolumeClaims(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound
	}, settled, 20*time.Millisecond, "claim %s is bound", name)
	return name
}

func (w *filterWorld) createVolume(volume *corev1.PersistentVolume) {
	_, err := api().CoreV1().PersistentVolumes().Create(w.t.Context(), volume, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"persistentvolumes", volume.Name, nil})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return removeUnprotected(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", volume.Name)
	})
}

func (w *filterWorld) createClaim(claim *corev1.PersistentVolumeClaim) {
	_, err := api().CoreV1().PersistentVolumeClaims(w.namespace).Create(w.t.Context(), claim, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"persistentvolumeclaims", w.namespace + "/" + claim.Name, nil})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return removeUnprotected(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), w.namespace, claim.Name)
	})
}

// removeUnprotected deletes an object whose protection no controller ends here.
func removeUnprotected(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	objects := cluster.client.Dynamic.Resource(resource).Namespace(namespace)
	if err := objects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := objects.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
