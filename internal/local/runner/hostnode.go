package runner

import (
	"context"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

// HostNode is the name of the node that stands for this machine: where Deployments
// of gpuplan's programs run.
const HostNode = "gpuplan-local"

const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	heartbeat         = time.Minute
)

// ensureHostNode makes the node of this machine. Pods that are not ours and tolerate its taint are simulated on it: there is no
// kubelet that would run or end them.
func (r *Runner) ensureHostNode(ctx context.Context) error {
	// Nothing is held to these numbers; they let a rolling update of a program fit.
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("16"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: HostNode,
			Labels: map[string]string{
				corev1.LabelHostname:   HostNode,
				corev1.LabelOSStable:   runtime.GOOS,
				corev1.LabelArchStable: runtime.GOARCH,
				controlPlaneLabel:      "",
			},
			Annotations: map[string]string{simulate.NodeAnnotation: simulate.NodeAnnotationValue},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: HostNode}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: runtime.GOARCH, OperatingSystem: runtime.GOOS,
				KubeletVersion: version.Get().GitVersion, ContainerRuntimeVersion: "process://",
			},
		},
	}
	_, err := r.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // made by an earlier version of this program, perhaps
		mark := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, simulate.NodeAnnotation, simulate.NodeAnnotationValue)
		_, err = r.client.CoreV1().Nodes().Patch(ctx, HostNode, types.MergePatchType, []byte(mark), metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("create node %s: %w", HostNode, err)
	}
	return r.beat(ctx)
}

// keepHostNodeReady reports the node's state as a kubelet does.
func (r *Runner) keepHostNodeReady(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := r.beat(ctx); err != nil && ctx.Err() == nil {
				klog.Warningf("runner: %v", err)
			}
		}
	}
}

func (r *Runner) beat(ctx context.Context) error {
	node, err := r.client.CoreV1().Nodes().Get(ctx, HostNode, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.ensureHostNode(ctx)
	}
	if err != nil {
		return fmt.Errorf("heartbeat of node %s: %w", HostNode, err)
	}
	now := metav1.Now()
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "RunnerReady", Message: "the local platform runs its programs here",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	conditions := []corev1.NodeCondition{ready}
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
			conditions = append(conditions, condition)
		case condition.Status == corev1.ConditionTrue:
			conditions[0].LastTransitionTime = condition.LastTransitionTime
		}
	}
	node.Status.Conditions = conditions
	if _, err := r.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("heartbeat of node %s: %w", HostNode, err)
	}
	return nil
}
