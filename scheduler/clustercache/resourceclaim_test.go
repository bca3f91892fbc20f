package clustercache

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
)

// Devices that a claim loses are news to gangs that wait, and nothing else that happens to it.
func TestDevicesThatAreReturned(t *testing.T) {
	on := func(node string) *resourcev1.ResourceClaim {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
		if node != "" {
			claim.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}}
		}
		return claim
	}
	used := on("a")
	used.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
	for name, test := range map[string]struct {
		before, now any
		freed       bool
	}{
		"it gets some":        {on(""), on("a"), false},
		"a pod uses them":     {on("a"), used, false},
		"they are taken back": {on("a"), on(""), true},
		"it has others":       {on("a"), on("b"), true},
		"it goes":             {on("a"), nil, true},
		"it has gone":         {cache.DeletedFinalStateUnknown{Obj: on("a")}, nil, true},
		"it goes without any": {on(""), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var heard []clusterstate.Change
			f := &follower{cache: New()}
			f.cache.Subscribe(func(change clusterstate.Change) { heard = append(heard, change) })
			f.reportReturned(test.before, test.now)
			if !test.freed {
				assert.Empty(t, heard)
				return
			}
			assert.Equal(t, []clusterstate.Change{{Freed: true}}, heard)
		})
	}
}

func TestResourceClaimsByName(t *testing.T) {
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	require.NoError(t, known.Add(claim))
	r := resourceClaims{resourcelisters.NewResourceClaimLister(known)}
	assert.Same(t, claim, r.of("ns", "c"))
	assert.Nil(t, r.of("ns", "none"))
}
