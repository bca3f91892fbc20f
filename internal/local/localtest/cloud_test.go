package localtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

const v100Type = "ecs.gn6v-c10g1.20xlarge"

func cloudClient(t *testing.T, env map[string]string) *acs.Client {
	t.Helper()
	client, err := acs.New(acs.Config{
		Credentials:  acs.Credentials{AccessKeyID: env["ALIBABA_CLOUD_ACCESS_KEY_ID"], AccessKeySecret: env["ALIBABA_CLOUD_ACCESS_KEY_SECRET"]},
		Region:       env["ALIBABA_CLOUD_REGION_ID"],
		Endpoint:     env["GPUPLAN_CS_ENDPOINT"],
		PollInterval: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	return client
}

// v100Pool is a pool of nodes with eight V100 each, in mode topology.
func v100Pool(name string, size int64) acs.NodePoolSpec {
	return acs.NodePoolSpec{
		Info:         acs.NodePoolInfo{Name: name, Type: "ess"},
		ScalingGroup: acs.ScalingGroup{InstanceTypes: []string{v100Type}, VSwitchIDs: []string{"vsw-local"}, DesiredSize: &size, Tags: []acs.Tag{}},
		KubernetesConfig: acs.KubernetesConfig{
			Labels: []acs.Label{{Key: contract.NodeModeLabel, Value: "topology"}, {Key: contract.NodePoolNameLabel, Value: name}},
			Taints: []acs.Taint{},
		},
	}
}

func nodesOf(t *testing.T, client kubernetes.Interface, pool string) []corev1.Node {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel + "=" + pool})
	require.NoError(t, err)
	return list.Items
}

// offers complains unless the node offers that much of a resource.
func offers(client kubernetes.Interface, node string, name corev1.ResourceName, want int64) error {
	got, err := client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	quantity := got.Status.Allocatable[name]
	if quantity.Cmp(*resource.NewQuantity(want, resource.DecimalSI)) != 0 {
		return fmt.Errorf("node %s offers %s of %s, not %d", node, quantity.String(), name, want)
	}
	return nil
}

func TestNodePoolsBecomeNodes(t *testing.T) {
	platform := localtest.Start(t)
	cloud, client := cloudClient(t, platform.Env), platform.Client(t)
	cluster := platform.Env["GPUPLAN_CLUSTER_ID"]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	begin := time.Now()
	created, err := cloud.CreateNodePool(ctx, cluster, v100Pool("becomes", 2))
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, created.TaskID, nil)
	require.NoError(t, err)
	assert.Greater(t, time.Since(begin), time.Second, "a task takes time that one can see")

	nodes := nodesOf(t, client, "becomes")
	require.Len(t, nodes, 2)
	for _, node := range nodes {
		assert.Equal(t, v100Type, node.Labels[contract.InstanceTypeLabel])
		assert.Equal(t, created.PoolID, node.Labels[contract.NodePoolIDLabel])
		assert.Equal(t, "topology", node.Labels[contract.NodeModeLabel])
		assert.Empty(t, node.Spec.Taints, "it takes pods at once")
		assert.Equal(t, "dgx1-v100", node.Annotations[contract.SimulatedWiringAnnotation])
		require.NoError(t, offers(client, node.Name, contract.ResourceTopologyGPU, 8))
		require.NoError(t, offers(client, node.Name, contract.ResourceDefaultGPU, 0))

		data, err := os.ReadFile(filepath.Join(platform.Dir, "hardware", node.Name+".json"))
		require.NoError(t, err)
		machine, err := gpu.ParseMachine(data)
		require.NoError(t, err)
		assert.Len(t, machine.GPUs, 8)
		assert.Positive(t, machine.GPUs[0].MemoryMiB)
	}

	// What a person does with kubectl; the pool does not know.
	patch := []byte(`{"metadata":{"labels":{"ack.node.gpu.schedule":"share","mine":"yes"}}}`)
	_, err = client.CoreV1().Nodes().Patch(ctx, nodes[0].Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "the node's resources follow its label", func() error { return offers(client, nodes[0].Name, contract.ResourceTopologyGPU, 0) })
	require.NoError(t, offers(client, nodes[0].Name, contract.ResourceGPUMemory, 120))
	assert.NoError(t, offers(client, nodes[1].Name, contract.ResourceTopologyGPU, 8))

	spec := v100Pool("becomes", 2)
	spec.KubernetesConfig.Taints = []acs.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
	modified, err := cloud.ModifyNodePool(ctx, cluster, created.PoolID, spec, acs.ModifyOptions{UpdateNodes: true})
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, modified.TaskID, nil)
	require.NoError(t, err)
	eventually(t, "the update repairs the label", func() error { return offers(client, nodes[0].Name, contract.ResourceTopologyGPU, 8) })
	repaired, err := client.CoreV1().Nodes().Get(ctx, nodes[0].Name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "yes", repaired.Labels["mine"], "labels of others stay")
	assert.Equal(t, []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}, repaired.Spec.Taints)

	deleted, err := cloud.DeleteNodePool(ctx, cluster, created.PoolID, true)
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, deleted.TaskID, nil)
	require.NoError(t, err)
	assert.Empty(t, nodesOf(t, client, "becomes"))
	for _, node := range nodes {
		assert.NoFileExists(t, filepath.Join(platform.Dir, "hardware", node.Name+".json"))
	}
}

func TestPoolsSurviveRestart(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	i.must("up")
	env := i.env()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cloud := cloudClient(t, env)
	finished, err := cloud.CreateNodePool(ctx, env["GPUPLAN_CLUSTER_ID"], v100Pool("finished", 1))
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, finished.TaskID, nil)
	require.NoError(t, err)
	cut, err := cloud.CreateNodePool(ctx, env["GPUPLAN_CLUSTER_ID"], v100Pool("cut", 1))
	require.NoError(t, err)

	i.must("down")
	i.must("up")
	require.Equal(t, env, i.env())
	_, err = cloud.WaitTask(ctx, cut.TaskID, nil)
	require.NoError(t, err, "a task that was cut off goes on")
	pools, err := cloud.ListNodePools(ctx, env["GPUPLAN_CLUSTER_ID"])
	require.NoError(t, err)
	require.Len(t, pools, 2)
	for _, pool := range pools {
		assert.Equal(t, acs.PoolActive, pool.Status.State)
		assert.Len(t, nodesOf(t, i.client(), pool.Info.Name), 1)
	}
}

func TestDrainHonoursDisruptionBudgets(t *testing.T) {
	platform := localtest.Start(t)
	cloud, client := cloudClient(t, platform.Env), platform.Client(t)
	cluster := platform.Env["GPUPLAN_CLUSTER_ID"]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	created, err := cloud.CreateNodePool(ctx, cluster, v100Pool("drained", 1))
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, created.TaskID, nil)
	require.NoError(t, err)

	guarded(t, client, nodesOf(t, client, "drained")[0].Name)
	deleted, err := cloud.DeleteNodePool(ctx, cluster, created.PoolID, true)
	require.NoError(t, err)
	eventually(t, "the node is cordoned", func() error {
		if nodes := nodesOf(t, client, "drained"); !nodes[0].Spec.Unschedulable {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	require.NoError(t, hasPhase(client, "guarded", corev1.PodRunning))

	require.NoError(t, client.PolicyV1().PodDisruptionBudgets("default").Delete(ctx, "guard", metav1.DeleteOptions{}))
	_, err = cloud.WaitTask(ctx, deleted.TaskID, nil)
	require.NoError(t, err)
	assert.Empty(t, nodesOf(t, client, "drained"))
}

// Who may ask the service reaches the cluster with what it answers, as gpuplan_kubeconfig does.
func TestKubeconfigOfTheService(t *testing.T) {
	platform := localtest.Start(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	got, err := cloudClient(t, platform.Env).UserKubeconfig(ctx, platform.Env["GPUPLAN_CLUSTER_ID"], 15, false)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(got.Config))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	assert.NoError(t, err)
}
