package cloud

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/kubelet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/simulate"
)

// addonActive is the state of an add-on that runs.
const addonActive = "active"

// pollInterval is how often a node or a drain is looked at.
const pollInterval = 20 * time.Millisecond

// nodes makes the emulator's nodes simulated nodes of the cluster.
type nodes struct {
	client   kubernetes.Interface
	hardware string
	// real makes nodes that are real, nil where none is.
	real RealNodes
	// erdma says that the add-on runs that sets up the eRDMA devices of nodes that join. Those that
	// have joined before it get none, as on ACK.
	erdma atomic.Bool
}

// RealNodes makes some nodes of pools real, with a kubelet and containers.
type RealNodes interface {
	// Choose tells whether the node is to be a real one.
	Choose(name string) bool
	// Ensure makes the real node, whose Node object exists, and returns when its kubelet serves.
	Ensure(ctx context.Context, name string, machine kubelet.Machine) error
	// HardwareDir is the folder for the description of a real node's GPUs; false for a node that is not real.
	HardwareDir(name string) (string, bool)
	// Remove ends the real node; one that is gone, or was never real, is success.
	Remove(name string) error
}

var _ acsfake.Backend = (*nodes)(nil)

// EnsureNode makes the node and the description of its GPUs, and returns when the
// node takes pods.
func (n *nodes) EnsureNode(ctx context.Context, node acsfake.Node) error {
	chosen := n.real != nil && n.real.Choose(node.Name)
	object, err := nodeObject(node, n.erdma.Load())
	if err != nil {
		return err
	}
	if chosen {
		makeReal(object)
	}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	if chosen {
		machine, err := machineOf(node)
		if err != nil {
			return err
		}
		if err := n.real.Ensure(ctx, node.Name, machine); err != nil {
			return err
		}
	}
	if err := n.describeHardware(node); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		object, err := n.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("wait for node %s: %w", node.Name, err)
		}
		return takesPods(object), nil
	})
}

// takesPods tells whether the node is Ready and has lost the taint that it had before.
func takesPods(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
}

// UpdateNode brings labels and taints from those of old to those of node. Others,
// which someone else has set, stay. A node that was deleted from Kubernetes registers again.
func (n *nodes) UpdateNode(ctx context.Context, old, node acsfake.Node) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := n.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for key := range old.Labels {
			delete(object.Labels, key)
		}
		for key, value := range node.Labels {
			object.Labels[key] = value
		}
		were := taints(old.Taints)
		object.Spec.Taints = slices.DeleteFunc(object.Spec.Taints, func(t corev1.Taint) bool {
			return slices.ContainsFunc(slices.Concat(were, taints(node.Taints)), func(w corev1.Taint) bool { return t.MatchTaint(&w) })
		})
		object.Spec.Taints = append(object.Spec.Taints, taints(node.Taints)...)
		_, err = n.client.CoreV1().Nodes().Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return n.EnsureNode(ctx, node)
	}
	if err != nil {
		return fmt.Errorf("update node %s: %w", node.Name, err)
	}
	return nil
}

// DeleteNode drains the node as PodDisruptionBudgets allow, and deletes it.
func (n *nodes) DeleteNode(ctx context.Context, node acsfake.Node) error {
	if err := n.drain(ctx, node.Name); err != nil {
		return err
	}
	if n.real != nil {
		if err := n.real.Remove(node.Name); err != nil {
			return err
		}
	}
	if err := n.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	if err := n.forgetPods(ctx, node.Name); err != nil {
		return err
	}
	if err := os.Remove(n.hardwareFile(node.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forgetPods deletes the DaemonSets' pods of a node that is gone, which otherwise
// stay until the garbage collector comes by.
func (n *nodes) forgetPods(ctx context.Context, name string) error {
	pods, err := n.podsOn(ctx, name)
	if err != nil {
		return err
	}
	now := int64(0)
	for _, pod := range pods {
		err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pod %s/%s of node %s: %w", pod.Namespace, pod.Name, name, err)
		}
	}
	return nil
}

func (n *nodes) podsOn(ctx context.Context, name string) ([]corev1.Pod, error) {
	onNode := fields.OneTermEqualSelector("spec.nodeName", name).String()
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: onNode})
	if err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", name, err)
	}
	return pods.Items, nil
}

func (n *nodes) drain(ctx context.Context, name string) error {
	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	_, err := n.client.CoreV1().Nodes().Patch(ctx, name, "application/merge-patch+json", cordon, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cordon node %s: %w", name, err)
	}
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		pods, err := n.podsOn(ctx, name)
		if err != nil {
			return false, err
		}
		left := 0
		for _, pod := range pods {
			if owner := metav1.GetControllerOf(&pod); owner != nil && owner.Kind == "DaemonSet" {
				continue
			}
			left++
			if pod.DeletionTimestamp != nil {
				continue
			}
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
			err := n.client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, eviction)
			// Too many requests is how a PodDisruptionBudget says: not now.
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
				return false, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
		return left == 0, nil
	})
}

// observe follows the add-ons of the cluster.
func (n *nodes) observe(state acsfake.State) {
	n.erdma.Store(slices.ContainsFunc(state.Addons, func(a *acsfake.AddonRecord) bool {
		return a.Name == contract.ERDMAController && a.State == addonActive
	}))
}

// nodeObject is the node as it registers, with eRDMA devices where they are set up.
func nodeObject(node acsfake.Node, erdma bool) (*corev1.Node, error) {
	it, ok := catalog.Lookup(node.InstanceType)
	if !ok {
		return nil, fmt.Errorf("instance type %s is not in the catalogue, so its node cannot be simulated", node.InstanceType)
	}
	resources, err := allocatable(it, node.Labels)
	if err != nil {
		return nil, err
	}
	if !erdma {
		delete(resources, catalog.ERDMAResource)
	}
	address := strings.TrimPrefix(node.Name, RegionID+".")
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   node.Name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
			Annotations: map[string]string{
				simulate.NodeAnnotation:            simulate.NodeAnnotationValue,
				contract.SimulatedWiringAnnotation: it.Wiring,
			},
		},
		Spec: corev1.NodeSpec{ProviderID: RegionID + "." + node.InstanceID, Taints: taints(node.Taints)},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: node.Name}},
		},
	}
	for key, value := range node.Labels {
		object.Labels[key] = value
	}
	return object, nil
}

func taints(from []acsfake.Taint) []corev1.Taint {
	var all []corev1.Taint
	for _, t := range from {
		all = append(all, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return all
}

// describeHardware writes the description from which the node agent reads the GPUs.
// One that exists stays: someone may have broken a GPU in it on purpose.
func (n *nodes) describeHardware(node acsfake.Node) error {
	file := n.hardwareFile(node.Name)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	machine, ok := catalog.Machine(node.InstanceType)
	if !ok || len(machine.GPUs) == 0 {
		return nil
	}
	return datadir.WriteJSON(file, machine)
}

// hardwareFile is where the agent that serves the node looks: of a real node one of its own.
func (n *nodes) hardwareFile(node string) string {
	folder := n.hardware
	if n.real != nil {
		if own, ok := n.real.HardwareDir(node); ok {
			folder = own
		}
	}
	return filepath.Join(folder, node+".json")
}

// makeReal takes from a node what only a simulated one has. The kubelet says the rest.
func makeReal(node *corev1.Node) {
	delete(node.Annotations, simulate.NodeAnnotation)
	node.Status = corev1.NodeStatus{}
}

// machineOf is what a real node's kubelet reports: what a simulated node of the type has, but
// for GPUs, which device plugins offer.
func machineOf(node acsfake.Node) (kubelet.Machine, error) {
	it, ok := catalog.Lookup(node.InstanceType)
	if !ok {
		return kubelet.Machine{}, fmt.Errorf("instance type %s is not in the catalogue", node.InstanceType)
	}
	offered, err := catalog.Allocatable(it, defaultMode, catalog.Setup{})
	if err != nil {
		return kubelet.Machine{}, err
	}
	return kubelet.Machine{
		CPUs: it.VCPU, ReservedMilliCPU: int64(it.VCPU)*1000 - offered.MilliCPU,
		MemoryBytes: offered.MemoryBytes, EphemeralStorageBytes: offered.EphemeralStorageBytes, Pods: offered.Pods,
	}, nil
}
