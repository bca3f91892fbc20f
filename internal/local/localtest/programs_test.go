package localtest_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

func TestOwnProgramsRun(t *testing.T) {
	platform := localtest.Start(t)
	cloud, client := cloudClient(t, platform.Env), platform.Client(t)
	cluster := platform.Env["GPUPLAN_CLUSTER_ID"]
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	access, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	agentObjects, err := agent.Objects(agent.Options{Image: "example.com/agent:1"})
	require.NoError(t, err)
	port := localtest.FreePort(t)
	schedulerObjects, err := scheduler.Objects(scheduler.Options{Image: "example.com/scheduler:1", Port: port, Replicas: 2})
	require.NoError(t, err)
	objects = append(append(objects, agentObjects...), schedulerObjects...)
	require.NoError(t, access.ApplyAll(ctx, objects, nil))

	created, err := cloud.CreateNodePool(ctx, cluster, v100Pool("programs", 2))
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, created.TaskID, nil)
	require.NoError(t, err)

	for _, name := range []string{contract.SchedulerName, contract.QueueControllerName} {
		eventually(t, "two of "+name+" are available, with the same port", func() error {
			deployment, err := client.AppsV1().Deployments(contract.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && deployment.Status.AvailableReplicas != 2 {
				err = fmt.Errorf("%+v", deployment.Status)
			}
			return err
		})
	}
	// A listener on all addresses would be in the way.
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.99:%d", port))
	require.NoError(t, err)
	require.NoError(t, other.Close())

	kind := schema.GroupVersionKind{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Kind: contract.GPUNodeKind}
	for _, node := range nodesOf(t, client, "programs") {
		eventually(t, "the node agent publishes the GPUs", func() error {
			object, err := access.Get(ctx, kind, "", node.Name)
			if err != nil {
				return err
			}
			if gpus, _, _ := unstructured.NestedSlice(object.Object, "status", "gpus"); len(gpus) != 8 {
				return fmt.Errorf("%d GPUs", len(gpus))
			}
			return nil
		})
	}

	deleted, err := cloud.DeleteNodePool(ctx, cluster, created.PoolID, true)
	require.NoError(t, err)
	_, err = cloud.WaitTask(ctx, deleted.TaskID, nil)
	require.NoError(t, err)
	running := func() []string {
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: contract.PartOfLabel + "=" + contract.PartOfValue})
		require.NoError(t, err)
		var names []string
		for _, pod := range pods.Items {
			names = append(names, pod.Labels[contract.NameLabel])
		}
		slices.Sort(names)
		return names
	}
	eventually(t, "the agent's pods go with their nodes", func() error {
		left := running()
		if !slices.Equal(left, []string{contract.QueueControllerName, contract.QueueControllerName, contract.SchedulerName, contract.SchedulerName}) {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
	require.NoError(t, access.DeleteAll(ctx, objects, nil))
	assert.Empty(t, running())
	for _, namespace := range []string{contract.SystemNamespace, contract.QueueNamespace} {
		_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		assert.True(t, kube.IsNotFound(err), "nothing of others is in %s: %v", namespace, err)
	}
}
