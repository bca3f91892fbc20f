package inventory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// succeededPods selects the pods that kube-scheduler's own informer leaves out and that
// count towards the minimum of their gang.
const succeededPods = "status.phase=Succeeded"

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// SetSucceeded takes in a pod that has succeeded, by its metadata.
func (c *Cache) SetSucceeded(pod *metav1.PartialObjectMetadata) Change {
	key, ok := GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	if !ok {
		return Change{}
	}
	c.lock()
	defer c.unlock()
	if c.succeeded[key] == nil {
		c.succeeded[key] = map[types.UID]*metav1.PartialObjectMetadata{}
	}
	c.succeeded[key][pod.UID] = pod
	c.recount(key)
	return Change{Gang: key}
}

// RemoveSucceeded takes out a pod that had succeeded and was deleted.
func (c *Cache) RemoveSucceeded(pod *metav1.PartialObjectMetadata) Change {
	key, ok := GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
	if !ok {
		return Change{}
	}
	c.lock()
	defer c.unlock()
	delete(c.succeeded[key], pod.UID)
	if len(c.succeeded[key]) == 0 {
		delete(c.succeeded, key)
	}
	c.recount(key)
	return Change{Gang: key}
}

// done returns the members of a gang that have succeeded. Those of another job of the
// same name, which is being cleaned up, are none.
func (c *Cache) done(key string) []member {
	var known []member
	for _, state := range c.gangs[key] {
		known = append(known, state.member)
	}
	owners := map[types.UID]bool{}
	for _, m := range current(known) {
		owners[ownerOf(m.pod)] = true
	}
	var list []member
	for uid, known := range c.succeeded[key] {
		pod := &corev1.Pod{ObjectMeta: known.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
		if c.gangs[key][uid] == nil && owners[ownerOf(pod)] {
			list = append(list, member{pod: pod})
		}
	}
	return list
}

// ownerOf returns the UID of a pod's controller, "" when it has none.
func ownerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.UID
	}
	return ""
}

// followSucceeded keeps succeeded pods in step with a cluster, by as little of them as counts.
func (f *follower) followSucceeded(ctx context.Context, client metadata.Interface) (cache.InformerSynced, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(client, podResource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = succeededPods
			follow.Latest(options)
		}).Informer()
	if err := informer.SetTransform(whatCounts); err != nil {
		return nil, fmt.Errorf("follow succeeded pods: %w", err)
	}
	handled, err := informer.AddEventHandler(follow.On(
		func(pod *metav1.PartialObjectMetadata) { f.report(f.cache.SetSucceeded(pod), nil) },
		func(pod *metav1.PartialObjectMetadata) { f.report(f.cache.RemoveSucceeded(pod), nil) },
	))
	if err != nil {
		return nil, fmt.Errorf("follow succeeded pods: %w", err)
	}
	go informer.RunWithContext(ctx)
	return handled.HasSynced, nil
}

// whatCounts keeps of a pod what tells its gang, and whether the planner placed it.
func whatCounts(object any) (any, error) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
	if _, ok := GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta}); ok {
		kept.Labels, kept.OwnerReferences = pod.Labels, pod.OwnerReferences
		if _, ok := pod.Annotations[contract.AllocationAnnotation]; ok {
			kept.Annotations = map[string]string{contract.AllocationAnnotation: ""}
		}
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: kept}, nil
}

// listSucceeded reads the succeeded pods of a cluster once.
func listSucceeded(ctx context.Context, client *kube.Client, into *Cache) error {
	pods, err := metadata.NewForConfig(client.Config)
	if err != nil {
		return fmt.Errorf("set up the client for succeeded pods: %w", err)
	}
	list, err := pods.Resource(podResource).List(ctx, metav1.ListOptions{FieldSelector: succeededPods})
	if err != nil {
		return fmt.Errorf("list succeeded pods: %w", err)
	}
	for i := range list.Items {
		into.SetSucceeded(&list.Items[i])
	}
	return nil
}
