package clustercache

import (
	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// volumes finds what claims are bound to.
type volumes struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// of returns the volume that a claim is bound to, nil for none.
func (v *volumes) of(namespace, claim string) *corev1.PersistentVolume {
	c, err := v.claims.PersistentVolumeClaims(namespace).Get(claim)
	if err != nil || c.Spec.VolumeName == "" {
		return nil
	}
	volume, err := v.volumes.Get(c.Spec.VolumeName)
	if err != nil {
		return nil
	}
	return volume
}

// pending returns a claim that is not bound yet, nil for none.
func (v *volumes) pending(namespace, claim string) *corev1.PersistentVolumeClaim {
	if c, err := v.claims.PersistentVolumeClaims(namespace).Get(claim); err == nil && c.Spec.VolumeName == "" {
		return c
	}
	return nil
}
