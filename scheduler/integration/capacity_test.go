package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// fourLeaves is the shape of the tree in the document on capacity scheduling: two nodes
// with two leaves each. The amounts are of one resource; a leaf has a quarter of the
// total as its min and half of it as its max. Leaves have the namespaces given by name.
func fourLeaves(resource string, total int, namespaces map[string]string) map[string]any {
	amount := func(n int) map[string]any { return map[string]any{resource: fmt.Sprint(n)} }
	leaf := func(name string) any {
		node := map[string]any{"name": name, "min": amount(total / 4), "max": amount(total / 2)}
		if namespace := namespaces[name]; namespace != "" {
			node["namespaces"] = []any{namespace}
		}
		return node
	}
	half := func(name string) any {
		return map[string]any{"name": name, "min": amount(total / 2), "max": amount(total), "children": []any{leaf(name + ".1"), leaf(name + ".2")}}
	}
	return map[string]any{"name": "root", "min": amount(total), "max": amount(total), "children": []any{half("root.a"), half("root.b")}}
}

// usage is what a node of the live tree uses and asks for, in cores.
type usage struct{ used, asked int64 }

// treeUsage reads the status of the live tree.
func treeUsage(c require.TestingT) map[string]usage {
	object, err := cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).
		Get(context.Background(), contract.QuotaTreeName, metav1.GetOptions{})
	require.NoError(c, err)
	all := map[string]usage{}
	var read func(node map[string]any)
	read = func(node map[string]any) {
		cores := func(field string) int64 {
			text, _, err := unstructured.NestedString(node, field, "cpu")
			require.NoError(c, err)
			amount, err := resource.ParseQuantity(text)
			require.NoError(c, err)
			return amount.Value()
		}
		all[node["name"].(string)] = usage{cores("used"), cores("request")}
		children, _, err := unstructured.NestedSlice(node, "children")
		require.NoError(c, err)
		for _, child := range children {
			read(child.(map[string]any))
		}
	}
	root, _, err := unstructured.NestedMap(object.Object, "status", "root")
	require.NoError(c, err)
	require.NotEmpty(c, root, "the tree has no status yet")
	read(root)
	return all
}

// TestCapacitySchedulingDocument is the worked example of Alibaba Cloud's "Use Capacity
// Scheduling": 40 cores, and Deployments of five pods with 5 cores each, which come to
// the leaves one after the other. There are more cores, and GPUs, than the tree gives out.
func TestCapacitySchedulingDocument(t *testing.T) {
	for name, gpus := range map[string]int64{"as in the document": 0, "each with a GPU": 1} {
		t.Run(name, func(t *testing.T) { testCapacity(t, gpus) })
	}
}

func testCapacity(t *testing.T, gpus int64) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	teams, namespaces := map[string]*testCluster{}, map[string]string{}
	for _, leaf := range []string{"root.a.1", "root.a.2", "root.b.1", "root.b.2"} {
		teams[leaf] = newTestCluster(t)
		namespaces[leaf] = teams[leaf].namespace
	}
	s.setTree(fourLeaves("cpu", 40, namespaces))
	startScheduler(t)
	startQueue(t)
	full := "quota root: max of cpu is 40, 40 is used and 5 is asked for"
	steps := []struct {
		leaf string
		want map[string]usage
		// says is in what pods that wait say, by leaf.
		says map[string]string
	}{
		{"root.a.1", map[string]usage{
			"root": {20, 25}, "root.a": {20, 25}, "root.a.1": {20, 25}, "root.a.2": {}, "root.b": {}, "root.b.1": {}, "root.b.2": {},
		}, map[string]string{
			"root.a.1": "quota root/root.a/root.a.1: max of cpu is 20, 20 is used and 5 is asked for",
		}},
		{"root.a.2", map[string]usage{
			"root": {40, 50}, "root.a": {40, 50}, "root.a.1": {20, 25}, "root.a.2": {20, 25}, "root.b": {}, "root.b.1": {}, "root.b.2": {},
		}, map[string]string{
			"root.a.2": "quota root/root.a/root.a.2: max of cpu is 20, 20 is used and 5 is asked for",
		}},
		{"root.b.1", map[string]usage{
			"root": {40, 75}, "root.a": {30, 50}, "root.a.1": {15, 25}, "root.a.2": {15, 25}, "root.b": {10, 25}, "root.b.1": {10, 25}, "root.b.2": {},
		}, map[string]string{"root.a.1": full, "root.a.2": full, "root.b.1": full}},
		{"root.b.2", map[string]usage{
			"root": {40, 100}, "root.a": {20, 50}, "root.a.1": {10, 25}, "root.a.2": {10, 25}, "root.b": {20, 50}, "root.b.1": {10, 25}, "root.b.2": {10, 25},
		}, map[string]string{"root.a.1": full, "root.a.2": full, "root.b.1": full, "root.b.2": full}},
	}
	for _, step := range steps {
		teams[step.leaf].deploy("nginx", s.namespace, gpus)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Equal(c, step.want, treeUsage(c))
			for leaf, team := range teams {
				list, err := api().CoreV1().Pods(team.namespace).List(context.Background(), metav1.ListOptions{})
				require.NoError(c, err)
				assert.EqualValues(c, step.want[leaf].used, 5*bound(list.Items), leaf)
				assert.EqualValues(c, step.want[leaf].asked, 5*len(list.Items), leaf)
				for _, pod := range list.Items {
					if pod.Spec.NodeName == "" {
						assert.Contains(c, reason([]corev1.Pod{pod}), step.says[leaf], pod.Name)
					}
				}
			}
		}, settled, 200*time.Millisecond, "five pods for %s", step.leaf)
	}
}

// deploy makes the document's Deployment, on the nodes of a pool.
func (s *testCluster) deploy(name, pool string, gpus int64) {
	s.t.Helper()
	five := int32(5)
	labels := map[string]string{"app": name}
	list := corev1.ResourceList{corev1.ResourceCPU: quantity(5)}
	if gpus > 0 {
		list[contract.ResourceTopologyGPU] = quantity(gpus)
	}
	deployments := api().AppsV1().Deployments(s.namespace)
	_, err := deployments.Create(s.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &five, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				SchedulerName: contract.SchedulerName, NodeSelector: map[string]string{contract.NodePoolNameLabel: pool},
				TerminationGracePeriodSeconds: new(int64),
				Containers:                    []corev1.Container{{Name: "nginx", Image: "test", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
			},
		}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, deployments.Delete(context.Background(), name, metav1.DeleteOptions{})) })
}

// A pod without GPUs takes back a place by quota as a gang does. When the scheduler dies, and
// its victim leaves before there is another, the place is still the preemptor's: pods that
// wait for longer do not take it, and nobody else has to go.
func TestNominationOfAPodWithoutGPUs(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	s.setTree(fourLeaves("cpu", 40, nil))
	scheduler := startScheduler(t)
	servers := func(name, leaf string, pods int) job {
		return job{name: name, workers: pods, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = quantity(5)
		}}.in(leaf)
	}
	for i, name := range []string{"first", "second"} {
		leaf := fmt.Sprint("root.a.", i+1)
		s.submit(servers(name, leaf, 4).lingering())
		s.awaitBound(name)
		s.submit(servers(name+"-more", leaf, 1))
		s.awaitReason(name+"-more", "max of cpu is 20, 20 is used")
	}
	s.submit(servers("third", "root.b.1", 1))
	s.awaitReason("third", "1 of 1 members fit once others have gone")
	borrowers := func(ctx context.Context) []corev1.Pod {
		return slices.Concat(s.list(ctx, "first"), s.list(ctx, "second"))
	}
	s.await("a victim to leave", func(ctx context.Context) (bool, string) {
		n := leaving(borrowers(ctx))
		return n > 0, fmt.Sprint(n)
	})
	scheduler.End(syscall.SIGKILL)
	s.release("first")
	s.release("second")
	require.Len(t, borrowers(t.Context()), 7)

	startScheduler(t)
	s.awaitBound("third")
	for _, name := range []string{"first-more", "second-more"} {
		s.awaitReason(name, "0 of 1 members fit: quota root")
	}
	assert.Len(t, borrowers(t.Context()), 7)
	assert.Zero(t, leaving(borrowers(t.Context())))
}

// One plan names all victims of a gang, on whichever nodes and of whichever leaves: they
// are told to leave after a single cycle of the gang, before any of them has gone.
func TestVictimsAreChosenInOneCycle(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	s.setTree(fourLeaves(contract.ResourceTopologyGPU, 16, nil))
	scheduler := startScheduler(t)
	var borrowers []string
	for i := range 8 {
		borrower := topologyGang(fmt.Sprint("borrower-", i), 1, 2)
		borrower.change = func(p *corev1.Pod) { p.Spec.NodeSelector[corev1.LabelHostname] = s.nodes[i%2] }
		s.submit(borrower.in(fmt.Sprint("root.a.", 1+i%2)).lingering())
		s.awaitBound(borrower.name)
		borrowers = append(borrowers, borrower.name)
	}
	owner := topologyGang("owner", 2, 2).in("root.b.1")
	change := owner.change
	owner.change = func(p *corev1.Pod) {
		change(p)
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: "owner"}},
			}},
		}}
	}
	s.submit(owner)
	var nodes []string
	s.await("a victim on each node to leave", func(ctx context.Context) (bool, string) {
		nodes = nil
		for _, name := range borrowers {
			for _, pod := range s.list(ctx, name) {
				if pod.DeletionTimestamp != nil {
					nodes = append(nodes, pod.Spec.NodeName)
				}
			}
		}
		return len(nodes) >= 2, fmt.Sprint(nodes)
	})
	assert.ElementsMatch(t, s.nodes, nodes)
	s.awaitReason("owner", "2 of 2 members fit once others have gone")

	scheduler.End(syscall.SIGTERM)
	cycles := 0
	for line := range strings.SplitSeq(scheduler.Log.String(), "\n") {
		if strings.Contains(line, "Unable to schedule pod") && strings.Contains(line, "/owner-") {
			cycles++
		}
	}
	assert.Equal(t, 1, cycles)
	startScheduler(t)
	for _, name := range borrowers {
		s.release(name)
	}
	s.awaitBound("owner")
	left := 0
	for _, name := range borrowers {
		left += len(s.list(t.Context(), name))
	}
	assert.Equal(t, 6, left, "nobody else went")
	s.requireNoSharedGPUs()
}
