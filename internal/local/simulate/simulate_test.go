package simulate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// next returns the stage that comes next for the object, and its delay.
func next(t *testing.T, kind string, object metav1.Object) (stage string, delay time.Duration) {
	t.Helper()
	all, err := stages(10250)
	require.NoError(t, err)
	life, err := lifecycle.NewLifecycle(all[internalversion.StageResourceRef{APIGroup: "v1", Kind: kind}])
	require.NoError(t, err)
	event := &lifecycle.Event{Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Data: object}
	matched, err := life.Match(context.Background(), event)
	require.NoError(t, err)
	if matched == nil {
		return "", 0
	}
	delay, _, err = matched.Delay(context.Background(), event, time.Now())
	require.NoError(t, err)
	return matched.Name(), delay
}

func TestPodStages(t *testing.T) {
	now := metav1.Now()
	for _, test := range []struct {
		name        string
		phase       corev1.PodPhase
		labels      map[string]string
		annotations map[string]string
		deleted     bool
		stage       string
		delay       time.Duration
	}{
		{name: "a pod starts", phase: corev1.PodPending, stage: "pod-start", delay: 300 * time.Millisecond},
		{name: "and runs on", phase: corev1.PodRunning},
		{name: "a Job's pods do not end by themselves", phase: corev1.PodRunning, labels: map[string]string{"job-name": "j"}},
		{name: "it succeeds when told", phase: corev1.PodRunning, annotations: map[string]string{contract.RunForAnnotation: "6s"}, stage: "pod-succeed", delay: 6 * time.Second},
		{name: "it fails when told", phase: corev1.PodRunning, annotations: map[string]string{contract.FailAfterAnnotation: "1m30s"}, stage: "pod-fail", delay: 90 * time.Second},
		{
			name: "failing goes before succeeding", phase: corev1.PodRunning,
			annotations: map[string]string{contract.FailAfterAnnotation: "5s", contract.RunForAnnotation: "1s"}, stage: "pod-fail", delay: 5 * time.Second,
		},
		{name: "a StatefulSet's pods run on", phase: corev1.PodRunning, labels: map[string]string{appsv1.PodIndexLabel: "0"}, annotations: map[string]string{contract.RunForAnnotation: "6s"}},
		{name: "the end is the end", phase: corev1.PodSucceeded, annotations: map[string]string{contract.RunForAnnotation: "6s"}},
		{name: "it is deleted while it runs", phase: corev1.PodRunning, deleted: true, annotations: map[string]string{contract.RunForAnnotation: "6s"}, stage: "pod-delete"},
		{name: "and before it runs", phase: corev1.PodPending, deleted: true, stage: "pod-delete"},
		{name: "our own programs start elsewhere", phase: corev1.PodPending, labels: map[string]string{contract.PartOfLabel: contract.PartOfValue}},
		{name: "and end elsewhere", phase: corev1.PodRunning, deleted: true, labels: map[string]string{contract.PartOfLabel: contract.PartOfValue}},
		{name: "others are part of something, too", phase: corev1.PodPending, labels: map[string]string{contract.PartOfLabel: "argo"}, stage: "pod-start", delay: 300 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: test.labels, Annotations: test.annotations},
				Status:     corev1.PodStatus{Phase: test.phase},
			}
			if test.deleted {
				pod.DeletionTimestamp = &now
			}
			stage, delay := next(t, "Pod", pod)
			assert.Equal(t, test.stage, stage)
			assert.GreaterOrEqual(t, delay, test.delay)
			assert.LessOrEqual(t, delay, test.delay+time.Second)
		})
	}
}

func TestNodeStages(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	stage, delay := next(t, "Node", node)
	assert.Equal(t, "node-ready", stage)
	assert.Zero(t, delay)

	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	stage, delay = next(t, "Node", node)
	assert.Equal(t, "node-kubelet", stage, "someone else has made it ready, as the runner does with the node of this machine")
	assert.Zero(t, delay)

	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10251
	stage, _ = next(t, "Node", node)
	assert.Equal(t, "node-kubelet", stage, "the port has changed")

	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	stage, delay = next(t, "Node", node)
	assert.Equal(t, "node-heartbeat", stage)
	// Well within the half hour after which a silent node counts as lost.
	assert.Less(t, delay, 15*time.Minute)

	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	stage, _ = next(t, "Node", node)
	assert.Equal(t, "node-ready", stage, "a lost node comes back")
}

func TestIsSimulated(t *testing.T) {
	assert.False(t, IsSimulated(&corev1.Node{}))
	assert.True(t, IsSimulated(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{NodeAnnotation: NodeAnnotationValue}}}))
}
