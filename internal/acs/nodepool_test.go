package acs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

func TestPoolFromCreateToDelete(t *testing.T) {
	_, c := both(t, nil)
	ctx := t.Context()
	want := spec("v100", 2)
	// What the service decides otherwise.
	want.ScalingGroup.InstanceChargeType, want.ScalingGroup.SpotStrategy, want.ScalingGroup.RAMRoleName = "PostPaid", "NoSpot", "workers"
	want.ScalingGroup.MultiAZPolicy, want.ScalingGroup.ScalingPolicy = "BALANCE", "release"
	started, err := c.CreateNodePool(ctx, cluster, want)
	require.NoError(t, err)
	require.NotEmpty(t, started.PoolID)

	var seen []string
	task, err := c.WaitTask(ctx, started.TaskID, func(p acs.Progress) { seen = append(seen, p.String()) })
	require.NoError(t, err)
	assert.Equal(t, started.PoolID, task.Target.ID)
	require.NotEmpty(t, seen)
	for _, line := range seen {
		assert.Contains(t, line, "task "+started.TaskID)
	}
	assert.Contains(t, strings.Join(seen, "\n"), "register_nodes, Wait for 2 nodes to register.")
	assert.Contains(t, seen[len(seen)-1], "success")

	pool, err := c.WaitNodePool(ctx, cluster, started.PoolID, 2, nil)
	require.NoError(t, err)
	assert.Equal(t, acs.PoolActive, pool.Status.State)
	assert.Equal(t, int64(2), pool.Status.Healthy)
	assert.Equal(t, "ess", pool.Info.Type)
	assert.Equal(t, "cn-local", pool.Info.RegionID)
	assert.ElementsMatch(t, want.KubernetesConfig.Labels, pool.KubernetesConfig.Labels)
	assert.Equal(t, want.KubernetesConfig.Taints, pool.KubernetesConfig.Taints)
	assert.Equal(t, want.ScalingGroup, pool.ScalingGroup)
	assert.Empty(t, pool.ScalingGroup.Rest)

	nodes, err := c.ListNodes(ctx, cluster, started.PoolID)
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	assert.Equal(t, "cn-local.10.0.1.1", nodes[0].Name)
	assert.Equal(t, "cn-local.10.0.1.2", nodes[1].Name)
	assert.Equal(t, "Ready", nodes[0].Status)
	assert.Equal(t, "ecs.gn6v-c10g1.20xlarge", nodes[0].InstanceType)

	larger := spec("v100", 3)
	changed, err := c.ModifyNodePool(ctx, cluster, started.PoolID, larger, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, changed.TaskID, nil)
	require.NoError(t, err)
	_, err = c.WaitNodePool(ctx, cluster, started.PoolID, 3, nil)
	require.NoError(t, err)

	smaller := spec("v100", 1)
	changed, err = c.ModifyNodePool(ctx, cluster, started.PoolID, smaller, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, changed.TaskID, nil)
	require.NoError(t, err)
	nodes, err = c.ListNodes(ctx, cluster, started.PoolID)
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	assert.Equal(t, "cn-local.10.0.1.1", nodes[0].Name)

	pools, err := c.ListNodePools(ctx, cluster)
	require.NoError(t, err)
	require.Len(t, pools, 1)

	deleted, err := c.DeleteNodePool(ctx, cluster, started.PoolID, true)
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, deleted.TaskID, nil)
	require.NoError(t, err)
	require.NoError(t, c.WaitNodePoolGone(ctx, cluster, started.PoolID, nil))
	_, err = c.GetNodePool(ctx, cluster, started.PoolID)
	assert.True(t, acs.IsNotFound(err))
	assert.Equal(t, "ErrorNodePoolNotFound", acs.Code(err))

	again, err := c.DeleteNodePool(ctx, cluster, started.PoolID, true)
	require.NoError(t, err, "deleting what is gone is success")
	assert.Empty(t, again.TaskID)

	// A number is not used twice: the next pool's nodes have names of their own.
	id := create(t, c, spec("v100", 1))
	nodes, err = c.ListNodes(ctx, cluster, id)
	require.NoError(t, err)
	assert.Equal(t, "cn-local.10.0.2.1", nodes[0].Name)
}

func TestListNodesReadsAllPages(t *testing.T) {
	_, c := both(t, nil)
	id := create(t, c, spec("many", 250))
	nodes, err := c.ListNodes(t.Context(), cluster, id)
	require.NoError(t, err)
	require.Len(t, nodes, 250)
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
	}
	assert.Len(t, names, 250)
}

// recorder is a backend that remembers.
type recorder struct {
	mu    sync.Mutex
	nodes map[string]acsfake.Node
}

func (r *recorder) EnsureNode(_ context.Context, n acsfake.Node) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[n.Name] = n
	return nil
}

func (r *recorder) UpdateNode(ctx context.Context, _, n acsfake.Node) error {
	return r.EnsureNode(ctx, n)
}

func (r *recorder) DeleteNode(_ context.Context, n acsfake.Node) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, n.Name)
	return nil
}

func TestLabelsReachNodesOnlyWithUpdateNodes(t *testing.T) {
	backend := &recorder{nodes: map[string]acsfake.Node{}}
	_, c := both(t, func(o *acsfake.Options) { o.Backend = backend })
	id := create(t, c, spec("v100", 2))
	mode := func() (modes []string) {
		backend.mu.Lock()
		defer backend.mu.Unlock()
		for _, n := range backend.nodes {
			modes = append(modes, n.Mode+"="+n.Labels["ack.node.gpu.schedule"])
		}
		sort.Strings(modes)
		return modes
	}
	assert.Equal(t, []string{"topology=topology", "topology=topology"}, mode())

	changed := spec("v100", 2)
	changed.KubernetesConfig.Labels = []acs.Label{{Key: "ack.node.gpu.schedule", Value: "cgpu"}}
	changed.KubernetesConfig.Taints = nil
	for _, tc := range []struct {
		update bool
		want   []string
		taints int
	}{{false, []string{"topology=topology", "topology=topology"}, 1}, {true, []string{"cgpu=cgpu", "cgpu=cgpu"}, 0}} {
		started, err := c.ModifyNodePool(t.Context(), cluster, id, changed, acs.ModifyOptions{UpdateNodes: tc.update})
		require.NoError(t, err)
		_, err = c.WaitTask(t.Context(), started.TaskID, nil)
		require.NoError(t, err)
		assert.Equal(t, tc.want, mode())
		for _, n := range backend.nodes {
			assert.Len(t, n.Taints, tc.taints)
		}
		pool, err := c.GetNodePool(t.Context(), cluster, id)
		require.NoError(t, err)
		assert.Equal(t, changed.KubernetesConfig.Labels, pool.KubernetesConfig.Labels, "the pool's record has it at once")
		assert.Empty(t, pool.KubernetesConfig.Taints, "an empty list clears")
	}
}

// Read, change, write: settings that the client does not know survive, and the masked
// password is not sent as the new one.
func TestChangesKeepWhatTheClientDoesNotKnow(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	first := spec("v100", 0)
	first.ScalingGroup.LoginPassword = "Hunter2!"
	first.ScalingGroup.Rest = acs.Rest{"internet_max_bandwidth_out": json.RawMessage("5")}
	first.KubernetesConfig.Rest = acs.Rest{"host_network": json.RawMessage(`"cHJl"`)}
	first.Management.Rest = acs.Rest{"upgrade_config": json.RawMessage(`{"surge":1}`)}
	first.AutoScaling.Rest = acs.Rest{"is_bond_eip": json.RawMessage("false")}
	id := create(t, c, first)

	read, err := c.GetNodePool(ctx, cluster, id)
	require.NoError(t, err)
	assert.Empty(t, read.ScalingGroup.LoginPassword)
	assert.Equal(t, first.ScalingGroup.Rest, read.ScalingGroup.Rest)
	read.KubernetesConfig.Labels = nil
	started, err := c.ModifyNodePool(ctx, cluster, id, read.NodePoolSpec, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, started.TaskID, nil)
	require.NoError(t, err)

	again, err := c.GetNodePool(ctx, cluster, id)
	require.NoError(t, err)
	assert.Equal(t, first.ScalingGroup.Rest, again.ScalingGroup.Rest)
	assert.Equal(t, first.KubernetesConfig.Rest, again.KubernetesConfig.Rest)
	assert.Equal(t, first.Management.Rest, again.Management.Rest)
	assert.Equal(t, first.AutoScaling.Rest, again.AutoScaling.Rest)
	assert.Empty(t, again.KubernetesConfig.Labels)
	for _, e := range fake.Journal() {
		if e.Method == http.MethodPut {
			assert.NotContains(t, e.Body, "login_password")
			assert.NotContains(t, e.Body, "scaling_group_id")
		}
	}
}

// The kubelet's configuration is created with a pool and changed apart from it.
func TestNodeConfig(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	first := spec("v100", 1)
	pods := int64(110)
	first.NodeConfig.Kubelet = &acs.KubeletConfig{CPUManagerPolicy: "static", MaxPods: &pods, Rest: acs.Rest{"eventBurst": json.RawMessage("5")}}
	id := create(t, c, first)
	read, err := c.GetNodePool(ctx, cluster, id)
	require.NoError(t, err)
	assert.Equal(t, first.NodeConfig, read.NodeConfig)

	_, err = c.ModifyNodePool(ctx, cluster, id, read.NodePoolSpec, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitNodePool(ctx, cluster, id, 1, nil)
	require.NoError(t, err)
	for _, e := range fake.Journal() {
		if e.Method == http.MethodPut {
			assert.NotContains(t, e.Body, "node_config")
		}
	}
	read.NodeConfig.Kubelet.CPUManagerPolicy = "none"
	started, err := c.ModifyNodeConfig(ctx, cluster, id, read.NodeConfig, 2)
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, started.TaskID, nil)
	require.NoError(t, err)
	again, err := c.GetNodePool(ctx, cluster, id)
	require.NoError(t, err)
	assert.Equal(t, read.NodeConfig, again.NodeConfig)
	_, err = c.ModifyNodeConfig(ctx, cluster, id, acs.NodeConfig{Kubelet: &acs.KubeletConfig{CPUManagerPolicy: "fast"}}, 0)
	assert.ErrorContains(t, err, "none, static")
}

// Nodes that are named go, with their instances, and no others come for them.
func TestRemoveNodes(t *testing.T) {
	_, c := both(t, nil)
	ctx := t.Context()
	id := create(t, c, spec("v100", 3))
	nodes, err := c.ListNodes(ctx, cluster, id)
	require.NoError(t, err)
	for range 2 { // what has gone is passed over
		started, err := c.RemoveNodes(ctx, cluster, id, []string{nodes[1].InstanceID})
		require.NoError(t, err)
		_, err = c.WaitTask(ctx, started.TaskID, nil)
		require.NoError(t, err)
		pool, err := c.WaitNodePool(ctx, cluster, id, 2, nil)
		require.NoError(t, err)
		assert.Equal(t, int64(2), *pool.ScalingGroup.DesiredSize)
	}
	left, err := c.ListNodes(ctx, cluster, id)
	require.NoError(t, err)
	assert.Equal(t, []string{nodes[0].Name, nodes[2].Name}, []string{left[0].Name, left[1].Name})
	_, err = c.RemoveNodes(ctx, cluster, id, nil)
	assert.ErrorContains(t, err, "instance_ids must be")
}

// A type that is out of stock is passed over.
func TestInstanceTypesAreTriedInTheirOrder(t *testing.T) {
	fake, c := both(t, nil)
	pool := spec("v100", 1)
	pool.ScalingGroup.InstanceTypes = []string{"ecs.gn6v-c10g1.20xlarge", "ecs.ebmgn6v.24xlarge"}
	id := create(t, c, pool)
	fake.SetKnobs(acsfake.Knobs{OutOfStock: []string{"ecs.gn6v-c10g1.20xlarge"}})
	*pool.ScalingGroup.DesiredSize = 2
	started, err := c.ModifyNodePool(t.Context(), cluster, id, pool, acs.ModifyOptions{UpdateNodes: true})
	require.NoError(t, err)
	_, err = c.WaitTask(t.Context(), started.TaskID, nil)
	require.NoError(t, err)
	var types []string
	for _, n := range fake.Nodes() {
		types = append(types, n.InstanceType)
		assert.Equal(t, n.InstanceType, n.Labels["node.kubernetes.io/instance-type"])
	}
	assert.Equal(t, pool.ScalingGroup.InstanceTypes, types)
	fake.SetKnobs(acsfake.Knobs{OutOfStock: pool.ScalingGroup.InstanceTypes})
	*pool.ScalingGroup.DesiredSize = 3
	started, err = c.ModifyNodePool(t.Context(), cluster, id, pool, acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitTask(t.Context(), started.TaskID, nil)
	assert.ErrorContains(t, err, "InstanceTypeNoStock")
}

func TestPoolNamesAreUniqueForTheClient(t *testing.T) {
	fake, c := both(t, nil)
	create(t, c, spec("v100", 0))
	_, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 1))
	var exists *acs.PoolExistsError
	require.ErrorAs(t, err, &exists)
	assert.ErrorContains(t, err, fake.State().Pools[0].ID)
	assert.Len(t, fake.State().Pools, 1)

	twice := fake.State()
	second := *twice.Pools[0]
	second.ID = "np-second"
	twice.Pools = append(twice.Pools, &second)
	_, url := emulator(t, func(o *acsfake.Options) { o.State = &twice })
	_, err = client(t, url, nil).FindNodePool(t.Context(), cluster, "v100")
	assert.ErrorContains(t, err, "two node pools")
	var namesakes *acs.NamesakesError
	require.ErrorAs(t, err, &namesakes)
	assert.Equal(t, "np-second", namesakes.Pools[1].Info.ID)
}

func TestDeleteWithoutForce(t *testing.T) {
	_, c := both(t, nil)
	ctx := t.Context()
	id := create(t, c, spec("v100", 2))
	started, err := c.DeleteNodePool(ctx, cluster, id, false)
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, started.TaskID, nil)
	assert.ErrorContains(t, err, "scaling group's instances not empty")
	err = c.WaitNodePoolGone(ctx, cluster, id, nil)
	assert.ErrorContains(t, err, "could not be deleted: TaskFailed: scaling group's instances not empty")
	_, err = c.WaitNodePool(ctx, cluster, id, 2, nil)
	assert.ErrorContains(t, err, "not empty")
	_, err = c.WaitNodePool(ctx, cluster, id, -1, nil)
	require.NoError(t, err, "it is idle")

	changed, err := c.ModifyNodePool(ctx, cluster, id, spec("v100", 0), acs.ModifyOptions{})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, changed.TaskID, nil)
	require.NoError(t, err)
	started, err = c.DeleteNodePool(ctx, cluster, id, false)
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, started.TaskID, nil)
	require.NoError(t, err)
	require.NoError(t, c.WaitNodePoolGone(ctx, cluster, id, nil))
}

func TestBlockedDrainForbidsChanges(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	id := create(t, c, spec("v100", 2))
	fake.SetKnobs(acsfake.Knobs{DrainBlocked: true})
	started, err := c.ModifyNodePool(ctx, cluster, id, spec("v100", 1), acs.ModifyOptions{})
	require.NoError(t, err)
	waiting, stop := context.WithCancel(ctx)
	_, err = c.WaitTask(waiting, started.TaskID, func(p acs.Progress) {
		if strings.Contains(p.Message, "disruption budget") {
			stop()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.ModifyNodePool(ctx, cluster, id, spec("v100", 3), acs.ModifyOptions{})
	assert.Equal(t, "InvalidNodePoolStatus.Forbidden", acs.Code(err))
	_, err = c.DeleteNodePool(ctx, cluster, id, true)
	assert.Equal(t, "InvalidNodePoolStatus.Forbidden", acs.Code(err))
	fake.SetKnobs(acsfake.Knobs{})
	_, err = c.WaitTask(ctx, started.TaskID, nil)
	require.NoError(t, err)
}

// A delete that was repeated, after a lost answer or by the user, finds the pool in deletion.
func TestDeleteTwice(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	id := create(t, c, spec("v100", 2))
	fake.SetKnobs(acsfake.Knobs{DrainBlocked: true})
	_, err := c.DeleteNodePool(ctx, cluster, id, true)
	require.NoError(t, err)
	again, err := c.DeleteNodePool(ctx, cluster, id, true)
	require.NoError(t, err)
	assert.Equal(t, acs.Started{PoolID: id}, again)
	fake.SetKnobs(acsfake.Knobs{})
	require.NoError(t, c.WaitNodePoolGone(ctx, cluster, id, nil))
}

func TestManagementNeedsItsAddon(t *testing.T) {
	fake, c := both(t, nil)
	id := create(t, c, spec("managed", 0))
	task, err := c.UninstallAddon(t.Context(), cluster, "ack-node-problem-detector")
	require.NoError(t, err)
	_, err = c.WaitTask(t.Context(), task, nil)
	require.NoError(t, err)
	managed := spec("managed", 0)
	managed.Management.Enable = true
	_, err = c.ModifyNodePool(t.Context(), cluster, id, managed, acs.ModifyOptions{})
	assert.Equal(t, "InvalidParameter.Management", acs.Code(err))

	fake.SetKnobs(acsfake.Knobs{NoOOSRole: true})
	_, err = c.ModifyNodePool(t.Context(), cluster, id, spec("managed", 1), acs.ModifyOptions{})
	assert.ErrorContains(t, err, "grant the service role")
}

func TestOneClientFromManyGoroutines(t *testing.T) {
	_, c := both(t, nil)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			name := fmt.Sprintf("pool-%d", i)
			started, err := c.CreateNodePool(t.Context(), cluster, spec(name, 2))
			if assert.NoError(t, err) {
				_, err = c.WaitNodePool(t.Context(), cluster, started.PoolID, 2, nil)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	pools, err := c.ListNodePools(t.Context(), cluster)
	require.NoError(t, err)
	assert.Len(t, pools, 10)
}
