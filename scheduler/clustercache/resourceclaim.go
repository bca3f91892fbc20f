package clustercache

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// resourceClaims finds claims for devices.
type resourceClaims struct {
	claims resourcelisters.ResourceClaimLister
}

// of returns a claim, nil for none.
func (r *resourceClaims) of(namespace, name string) *resourcev1.ResourceClaim {
	claim, err := r.claims.ResourceClaims(namespace).Get(name)
	if err != nil {
		return nil
	}
	return claim
}

// followResourceClaims has the cache know which devices claims have been given, and reports those that are taken back: gangs
// whose members name such a claim may run elsewhere then.
func (f *follower) followResourceClaims(informer resourceinformers.ResourceClaimInformer) (cache.InformerSynced, error) {
	claims := resourceClaims{informer.Lister()}
	f.cache.state.FindResourceClaims(claims.of)
	handled, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, object any) { f.reportReturned(before, object) },
		DeleteFunc: func(object any) { f.reportReturned(object, nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow resource claims: %w", err)
	}
	return handled.HasSynced, nil
}

// PendingClaims lists the claims that a pod names and that have been given nothing yet ([clusterstate.State.PendingClaims]).
func (c *Cache) PendingClaims(p *corev1.Pod) []string {
	c.lock()
	defer c.unlock()
	return c.state.PendingClaims(p)
}

// reportReturned reports that there may be room when a claim loses devices that it had.
func (f *follower) reportReturned(before, object any) {
	had, ok := follow.Last(before).(*resourcev1.ResourceClaim)
	if !ok || had.Status.Allocation == nil {
		return
	}
	if has, ok := object.(*resourcev1.ResourceClaim); !ok || !equality.Semantic.DeepEqual(had.Status.Allocation, has.Status.Allocation) {
		f.report(clusterstate.Change{Freed: true}, nil)
	}
}
