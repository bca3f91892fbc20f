package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const bindCompleted = "pv.kubernetes.io/bind-completed"

// volume makes a claim and a volume that are bound to each other, and returns the claim's name.
func (w *filterWorld) volume(name string, modes []corev1.PersistentVolumeAccessMode, change func(*corev1.PersistentVolume)) string {
	name, class := w.id+"-"+name, ""
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		},
	}
	if change != nil {
		change(volume)
	}
	claim := w.createClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{bindCompleted: "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class, VolumeName: name,
		},
	}, corev1.ClaimBound)
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: w.namespace, Name: name, UID: claim.UID}
	w.createVolume(volume, corev1.VolumeBound)
	return name
}

func (w *filterWorld) createVolume(volume *corev1.PersistentVolume, phase corev1.PersistentVolumePhase) {
	ctx := w.t.Context()
	created, err := api().CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	require.NoError(w.t, err)
	created.Status.Phase = phase
	_, err = api().CoreV1().PersistentVolumes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"persistentvolumes", volume.Name})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return removeUnprotected(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", volume.Name)
	})
}

func (w *filterWorld) createClaim(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	ctx := w.t.Context()
	created, err := api().CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, claim, metav1.CreateOptions{})
	require.NoError(w.t, err)
	created.Status.Phase = phase
	created, err = api().CoreV1().PersistentVolumeClaims(w.namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	w.seen = append(w.seen, seenObject{"persistentvolumeclaims", w.namespace + "/" + claim.Name})
	w.clean = append(w.clean, func(ctx context.Context) error {
		return removeUnprotected(ctx, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), w.namespace, claim.Name)
	})
	return created
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

// bindVolumes completes the bindings that the scheduler begins, as the controller of
// volumes does.
func bindVolumes(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	bind := func(object any) {
		volume, ok := object.(*corev1.PersistentVolume)
		if !ok || volume.Spec.ClaimRef == nil || volume.Spec.StorageClassName == "" {
			return
		}
		claims := api().CoreV1().PersistentVolumeClaims(volume.Spec.ClaimRef.Namespace)
		claim, err := claims.Get(ctx, volume.Spec.ClaimRef.Name, metav1.GetOptions{})
		if err != nil || claim.Spec.VolumeName != "" {
			return
		}
		claim.Spec.VolumeName = volume.Name
		claim.Annotations = map[string]string{bindCompleted: "yes"}
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err == nil {
			claim.Status.Phase = corev1.ClaimBound
			_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("bind claim %s: %v", volume.Spec.ClaimRef.Name, err)
		}
	}
	factory := informers.NewSharedInformerFactory(api(), 0)
	_, err := factory.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: bind, UpdateFunc: func(_, object any) { bind(object) },
	})
	require.NoError(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}
