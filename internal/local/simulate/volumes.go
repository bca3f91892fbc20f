package simulate

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const (
	// StorageClass is the class whose volumes are made when a pod that claims one is placed.
	StorageClass = "simulated"
	provisioner  = "local.gpuplan.dev/simulated"

	// Kubernetes' volume controller asks a provisioner by the first, and reads the second.
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	provisionedAnnotation = "pv.kubernetes.io/provisioned-by"
)

// StartVolumes makes the storage class, and volumes of it until ctx ends. They hold
// nothing, as nothing runs that would write to them. Its log goes to w.
func StartVolumes(ctx context.Context, client kubernetes.Interface, w io.Writer) error {
	_, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the storage class: %w", err)
	}
	v := &volumes{client, slog.New(slog.NewTextHandler(w, nil))}
	factory := informers.NewSharedInformerFactory(client, 0)
	for informer, look := range map[cache.SharedInformer]func(context.Context, any) error{
		factory.Core().V1().PersistentVolumeClaims().Informer(): v.provision,
		factory.Core().V1().PersistentVolumes().Informer():      v.reclaim,
	} {
		handle := func(object any) {
			if err := look(ctx, object); err != nil && ctx.Err() == nil {
				v.log.Error("volumes", "err", err)
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) },
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	return nil
}

type volumes struct {
	client kubernetes.Interface
	log    *slog.Logger
}

// provision makes the volume of a claim that Kubernetes asks us to serve: with the class's
// binding mode that is once a scheduler has chosen the node.
func (v *volumes) provision(ctx context.Context, object any) error {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Annotations[provisionerAnnotation] != provisioner || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	_, err := v.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Annotations: map[string]string{provisionedAnnotation: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/simulated/" + string(claim.UID)}},
			StorageClassName:              ptr.Deref(claim.Spec.StorageClassName, ""),
			VolumeMode:                    claim.Spec.VolumeMode,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// reclaim deletes a volume of ours whose claim is gone.
func (v *volumes) reclaim(ctx context.Context, object any) error {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Annotations[provisionedAnnotation] != provisioner || volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil {
		return nil
	}
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
