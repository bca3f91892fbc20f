package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A claim leads to its volume once it is bound and the volume is known.
func TestVolumesOfClaims(t *testing.T) {
	claims, disks := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	v := volumes{claims: corelisters.NewPersistentVolumeClaimLister(claims), volumes: corelisters.NewPersistentVolumeLister(disks)}
	disk := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	require.NoError(t, disks.Add(disk))
	for name, volume := range map[string]string{"bound": "disk", "pending": "", "lost": "other"} {
		require.NoError(t, claims.Add(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		}))
	}
	assert.Same(t, disk, v.of("ns", "bound"))
	for _, name := range []string{"pending", "lost", "none"} {
		assert.Nil(t, v.of("ns", name), name)
	}
}
