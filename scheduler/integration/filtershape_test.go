package integration

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// alike groups pods of which it is all one to the filters which of them comes next.
func (o *oracle) alike(pods []*corev1.Pod) [][]*corev1.Pod {
	users := map[string]int{}
	for _, pod := range slices.Concat(pods, o.there) {
		for _, claim := range claimsOf(pod) {
			users[claim.kind+claim.of(pod)]++
		}
	}
	groups := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		shape := o.shape(pod, users)
		groups[shape] = append(groups[shape], pod)
	}
	var list [][]*corev1.Pod
	for _, shape := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, groups[shape])
	}
	return list
}

// shape is what filters look at of a pod. A claim that it has for itself counts by what it is, one that others
// have, too, by its name. No selector of the suite looks at the index of a replica.
func (o *oracle) shape(pod *corev1.Pod, users map[string]int) string {
	p := pod.DeepCopy()
	delete(p.Labels, contract.JobReplicaIndexLabel)
	var claims []any
	for _, claim := range claimsOf(p) {
		if users[claim.kind+claim.of(p)] == 1 {
			claims = append(claims, o.described(claim.kind, claim.of(p)))
			*claim.name = ""
		}
	}
	text, _ := json.Marshal([]any{p.Labels, p.Spec, claims}) // types of the API always can
	return string(text)
}

// claimOf is where a pod names a claim.
type claimOf struct {
	kind string
	name *string
}

func (c claimOf) of(pod *corev1.Pod) string { return pod.Namespace + "/" + *c.name }

func claimsOf(pod *corev1.Pod) (list []claimOf) {
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			list = append(list, claimOf{"persistentvolumeclaims", &claim.ClaimName})
		}
	}
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			list = append(list, claimOf{"resourceclaims", name})
		}
	}
	return list
}

// described is what filters look at of a claim, nil where there is none.
func (o *oracle) described(kind, key string) any {
	object, _, _ := o.stores[kind].GetByKey(key)
	switch claim := object.(type) {
	case *resourcev1.ResourceClaim:
		return []any{claim.Spec, claim.Status.Allocation}
	case *corev1.PersistentVolumeClaim:
		spec := claim.Spec
		spec.VolumeName = ""
		volume, _, _ := o.stores["persistentvolumes"].GetByKey(claim.Spec.VolumeName)
		if bound, ok := volume.(*corev1.PersistentVolume); ok {
			return []any{spec, bound.Labels, bound.Spec.NodeAffinity, bound.Spec.CSI != nil}
		}
		return spec
	}
	return nil
}

// Pods are alike unless filters may tell them apart.
func TestPodsAlike(t *testing.T) {
	o := &oracle{stores: map[string]cache.Store{}}
	for _, kind := range []string{"persistentvolumeclaims", "persistentvolumes", "resourceclaims"} {
		o.stores[kind] = cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	add := func(kind string, object any) { assert.NoError(t, o.stores[kind].Add(object)) }
	for name, node := range map[string]string{"a": "n1", "also-a": "n1", "b": "n2"} {
		volume, claim := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}
		volume.Name, volume.Spec.NodeAffinity = name, reachedFrom(corev1.LabelHostname, node)
		claim.Namespace, claim.Name, claim.Spec.VolumeName = "ns", name, name
		add("persistentvolumes", volume)
		add("persistentvolumeclaims", claim)
		devices := &resourcev1.ResourceClaim{}
		devices.Namespace, devices.Name = "ns", name
		devices.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{onNode(node)}}}
		add("resourceclaims", devices)
	}
	claims := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			mount(p, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
		}
	}
	devices := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { claimDevice(p, name) }
	}
	port := func(ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 1, HostIP: ip}} }
	}
	for name, test := range map[string]struct {
		pods   []func(*corev1.Pod)
		groups int
	}{
		"but for their index":         {[]func(*corev1.Pod){func(*corev1.Pod) {}, func(*corev1.Pod) {}}, 1},
		"ports":                       {[]func(*corev1.Pod){port(""), port("127.0.0.1"), port("")}, 2},
		"volumes on one node":         {[]func(*corev1.Pod){claims("a"), claims("also-a")}, 1},
		"volumes on two":              {[]func(*corev1.Pod){claims("a"), claims("b")}, 2},
		"a shared volume and another": {[]func(*corev1.Pod){claims("a"), claims("a"), claims("also-a")}, 2},
		"devices on one node":         {[]func(*corev1.Pod){devices("a"), devices("also-a")}, 1},
		"devices on two":              {[]func(*corev1.Pod){devices("a"), devices("b"), devices("b")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := worldGang{namespace: "ns", name: "g"}
			for _, change := range test.pods {
				g.add(contract.ReplicaWorker, 1, change)
			}
			assert.Len(t, o.alike(g.pods), test.groups)
		})
	}
}
