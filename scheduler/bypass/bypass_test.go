package bypass

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestWhoBypasses(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excused", Labels: map[string]string{contract.RouteLabel: "false"}}}))
	w := &watcher{namespaces: corelisters.NewNamespaceLister(indexer)}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"bound by the cluster's scheduler": {func(*corev1.Pod) {}, true},
		"bound by a third scheduler":       {func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }, true},
		"bound by nodeName":                {func(p *corev1.Pod) { p.Spec.SchedulerName = "" }, true},
		"bound by ours": {func(p *corev1.Pod) {
			p.Spec.SchedulerName, p.Annotations = contract.SchedulerName, map[string]string{contract.AllocationAnnotation: "{}"}
		}, false},
		"meant for ours, bound by others": {func(p *corev1.Pod) { p.Spec.SchedulerName = contract.SchedulerName }, true},
		"not bound yet":                   {func(p *corev1.Pod) { p.Spec.NodeName = "" }, false},
		"finished":                        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"without GPUs":                    {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }, false},
		"of a DaemonSet":                  {func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet"}} }, false},
		"of a ReplicaSet":                 {func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet"}} }, true},
		"in kube-system":                  {func(p *corev1.Pod) { p.Namespace = metav1.NamespaceSystem }, false},
		"excused by its label":            {func(p *corev1.Pod) { p.Labels = map[string]string{contract.RouteLabel: "false"} }, false},
		"excused by its namespace":        {func(p *corev1.Pod) { p.Namespace = "excused" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"},
				Spec: corev1.PodSpec{
					NodeName: "node", SchedulerName: corev1.DefaultSchedulerName,
					Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{contract.ResourceDefaultGPU: resource.MustParse("1")},
					}}},
				},
			}
			test.change(pod)
			assert.Equal(t, test.want, w.bypasses(pod))
		})
	}
}
