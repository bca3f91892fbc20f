// Package clusterlist lists a cluster once from the API server, for a plan or for an answer of
// kubectl gpuplan.
package clusterlist

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// unfinishedPods selects the pods that hold or want resources.
const unfinishedPods = "status.phase!=Succeeded,status.phase!=Failed"

// Kinds of ours that a cluster may not serve yet.
var (
	gpuNodeKind   = schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
	podGroupKind  = schema.GroupVersionKind{Group: contract.PodGroupGroup, Version: contract.PodGroupVersion, Kind: contract.PodGroupKind}
	quotaTreeKind = schema.GroupVersionKind{Group: contract.QuotaTreeGroup, Version: contract.QuotaTreeVersion, Kind: contract.QuotaTreeKind}
)

// Snapshot lists a cluster once, its gangs included. It needs no more than the right
// to list nodes, pods and our custom resources; who may list disruption budgets as well is
// told who can be evicted, and who may list Jobs which members have ended that are gone. When the quota tree cannot be used, the gangs that it holds back
// say so.
func Snapshot(ctx context.Context, client *kube.Client) (*clusterstate.Snapshot, error) {
	objects, err := list(ctx, client, unfinishedPods)
	if err != nil {
		return nil, err
	}
	succeeded, err := listSucceeded(ctx, client)
	if err != nil {
		return nil, err
	}
	if objects.PodGroups, err = listServed(ctx, client, podGroupKind, ""); err != nil {
		return nil, err
	}
	if objects.Budgets, err = listBudgets(ctx, client); err != nil {
		return nil, err
	}
	if objects.Jobs, err = listJobs(ctx, client); err != nil {
		return nil, err
	}
	if err := objects.listDeviceClasses(ctx, client); err != nil {
		return nil, err
	}
	state, _ := objects.State() // the error is the gangs' to tell
	for i := range succeeded {
		state.SetSucceeded(&succeeded[i])
	}
	return state.Snapshot(), nil
}

// Objects are what a view is made of, as a cluster answers one list call of each kind.
type Objects struct {
	Nodes    []corev1.Node
	GPUNodes []contract.GPUNode
	Pods     []corev1.Pod
	// QuotaTree is nil when the cluster has none.
	QuotaTree *unstructured.Unstructured
	// Workload is what the scheduler places by, nil for the tightest fit, and where it cannot be read.
	Workload placement.Workload
	// Budgets and PriorityClasses decide who may preempt whom, PodGroups say what gangs
	// need. They are empty where the user may not read them.
	PodGroups       []unstructured.Unstructured
	Budgets         []policyv1.PodDisruptionBudget
	PriorityClasses []schedulingv1.PriorityClass
	// Jobs tell of pods that have ended and may have gone; none where the user may not read them.
	Jobs []batchv1.Job
	// DaemonSets make a pod on each node that joins; none where the user may not read them.
	DaemonSets []appsv1.DaemonSet
	// LimitRanges say what containers ask for that say nothing; none where the user may not read them.
	LimitRanges []corev1.LimitRange
	// Claims are bound to Volumes; none where the user may not read them.
	Claims  []corev1.PersistentVolumeClaim
	Volumes []corev1.PersistentVolume
	// StorageClasses say who makes volumes, and when; nil where the user may not read them.
	StorageClasses []storagev1.StorageClass
	// CSINodes say how many volumes nodes can attach; none where the user may not read them.
	CSINodes []storagev1.CSINode
	// DeviceClasses say which extended resources are devices that kube-scheduler allocates, DevicesUnknown that the user
	// may not read them.
	DeviceClasses  []resourcev1.DeviceClass
	DevicesUnknown bool
}

// Read lists a cluster once, finished pods included. Kinds whose CRD is not installed
// count as empty.
func Read(ctx context.Context, client *kube.Client) (Objects, error) {
	o, err := list(ctx, client, "")
	if err != nil {
		return o, err
	}
	o.PodGroups, err = listServed(ctx, client, podGroupKind, "")
	if err != nil && !apierrors.IsForbidden(err) {
		return o, err
	}
	if o.Budgets, err = listBudgets(ctx, client); err != nil {
		return o, err
	}
	if o.Jobs, err = listJobs(ctx, client); err != nil {
		return o, err
	}
	if err := o.listDeviceClasses(ctx, client); err != nil {
		return o, err
	}
	typed, all := client.Typed, metav1.ListOptions{}
	classes, err := permitted(typed.SchedulingV1().PriorityClasses().List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list priority classes: %w", err)
	}
	sets, err := permitted(typed.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list DaemonSets: %w", err)
	}
	limits, err := permitted(typed.CoreV1().LimitRanges(metav1.NamespaceAll).List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list LimitRanges: %w", err)
	}
	claims, err := permitted(typed.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list claims of volumes: %w", err)
	}
	volumes, err := permitted(typed.CoreV1().PersistentVolumes().List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list volumes: %w", err)
	}
	storage, err := permitted(typed.StorageV1().StorageClasses().List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list storage classes: %w", err)
	}
	csi, err := permitted(typed.StorageV1().CSINodes().List(ctx, all))
	if err != nil {
		return o, fmt.Errorf("list CSINodes: %w", err)
	}
	o.CSINodes = csi.Items
	o.PriorityClasses, o.DaemonSets, o.LimitRanges = classes.Items, sets.Items, limits.Items
	o.Claims, o.Volumes, o.StorageClasses = claims.Items, volumes.Items, storage.Items
	return o, nil
}

// permitted is what a list call has answered, and nothing where the user has no right to it.
func permitted[L any](list *L, err error) (*L, error) {
	if apierrors.IsForbidden(err) {
		return new(L), nil
	}
	return list, err
}

// BoundVolume finds what claims are bound to, nil when nobody knows.
func (o *Objects) BoundVolume() inventory.BoundVolume {
	if o.Claims == nil || o.Volumes == nil {
		return nil
	}
	type key struct{ namespace, name string }
	names, volumes := make(map[key]string, len(o.Claims)), make(map[string]*corev1.PersistentVolume, len(o.Volumes))
	for i := range o.Claims {
		names[key{o.Claims[i].Namespace, o.Claims[i].Name}] = o.Claims[i].Spec.VolumeName
	}
	for i := range o.Volumes {
		volumes[o.Volumes[i].Name] = &o.Volumes[i]
	}
	return func(namespace, claim string) *corev1.PersistentVolume { return volumes[names[key{namespace, claim}]] }
}

// PendingClaim finds claims that are not bound yet.
func (o *Objects) PendingClaim() inventory.PendingClaim {
	type key struct{ namespace, name string }
	claims := map[key]*corev1.PersistentVolumeClaim{}
	for i := range o.Claims {
		if c := &o.Claims[i]; c.Spec.VolumeName == "" {
			claims[key{c.Namespace, c.Name}] = c
		}
	}
	return func(namespace, claim string) *corev1.PersistentVolumeClaim { return claims[key{namespace, claim}] }
}

// Snapshot returns the cluster that these objects make. A node whose hardware cannot
// be read takes part without GPUs. The error says why the quota tree cannot be used;
// the snapshot is complete apart from it then.
func (o *Objects) Snapshot() (*clusterstate.Snapshot, error) {
	state, err := o.State()
	return state.Snapshot(), err
}

// State is the cluster as it was listed, by which the scheduler counts; the error is that of the quota tree, apart from which it
// is complete.
func (o *Objects) State() (*clusterstate.State, error) {
	state := clusterstate.New(nil)
	state.SetWorkload(o.Workload)
	if bound := o.BoundVolume(); bound != nil {
		state.FindVolumes(bound)
	}
	state.FindPendingClaims(o.PendingClaim())
	if o.DevicesUnknown {
		state.DevicesUnknown(o.ownResources())
	}
	for i := range o.DeviceClasses {
		state.SetDeviceClass(&o.DeviceClasses[i])
	}
	for i := range o.GPUNodes {
		// Without its Node the hardware is only noted: nothing can be wrong yet.
		_, _ = state.SetGPUNode(&o.GPUNodes[i])
	}
	for i := range o.Nodes {
		// The error means no usable hardware, and the view says so by a node without GPUs.
		_, _ = state.SetNode(&o.Nodes[i])
	}
	for i := range o.Budgets {
		// The error means a selector that Kubernetes ignores as well.
		_, _ = state.SetBudget(&o.Budgets[i])
	}
	for i := range o.PodGroups {
		state.SetPodGroup(&o.PodGroups[i])
	}
	for i := range o.Jobs {
		state.SetJob(&o.Jobs[i])
	}
	for i := range o.Pods {
		if o.Pods[i].Status.Phase == corev1.PodSucceeded {
			state.SetSucceeded(&metav1.PartialObjectMetadata{ObjectMeta: o.Pods[i].ObjectMeta})
		}
		if inventory.Finished(&o.Pods[i]) {
			continue
		}
		state.SetPod(&o.Pods[i])
		if inventory.Overdue(&o.Pods[i]) {
			state.Overdue(o.Pods[i].UID)
		}
	}
	if o.QuotaTree == nil {
		return state, nil
	}
	_, err := state.SetQuotaTree(o.QuotaTree)
	return state, err
}

func list(ctx context.Context, client *kube.Client, pods string) (o Objects, err error) {
	nodes, err := client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list nodes: %w", err)
	}
	if o.GPUNodes, err = listHardware(ctx, client); err != nil {
		return o, err
	}
	listed, err := client.Typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: pods})
	if err != nil {
		return o, fmt.Errorf("list pods: %w", err)
	}
	o.Nodes, o.Pods = nodes.Items, listed.Items
	if o.QuotaTree, err = listQuotaTree(ctx, client); err != nil {
		return o, err
	}
	o.Workload, err = readWorkload(ctx, client)
	return o, err
}

// listServed returns the objects of a kind, none where it is not installed.
func listServed(ctx context.Context, client *kube.Client, kind schema.GroupVersionKind, namespace string) ([]unstructured.Unstructured, error) {
	if _, served, err := client.Served(ctx, kind.Group, kind.Kind); err != nil || !served {
		return nil, err
	}
	objects, err := client.List(ctx, kind, namespace, "")
	if errors.Is(err, kube.ErrNotServed) { // it has just gone
		return nil, nil
	}
	return objects, err
}

func listHardware(ctx context.Context, client *kube.Client) ([]contract.GPUNode, error) {
	objects, err := listServed(ctx, client, gpuNodeKind, "")
	if err != nil {
		return nil, err
	}
	out := make([]contract.GPUNode, len(objects))
	for i, object := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", contract.GPUNodeKind, object.GetName(), err)
		}
	}
	return out, nil
}

// listBudgets returns the disruption budgets, none where the user may not read them.
func listBudgets(ctx context.Context, client *kube.Client) ([]policyv1.PodDisruptionBudget, error) {
	budgets, err := permitted(client.Typed.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}
	return budgets.Items, nil
}

// listJobs returns the Jobs, none where the user may not read them.
func listJobs(ctx context.Context, client *kube.Client) ([]batchv1.Job, error) {
	jobs, err := permitted(client.Typed.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}))
	if err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	return jobs.Items, nil
}

// listDeviceClasses reads the classes of devices. A cluster that does not serve them has none.
func (o *Objects) listDeviceClasses(ctx context.Context, client *kube.Client) error {
	classes, err := client.Typed.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		o.DevicesUnknown = true
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("list device classes: %w", err)
	default:
		o.DeviceClasses = classes.Items
	}
	return nil
}

// ownResources are extended resources that are no devices of a class: those that nodes offer themselves, and that of
// eRDMA, which ACK's device plugin offers.
func (o *Objects) ownResources() map[string]bool {
	own := map[string]bool{contract.ResourceERDMA: true}
	for i := range o.Nodes {
		for name := range o.Nodes[i].Status.Allocatable {
			own[string(name)] = true
		}
	}
	return own
}

// listQuotaTree returns the object of the quota tree, nil when there is none.
func listQuotaTree(ctx context.Context, client *kube.Client) (*unstructured.Unstructured, error) {
	trees, err := listServed(ctx, client, quotaTreeKind, contract.QuotaTreeNamespace)
	if err != nil {
		return nil, err
	}
	all := make([]*unstructured.Unstructured, len(trees))
	for i := range trees {
		all[i] = &trees[i]
	}
	return inventory.InForce(all), nil
}

// readWorkload reads the workload that the scheduler follows; nil when there is none, or
// none that the user may read, or that can be read: the scheduler follows none of these either.
func readWorkload(ctx context.Context, client *kube.Client) (placement.Workload, error) {
	record, err := client.Typed.CoreV1().ConfigMaps(contract.SystemNamespace).Get(ctx, contract.WorkloadName, metav1.GetOptions{})
	switch {
	case kube.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", contract.SystemNamespace, contract.WorkloadName, err)
	}
	w, _, err := inventory.WorkloadOf(record)
	if err != nil {
		return nil, nil //nolint:nilerr // the scheduler says what is wrong with it
	}
	return w, nil
}

// ReserveAfter reads how long a gang waits until the scheduler reserves capacity for it, negative for
// ever: the scheduler's default where its Deployment does not say, or the user may not read it.
func ReserveAfter(ctx context.Context, client *kube.Client) (time.Duration, error) {
	deployment, err := client.Typed.AppsV1().Deployments(contract.SystemNamespace).Get(ctx, contract.SchedulerName, metav1.GetOptions{})
	switch {
	case kube.IsNotFound(err) || apierrors.IsForbidden(err):
		return contract.DefaultReserveAfter, nil
	case err != nil:
		return 0, fmt.Errorf("read Deployment %s/%s: %w", contract.SystemNamespace, contract.SchedulerName, err)
	}
	after, err := time.ParseDuration(deployment.Annotations[contract.ReserveAfterAnnotation])
	if err != nil || after == 0 {
		return contract.DefaultReserveAfter, nil //nolint:nilerr // someone else wrote it
	}
	return after, nil
}

// listSucceeded reads the metadata of the succeeded pods of a cluster once.
func listSucceeded(ctx context.Context, client *kube.Client) ([]metav1.PartialObjectMetadata, error) {
	pods, err := metadata.NewForConfig(client.Config)
	if err != nil {
		return nil, fmt.Errorf("set up the client for succeeded pods: %w", err)
	}
	list, err := pods.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{FieldSelector: clusterstate.SucceededPods})
	if err != nil {
		return nil, fmt.Errorf("list succeeded pods: %w", err)
	}
	return list.Items, nil
}
