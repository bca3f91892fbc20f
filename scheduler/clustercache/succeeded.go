package clustercache

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// followSucceeded keeps succeeded pods in step with a cluster, by as little of them as counts.
func (f *follower) followSucceeded(ctx context.Context, client metadata.Interface) (cache.InformerSynced, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = clusterstate.SucceededPods
			follow.Latest(options)
		}).Informer()
	if err := informer.SetTransform(whatCounts); err != nil {
		return nil, fmt.Errorf("follow succeeded pods: %w", err)
	}
	handled, err := informer.AddEventHandler(follow.On(
		func(pod *metav1.PartialObjectMetadata) { f.report(f.cache.SetSucceeded(pod), nil) },
		func(pod *metav1.PartialObjectMetadata) { f.report(f.cache.RemoveSucceeded(pod.UID), nil) },
	))
	if err != nil {
		return nil, fmt.Errorf("follow succeeded pods: %w", err)
	}
	go informer.RunWithContext(ctx)
	return handled.HasSynced, nil
}

// followJobs keeps what Jobs say of pods that have ended in step with a cluster: the pods may have gone.
func (f *follower) followJobs(informer cache.SharedIndexInformer) (cache.InformerSynced, error) {
	if err := informer.SetTransform(whatCountsOfJob); err != nil {
		return nil, fmt.Errorf("follow Jobs: %w", err)
	}
	handled, err := informer.AddEventHandler(follow.On(
		func(job *batchv1.Job) { f.report(f.cache.SetJob(job), nil) },
		func(job *batchv1.Job) { f.report(f.cache.RemoveJob(job.UID), nil) },
	))
	if err != nil {
		return nil, fmt.Errorf("follow Jobs: %w", err)
	}
	return handled.HasSynced, nil
}

// whatCountsOfJob keeps nothing but the identity of a Job of which no pod of a gang has ended.
func whatCountsOfJob(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	if _, counts := inventory.EndedOf(job); !counts {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion}}, nil
	}
	return follow.Trim(job)
}

// whatCounts keeps of a pod what tells its gang, and whether the planner placed it.
func whatCounts(object any) (any, error) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp}
	if _, ok := inventory.GangKey(&corev1.Pod{ObjectMeta: pod.ObjectMeta}); ok {
		kept.Labels, kept.OwnerReferences = pod.Labels, pod.OwnerReferences
		if _, ok := pod.Annotations[contract.AllocationAnnotation]; ok {
			kept.Annotations = map[string]string{contract.AllocationAnnotation: ""}
		}
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: kept}, nil
}
