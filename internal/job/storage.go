package job

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Volume is a volume claim that every replica mounts.
type Volume struct {
	// Claim is the name of the PersistentVolumeClaim, in the job's namespace.
	Claim     string
	MountPath string
	ReadOnly  bool
}

const (
	// sharedMemoryVolume is the volume behind [Spec.SharedMemory]; no other has this name.
	sharedMemoryVolume = "shared-memory"
	sharedMemoryPath   = "/dev/shm"
)

// storage returns the volumes of every replica's pod, and where its container has them.
func (s Spec) storage() (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	for _, name := range slices.Sorted(maps.Keys(s.Volumes)) {
		v := s.Volumes[name]
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim, ReadOnly: v.ReadOnly},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: v.MountPath, ReadOnly: v.ReadOnly})
	}
	if !s.SharedMemory.IsZero() {
		limit := s.SharedMemory.DeepCopy()
		volumes = append(volumes, corev1.Volume{Name: sharedMemoryVolume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit},
		}})
		mounts = append(mounts, corev1.VolumeMount{Name: sharedMemoryVolume, MountPath: sharedMemoryPath})
	}
	return volumes, mounts
}

// parseStorage reads back what storage returned. Volumes of other kinds are left out.
func (s *Spec) parseStorage(pod corev1.PodSpec) {
	s.Volumes, s.SharedMemory = nil, resource.Quantity{}
	if len(pod.Containers) == 0 {
		return
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounts[mount.Name] = mount
	}
	for _, v := range pod.Volumes {
		switch mount := mounts[v.Name]; {
		case v.PersistentVolumeClaim != nil:
			if s.Volumes == nil {
				s.Volumes = map[string]Volume{}
			}
			s.Volumes[v.Name] = Volume{Claim: v.PersistentVolumeClaim.ClaimName, MountPath: mount.MountPath, ReadOnly: mount.ReadOnly}
		case v.Name == sharedMemoryVolume && v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil:
			s.SharedMemory = *v.EmptyDir.SizeLimit
		}
	}
}
