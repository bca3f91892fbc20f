package explain_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
)

// instanceType is eight V100 with 32 GiB each, hybrid cube mesh.
const instanceType = "ecs.gn6v-c10g1.20xlarge"

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// cluster makes snapshots of objects, as the API server would show them.
type cluster struct {
	t     *testing.T
	cache *clustercache.Cache
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, cache: clustercache.New()}
}

func (c *cluster) node(name, pool, mode string, change ...func(*corev1.Node)) {
	c.t.Helper()
	offers := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("80"),
		corev1.ResourceMemory: resource.MustParse("300Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	switch mode {
	case "topology":
		offers[contract.ResourceTopologyGPU] = resource.MustParse("8")
	case "default":
		offers[contract.ResourceDefaultGPU] = resource.MustParse("8")
	case "core_mem":
		offers[contract.ResourceGPUMemory] = resource.MustParse("256")
		offers[contract.ResourceCorePercent] = resource.MustParse("800")
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{
			contract.NodeModeLabel: mode, contract.NodePoolNameLabel: pool, contract.InstanceTypeLabel: instanceType,
			corev1.LabelHostname: name,
		}},
		Status: corev1.NodeStatus{Capacity: offers, Allocatable: offers},
	}
	for _, f := range change {
		f(node)
	}
	_, err := c.cache.SetNode(node)
	require.NoError(c.t, err)
}

// unwell publishes a node's hardware with one unhealthy GPU.
func (c *cluster) unwell(name string, gpu int, reason string) {
	c.t.Helper()
	machine, ok := catalog.Machine(instanceType)
	require.True(c.t, ok)
	status := contract.StatusOf(machine)
	status.GPUs[gpu].Health, status.GPUs[gpu].Reason = contract.Unhealthy, reason
	_, err := c.cache.SetGPUNode(&contract.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status})
	require.NoError(c.t, err)
}

// job makes the pods of a gang that waits.
func (c *cluster) job(namespace, name string, workers int, requests map[string]int64, change ...func(*corev1.Pod)) []*corev1.Pod {
	list := corev1.ResourceList{}
	for name, amount := range requests {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	var pods []*corev1.Pod
	for i := range workers {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("%s-worker-%d", name, i), UID: types.UID(fmt.Sprintf("%s/%s/%d", namespace, name, i)),
				Labels: map[string]string{
					contract.JobNameLabel: name, contract.JobReplicaTypeLabel: "worker", contract.JobReplicaIndexLabel: fmt.Sprint(i),
					contract.TopologyGroupLabel: name, contract.TopologyReplicasLabel: fmt.Sprint(workers),
				},
			},
			Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
		}
		for _, f := range change {
			f(pod)
		}
		c.cache.SetPod(pod)
		pods = append(pods, pod)
	}
	return pods
}

// run plans a gang on the cache as the scheduler does, and binds it.
func (c *cluster) run(key string) {
	c.t.Helper()
	d, ok, err := c.cache.Decide(key, clustercache.Limits{}, func(*clustercache.Decision) bool { return true })
	require.NoError(c.t, err)
	require.True(c.t, ok, key)
	require.NotNil(c.t, d.Result.Placement, d.Result.Verdict.String())
	for _, assumed := range d.Assumed {
		pod := assumed.Pod.DeepCopy()
		annotations, err := assumed.Record.Annotations()
		require.NoError(c.t, err)
		pod.Spec.NodeName, pod.Annotations = assumed.Record.Node, annotations
		c.cache.SetPod(pod)
	}
}

// budget lets so many pods of a job be evicted.
func (c *cluster) budget(namespace, job string, allowed int32) {
	c.t.Helper()
	_, err := c.cache.SetBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector(job)},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
	require.NoError(c.t, err)
}

// urgent ranks a pod above others.
func urgent(p *corev1.Pod) {
	priority := int32(1000)
	p.Spec.Priority = &priority
}

func alone(p *corev1.Pod) {
	p.Name, p.Labels = p.Labels[contract.JobNameLabel], nil
}

// says puts the words of a scheduler on a pod.
func says(text string, since time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: text, LastTransitionTime: metav1.NewTime(since)}}
	}
}

func (c *cluster) quota(leaf, namespace string, least, most int64, maxJobs ...int64) {
	c.t.Helper()
	limits := map[string]any{contract.ResourceTopologyGPU: most}
	for _, jobs := range maxJobs {
		limits[contract.MaxJobsKey] = strconv.FormatInt(jobs, 10)
	}
	c.quotaOf(leaf, namespace, map[string]any{contract.ResourceTopologyGPU: least}, limits)
}

func (c *cluster) quotaOf(leaf, namespace string, least, most map[string]any) {
	c.t.Helper()
	_, err := c.cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": contract.QuotaTreeName},
		"spec": map[string]any{"root": map[string]any{"name": "root", "children": []any{map[string]any{
			"name": leaf, "namespaces": []any{namespace}, "min": least, "max": most,
		}}}},
	}})
	require.NoError(c.t, err)
}

// invalidQuota puts a quota tree in force that cannot be used.
func (c *cluster) invalidQuota(namespace string) {
	c.t.Helper()
	_, err := c.cache.SetQuotaTree(&unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"root": map[string]any{"name": "root", "children": []any{map[string]any{
			"name": "team", "namespaces": []any{namespace}, "min": map[string]any{"cpu": "2"}, "max": map[string]any{"cpu": "1"},
		}}}},
	}})
	require.Error(c.t, err)
}

const (
	topologyGPUs = contract.ResourceTopologyGPU
	defaultGPUs  = contract.ResourceDefaultGPU
	gpuMemory    = contract.ResourceGPUMemory
	corePercent  = contract.ResourceCorePercent
)

// busyCluster has something of everything.
func busyCluster(t *testing.T) *cluster {
	c := newCluster(t)
	c.node("v100-1", "v100", "topology")
	c.node("v100-2", "v100", "topology")
	c.unwell("v100-2", 6, "XID 79: the GPU has fallen off the bus")
	c.node("regular-1", "regular", "default")
	c.node("shared-1", "shared", "core_mem")
	c.node("cpu-1", "cpu", "", func(n *corev1.Node) { n.Labels = map[string]string{contract.NodePoolNameLabel: "cpu"} })
	c.job("default", "vgg16", 4, map[string]int64{topologyGPUs: 1, "cpu": 2})
	c.run("default/vgg16")
	c.job("research", "bert", 2, map[string]int64{topologyGPUs: 3})
	c.run("research/bert")
	c.job("default", "resnet", 1, map[string]int64{defaultGPUs: 2})
	c.run("default/resnet")
	for _, name := range []string{"notebook-a", "notebook-b"} {
		c.job("default", name, 1, map[string]int64{gpuMemory: 12, corePercent: 30}, alone)
		c.run("pod/default/" + name)
	}
	return c
}

// mpiCluster has two MPI gangs, of which one has its launcher beside its workers, the other on a
// node without GPUs.
func mpiCluster(t *testing.T) *cluster {
	c := newCluster(t)
	c.node("v100-1", "v100", "topology")
	c.node("cpu-1", "cpu", "", func(n *corev1.Node) { n.Labels = map[string]string{contract.NodePoolNameLabel: "cpu"} })
	for gang, node := range map[string]string{"near": "v100-1", "far": "cpu-1"} {
		c.job("default", gang, 4, map[string]int64{topologyGPUs: 1})
		c.run("default/" + gang)
		c.job("default", gang, 1, nil, func(p *corev1.Pod) {
			p.Name, p.UID = gang+"-launcher", types.UID(gang+"-launcher")
			p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.TopologyReplicasLabel] = contract.ReplicaLauncher, "4"
			p.Spec.NodeName = node
		})
	}
	c.node("v100-2", "v100", "topology")
	return c
}

func selector(job string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: job}}
}
