package nodepool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// resized changes the size of the pool at the service, as someone does in the console.
func resized(t *testing.T, cloud *acctest.Cloud, size int64) {
	t.Helper()
	client, has := service(t, cloud), record(t, cloud)
	has.ScalingGroup.DesiredSize = &size
	started, err := client.ModifyNodePool(t.Context(), acctest.ClusterID, has.Info.ID, has.NodePoolSpec, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = client.WaitTask(t.Context(), started.TaskID, nil)
	require.NoError(t, err)
}

// A plan that does not know the size of today takes nodes away from nobody: neither one that is older, nor one
// without a refresh.
func TestPoolThatWasResizedMeanwhile(t *testing.T) {
	const other = "Node pool v100 had 2 nodes when the state was read by which this change is planned, and has 4 now"
	for name, test := range map[string]struct {
		after string
		says  string
	}{
		"grown":          {"size = 3", other},
		"shrunk":         {"size = 1\n  remove_nodes = [\"cn-hangzhou.10.0.1.2\"]", other},
		"other labels":   {"size = 2\n  labels = { a = \"b\" }", other},
		"settings alone": {"size = 2\n  timeouts = { update = \"30m\" }", "1 changed"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith("size = 2"))
			cli.Apply(t, 1, 0, 0)
			cli.Write(t, poolWith(test.after))
			cli.Must(t, "plan", "-out=saved")
			resized(t, cloud, 4)
			for _, node := range cloud.NodeNames(t) {
				if node != "cn-hangzhou.10.0.1.2" { // which the plan names
					cloud.Put(t, acctest.GangPod("trainer", "trainer-"+node, node, 0))
				}
			}
			said, err := cli.Run("apply", "saved")
			assert.Equal(t, test.says == other, err != nil, said)
			assert.Contains(t, acctest.Unwrapped(said), test.says)
			said, _ = cli.Run("apply", "-auto-approve", "-refresh=false")
			assert.Len(t, cloud.NodeNames(t), 4, said)
			assert.EqualValues(t, 4, *record(t, cloud).ScalingGroup.DesiredSize, said)
		})
	}
}

// A node that the service has replaced since it was chosen to go leaves no other one in danger.
func TestChosenNodeThatHasGoneMeanwhile(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith("size = 2"))
	cli.Apply(t, 1, 0, 0)
	cli.Write(t, poolWith("size = 1\n  remove_nodes = [\""+nodeNumber(1)+"\"]"))
	cli.Must(t, "plan", "-out=saved")
	client, poolID := service(t, cloud), record(t, cloud).Info.ID
	listed, err := client.ListNodes(t.Context(), acctest.ClusterID, poolID)
	require.NoError(t, err)
	for _, node := range listed {
		if node.Name == nodeNumber(1) {
			started, err := client.RemoveNodes(t.Context(), acctest.ClusterID, poolID, []string{node.InstanceID})
			require.NoError(t, err)
			_, err = client.WaitTask(t.Context(), started.TaskID, nil)
			require.NoError(t, err)
		}
	}
	resized(t, cloud, 2)
	now := cloud.NodeNames(t)
	require.Len(t, now, 2)
	require.NotContains(t, now, nodeNumber(1))
	for _, node := range now {
		cloud.Put(t, acctest.GangPod("trainer", "trainer-"+node, node, 0))
	}
	said, err := cli.Run("apply", "saved")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "The service has no node "+nodeNumber(1)+" in node pool v100 any more")
	assert.Equal(t, now, cloud.NodeNames(t))
	said, err = cli.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "remove_nodes names none of the pool's nodes")
	assert.Equal(t, now, cloud.NodeNames(t))
}

// Jobs that start while the service is busy with a pool are seen: they are looked for when it is done.
func TestJobsThatStartWhileThePoolIsBusy(t *testing.T) {
	for name, change := range map[string]func(*acctest.CLI) (string, error){
		"shrunk": func(cli *acctest.CLI) (string, error) {
			cli.Write(t, poolWith("size = 0"))
			return cli.Run("apply", "-auto-approve")
		},
		"deleted": func(cli *acctest.CLI) (string, error) { return cli.Run("destroy", "-auto-approve") },
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(""))
			cli.Apply(t, 1, 0, 0)
			cloud.ACS.SetKnobs(acsfake.Knobs{ExtraTaskDuration: 5 * time.Second})
			has := record(t, cloud)
			has.KubernetesConfig.Labels = append(has.KubernetesConfig.Labels, acs.Label{Key: "a", Value: "b"})
			_, err := service(t, cloud).ModifyNodePool(t.Context(), acctest.ClusterID, has.Info.ID, has.NodePoolSpec, acs.ModifyOptions{})
			require.NoError(t, err)
			go func() {
				time.Sleep(2 * time.Second)
				cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))
			}()
			said, err := change(cli)
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), "there are running jobs that would lose their nodes: default/trainer")
			assert.Len(t, cloud.NodeNames(t), 1)
		})
	}
}
