package follow_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

func TestOlder(t *testing.T) {
	of := func(uid types.UID, version string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{UID: uid, ResourceVersion: version}
	}
	known := of("a", "10")
	assert.True(t, follow.Older(of("a", "9"), known), "by number, not by letter")
	assert.False(t, follow.Older(of("a", "10"), known))
	assert.False(t, follow.Older(of("a", "11"), known))
	assert.False(t, follow.Older(of("b", "9"), known), "another one of the name")
	assert.False(t, follow.Older(of("a", "x"), known))
}
