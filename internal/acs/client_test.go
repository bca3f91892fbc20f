package acs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

const (
	cluster = "c0123456789"
	keyID   = "LTAI-test"
	secret  = "a-secret-that-must-not-be-printed"
)

// emulator starts an emulator with short tasks.
func emulator(t *testing.T, change func(*acsfake.Options)) (*acsfake.Server, string) {
	t.Helper()
	opts := acsfake.Options{
		ClusterID: cluster, Region: "cn-local", KubernetesVersion: "1.36.3-aliyun.1",
		AccessKeyID: keyID, AccessKeySecret: secret, TaskDuration: 4 * time.Millisecond,
	}
	if change != nil {
		change(&opts)
	}
	fake, err := acsfake.New(opts)
	require.NoError(t, err)
	web := httptest.NewServer(fake)
	t.Cleanup(func() { web.Close(); fake.Close() })
	return fake, web.URL
}

func client(t *testing.T, endpoint string, change func(*acs.Config)) *acs.Client {
	t.Helper()
	cfg := acs.Config{
		Credentials: acs.Credentials{AccessKeyID: keyID, AccessKeySecret: secret},
		Region:      "cn-local", Endpoint: endpoint, UserAgent: "gpuplan-test",
		PollInterval: time.Millisecond, RetryDelay: time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	c, err := acs.New(cfg)
	require.NoError(t, err)
	return c
}

func both(t *testing.T, change func(*acsfake.Options)) (*acsfake.Server, *acs.Client) {
	t.Helper()
	fake, url := emulator(t, change)
	return fake, client(t, url, nil)
}

func spec(name string, size int64) acs.NodePoolSpec {
	return acs.NodePoolSpec{
		Info: acs.NodePoolInfo{Name: name},
		ScalingGroup: acs.ScalingGroup{
			InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &size,
			SystemDiskCategory: "cloud_essd", SystemDiskSize: 120,
			DataDisks: []acs.DataDisk{{Category: "cloud_essd", Size: 200, Encrypted: "true"}},
			Tags:      []acs.Tag{{Key: "team", Value: "vision"}},
		},
		KubernetesConfig: acs.KubernetesConfig{
			Labels: []acs.Label{{Key: "ack.node.gpu.schedule", Value: "topology"}, {Key: "gpuplan.dev/pool", Value: name}},
			Taints: []acs.Taint{{Key: "gpu", Value: "v100", Effect: "NoSchedule"}},
		},
	}
}

// create makes a pool and waits for it.
func create(t *testing.T, c *acs.Client, s acs.NodePoolSpec) string {
	t.Helper()
	started, err := c.CreateNodePool(t.Context(), cluster, s)
	require.NoError(t, err)
	_, err = c.WaitTask(t.Context(), started.TaskID, nil)
	require.NoError(t, err)
	_, err = c.WaitNodePool(t.Context(), cluster, started.PoolID, *s.ScalingGroup.DesiredSize, nil)
	require.NoError(t, err)
	return started.PoolID
}

func TestPoolFromCreateToDelete(t *testing.T) {
	_, c := both(t, nil)
	ctx := t.Context()
	want := spec("v100", 2)
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
	first.KubernetesConfig.Rest = acs.Rest{"pre_user_data": json.RawMessage(`"cHJl"`)}
	first.Management.Rest = acs.Rest{"auto_repair_policy": json.RawMessage(`{"restart_node":true}`)}
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

func TestCredentialsThatAreWrong(t *testing.T) {
	_, url := emulator(t, nil)
	for _, tc := range []struct {
		name, code  string
		credentials acs.Credentials
	}{
		{"unknown key", "InvalidAccessKeyId.NotFound", acs.Credentials{AccessKeyID: "nobody", AccessKeySecret: secret}},
		{"wrong secret", "SignatureDoesNotMatch", acs.Credentials{AccessKeyID: keyID, AccessKeySecret: "wrong-secret-text", SecurityToken: "sts-token-text"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := client(t, url, func(cfg *acs.Config) { cfg.Credentials = tc.credentials })
			_, err := c.GetCluster(t.Context(), cluster)
			require.Error(t, err)
			assert.Equal(t, tc.code, acs.Code(err))
			assert.True(t, acs.IsCredentials(err))
			assert.False(t, acs.IsNotFound(err), "a key that is not found is no missing object")
			assert.ErrorContains(t, err, "ALIBABA_CLOUD_ACCESS_KEY_SECRET")
			for _, hidden := range []string{tc.credentials.AccessKeySecret, "sts-token-text"} {
				assert.NotContains(t, err.Error(), hidden)
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", tc.credentials, tc.credentials, tc.credentials), hidden)
			}
		})
	}
}

func TestRetries(t *testing.T) {
	count := func(fake *acsfake.Server, method string) (n int) {
		for _, e := range fake.Journal() {
			if e.Method == method {
				n++
			}
		}
		return n
	}
	t.Run("throttled requests are repeated", func(t *testing.T) {
		fake, c := both(t, nil)
		fake.SetKnobs(acsfake.Knobs{Throttle: 2})
		_, err := c.GetCluster(t.Context(), cluster)
		require.NoError(t, err)
		assert.Equal(t, 3, count(fake, "GET"))
		fake.SetKnobs(acsfake.Knobs{Throttle: 1})
		require.NoError(t, c.ModifyAddon(t.Context(), cluster, "kube-scheduler", `{"enableReservation":true}`))
		assert.Equal(t, 2, count(fake, "POST"))
	})
	t.Run("throttling without end is an error", func(t *testing.T) {
		fake, c := both(t, nil)
		fake.SetKnobs(acsfake.Knobs{Throttle: 100})
		_, err := c.GetCluster(t.Context(), cluster)
		assert.True(t, acs.IsThrottled(err), "%v", err)
		assert.Equal(t, 4, count(fake, "GET"))
	})
	t.Run("reads are repeated when the service fails", func(t *testing.T) {
		fake, c := both(t, nil)
		fake.SetKnobs(acsfake.Knobs{Unavailable: 3})
		_, err := c.GetCluster(t.Context(), cluster)
		require.NoError(t, err)
	})
	t.Run("changes by POST are not", func(t *testing.T) {
		fake, c := both(t, nil)
		fake.SetKnobs(acsfake.Knobs{Unavailable: 1})
		err := c.ModifyAddon(t.Context(), cluster, "kube-scheduler", `{}`)
		assert.Equal(t, "ServiceUnavailable", acs.Code(err))
		assert.Equal(t, 1, count(fake, "POST"))
	})
	t.Run("refusals are not repeated", func(t *testing.T) {
		fake, c := both(t, nil)
		_, err := c.GetNodePool(t.Context(), cluster, "np-none")
		assert.True(t, acs.IsNotFound(err))
		assert.Equal(t, 1, count(fake, "GET"))
	})
}

// onPost calls back around POST requests for a pool.
type onPost struct {
	before func(*http.Request) error
	after  func()
}

func (o onPost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && o.before != nil {
		if err := o.before(r); err != nil {
			return nil, err
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if r.Method == http.MethodPost && o.after != nil && err == nil {
		o.after()
		_ = response.Body.Close()
		return nil, r.Context().Err()
	}
	return response, err
}

func TestCreateWhoseAnswerIsLost(t *testing.T) {
	t.Run("the pool is found by its name", func(t *testing.T) {
		fake, c := both(t, nil)
		fake.SetKnobs(acsfake.Knobs{LoseCreateAnswers: 1})
		started, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 2))
		require.NoError(t, err)
		assert.NotEmpty(t, started.PoolID)
		assert.Empty(t, started.TaskID)
		_, err = c.WaitNodePool(t.Context(), cluster, started.PoolID, 2, nil)
		require.NoError(t, err)
		assert.Len(t, fake.State().Pools, 1, "not created twice")
	})
	t.Run("the request got lost", func(t *testing.T) {
		fake, url := emulator(t, nil)
		c := client(t, url, func(cfg *acs.Config) {
			cfg.Transport = onPost{before: func(*http.Request) error { return errors.New("broken pipe") }}
		})
		_, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 2))
		assert.ErrorContains(t, err, "broken pipe")
		assert.ErrorContains(t, err, `no pool named "v100" was created`)
		assert.Empty(t, fake.State().Pools)
	})
	t.Run("interrupted while the answer was on its way", func(t *testing.T) {
		fake, url := emulator(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		c := client(t, url, func(cfg *acs.Config) { cfg.Transport = onPost{after: cancel} })
		started, err := c.CreateNodePool(ctx, cluster, spec("v100", 2))
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, fake.State().Pools, 1)
		assert.Equal(t, fake.State().Pools[0].ID, started.PoolID, "the caller can save it")
	})
	t.Run("the service failed before it did anything", func(t *testing.T) {
		fake, url := emulator(t, nil)
		c := client(t, url, func(cfg *acs.Config) {
			cfg.Transport = onPost{before: func(*http.Request) error { fake.SetKnobs(acsfake.Knobs{Unavailable: 1}); return nil }}
		})
		_, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 2))
		assert.Equal(t, "ServiceUnavailable", acs.Code(err))
		assert.ErrorContains(t, err, "no pool")
	})
}

func TestPoolNamesAreUniqueForTheClient(t *testing.T) {
	fake, c := both(t, nil)
	create(t, c, spec("v100", 0))
	_, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 1))
	require.ErrorIs(t, err, acs.ErrPoolExists)
	assert.ErrorContains(t, err, fake.State().Pools[0].ID)
	assert.Len(t, fake.State().Pools, 1)

	twice := fake.State()
	second := *twice.Pools[0]
	second.ID = "np-second"
	twice.Pools = append(twice.Pools, &second)
	_, url := emulator(t, func(o *acsfake.Options) { o.State = &twice })
	_, err = client(t, url, nil).FindNodePool(t.Context(), cluster, "v100")
	assert.ErrorContains(t, err, "two node pools")
}

func TestTaskThatFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault acsfake.Fault
		want  []string
	}{
		{"no stock", acsfake.NoStock, []string{"InstanceTypeNoStock", "register_nodes", "another instance type"}},
		{"no quota", acsfake.NoQuota, []string{"QuotaExceed.ElasticQuota", "raise the account's quota"}},
		{"no addresses", acsfake.NoIPs, []string{"InvalidVSwitchId.IpNotEnough", "add a vSwitch"}},
		{"other spelling", acsfake.Fault{Code: "X", Message: "y", State: "fail"}, []string{`ended as "fail"`, "X: y"}},
		{"hidden in a result", acsfake.Fault{Code: "X", Message: "y", Hidden: true}, []string{"failed for", "X: y"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake, c := both(t, nil)
			fault := tc.fault
			fault.NodesBefore = 1
			fake.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{fault}})
			started, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 3))
			require.NoError(t, err, "not an error of the request")
			_, err = c.WaitTask(t.Context(), started.TaskID, nil)
			var failed *acs.TaskError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, started.TaskID, failed.Task.ID)
			for _, want := range tc.want {
				assert.ErrorContains(t, err, want)
			}
			if !tc.fault.Hidden {
				pool, err := c.GetNodePool(t.Context(), cluster, started.PoolID)
				require.NoError(t, err, "the pool is there")
				assert.Equal(t, int64(1), pool.Status.Healthy)
				assert.Contains(t, pool.Status.Conditions[0].Message, tc.fault.Code)
			}
		})
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	fake, c := both(t, nil)
	fake.SetKnobs(acsfake.Knobs{ExtraTaskDuration: time.Hour})
	started, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 1))
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = c.WaitTask(ctx, started.TaskID, func(acs.Progress) { cancel(errors.New("enough")) })
	require.Error(t, err)
	assert.ErrorContains(t, err, "task "+started.TaskID)
	assert.ErrorContains(t, err, "create_scaling_group")
	assert.ErrorContains(t, err, "enough")

	done, stop := context.WithCancel(t.Context())
	stop()
	_, err = c.WaitNodePool(done, cluster, started.PoolID, 1, nil)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestWaitReportsErrorsAtOnce(t *testing.T) {
	_, c := both(t, nil)
	_, err := c.WaitTask(t.Context(), "T-none", nil)
	assert.True(t, acs.IsNotFound(err), "%v", err)
	_, err = c.WaitNodePool(t.Context(), cluster, "np-none", 1, nil)
	assert.True(t, acs.IsNotFound(err), "%v", err)
	_, err = c.WaitAddon(t.Context(), cluster, "ack-arena", nil)
	assert.True(t, acs.IsNotFound(err), "%v", err)
	err = c.WaitNodePoolGone(t.Context(), "c-other", "np-none", nil)
	require.NoError(t, err, "a pool of a cluster that is gone is gone")
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

func TestWaitForAPoolThatDoesNotGrowSaysWhy(t *testing.T) {
	fake, c := both(t, nil)
	fake.SetKnobs(acsfake.Knobs{LoseCreateAnswers: 1, TaskFaults: []acsfake.Fault{acsfake.NoStock}})
	started, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 2))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	_, err = c.WaitNodePool(ctx, cluster, started.PoolID, 2, func(p acs.Progress) {
		if strings.Contains(p.Message, "InstanceTypeNoStock") {
			stop()
		}
	})
	assert.ErrorContains(t, err, "active, 0 of 2 nodes healthy, InstanceTypeNoStock")
}

func TestAddons(t *testing.T) {
	fake, c := both(t, nil)
	ctx := t.Context()
	_, err := c.GetAddon(ctx, cluster, "ack-ai-installer")
	require.True(t, acs.IsNotFound(err))

	task, err := c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-erdma-controller", Config: `{"agent":{"preferDriver":"ofed"}}`})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	require.NoError(t, err)
	var seen []acs.Progress
	addon, err := c.WaitAddon(ctx, cluster, "ack-erdma-controller", func(p acs.Progress) { seen = append(seen, p) })
	require.NoError(t, err)
	assert.NotEmpty(t, seen)
	assert.JSONEq(t, `{"agent":{"preferDriver":"ofed","allocateAllDevices":false}}`, addon.Config)
	_, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-erdma-controller"})
	assert.Equal(t, "AddonAlreadyInstalled", acs.Code(err))
	_, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "no-such-addon"})
	assert.True(t, acs.IsNotFound(err))

	// Absent keys stay; an empty value clears.
	for _, step := range []struct{ send, want string }{
		{`{"agent":{"allocateAllDevices":true}}`, `{"agent":{"preferDriver":"ofed","allocateAllDevices":true}}`},
		{`{"agent":{"preferDriver":""}}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true}}`},
		{`{"note":"x"}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true},"note":"x"}`},
		{`{"note":null}`, `{"agent":{"preferDriver":"default","allocateAllDevices":true}}`},
	} {
		require.NoError(t, c.ModifyAddon(ctx, cluster, "ack-erdma-controller", step.send))
		addon, err = c.WaitAddon(ctx, cluster, "ack-erdma-controller", nil)
		require.NoError(t, err)
		assert.JSONEq(t, step.want, addon.Config, step.send)
	}
	err = c.ModifyAddon(ctx, cluster, "ack-erdma-controller", `[]`)
	assert.Equal(t, "InvalidParameter.Config", acs.Code(err))

	list, err := c.ListAddons(ctx, cluster)
	require.NoError(t, err)
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	assert.Contains(t, names, "kube-scheduler")
	assert.Contains(t, names, "ack-erdma-controller")

	task, err = c.UninstallAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	require.NoError(t, err)
	task, err = c.UninstallAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err, "removing what is gone is success")
	assert.Empty(t, task)
	_, err = c.UninstallAddon(ctx, cluster, "kube-scheduler")
	assert.Equal(t, "AddonUninstallNotSupported", acs.Code(err))

	fake.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{{Code: "ChartFailed", Message: "timed out", Hidden: true}}})
	task, err = c.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-arena", Version: "0.15.4"})
	require.NoError(t, err)
	_, err = c.WaitTask(ctx, task, nil)
	assert.ErrorContains(t, err, "ChartFailed", "a failed add-on within a successful task")
	_, err = c.GetAddon(ctx, cluster, "ack-arena")
	assert.True(t, acs.IsNotFound(err))
}

func TestAddonDescriptions(t *testing.T) {
	_, c := both(t, nil)
	info, err := c.DescribeAddon(t.Context(), cluster, "kube-scheduler", "")
	require.NoError(t, err)
	assert.True(t, info.Managed)
	assert.True(t, info.InstallByDefault)
	assert.NotContains(t, info.SupportedActions, "Uninstall")
	assert.Contains(t, info.ConfigSchema, "enableReservation")
	info, err = c.AddonMetadata(t.Context(), cluster, "ack-arena", "0.15.4")
	require.NoError(t, err)
	assert.Equal(t, "0.15.4", info.Version)
	_, err = c.DescribeAddon(t.Context(), cluster, "nothing", "1")
	assert.True(t, acs.IsNotFound(err))
}

func TestCluster(t *testing.T) {
	_, c := both(t, nil)
	got, err := c.GetCluster(t.Context(), cluster)
	require.NoError(t, err)
	assert.Equal(t, acs.ClusterRunning, got.State)
	assert.Equal(t, "cn-local", got.RegionID)
	assert.Equal(t, "ack.pro.small", got.Spec)
	assert.Equal(t, "1.36.3-aliyun.1", got.Version)
	_, err = c.GetCluster(t.Context(), "c-other")
	assert.True(t, acs.IsNotFound(err))
	assert.ErrorContains(t, err, "asked in region cn-local")
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

func TestUnreachableEndpoint(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	url := web.URL
	web.Close()
	_, err := client(t, url, nil).GetCluster(t.Context(), cluster)
	require.Error(t, err)
	assert.ErrorContains(t, err, url)
	assert.ErrorContains(t, err, "check the endpoint")
	assert.Empty(t, acs.Code(err))
	assert.False(t, acs.IsNotFound(err))
}

func TestAnswersThatAreNoAnswers(t *testing.T) {
	body := "<html>proxy</html>"
	status := 200
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer web.Close()
	c := client(t, web.URL, nil)
	_, err := c.GetCluster(t.Context(), cluster)
	assert.ErrorContains(t, err, "decode answer")
	status = 403
	_, err = c.GetCluster(t.Context(), cluster)
	assert.ErrorContains(t, err, "HTTP 403: <html>proxy</html>")
	status = 404
	_, err = c.GetCluster(t.Context(), cluster)
	assert.True(t, acs.IsNotFound(err))
}

func TestConfigThatIsWrong(t *testing.T) {
	good := acs.Credentials{AccessKeyID: "id", AccessKeySecret: "s"}
	for _, tc := range []struct {
		name string
		cfg  acs.Config
		want string
	}{
		{"no key", acs.Config{Region: "cn-hangzhou"}, "no access key"},
		{"no secret", acs.Config{Credentials: acs.Credentials{AccessKeyID: "id"}}, "ALIBABA_CLOUD_ACCESS_KEY_SECRET"},
		{"no region", acs.Config{Credentials: good}, "no region"},
		{"scheme", acs.Config{Credentials: good, Endpoint: "ftp://x"}, "must be a host"},
		{"path", acs.Config{Credentials: good, Endpoint: "https://x/y"}, "must be a host"},
		{"no URL", acs.Config{Credentials: good, Endpoint: "http://a b"}, "not a URL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := acs.New(tc.cfg)
			assert.ErrorContains(t, err, tc.want)
		})
	}
	for endpoint, want := range map[string]string{
		"":                       "https://cs.cn-hangzhou.aliyuncs.com",
		"cs-vpc.x.aliyuncs.com":  "https://cs-vpc.x.aliyuncs.com",
		"http://127.0.0.1:8080/": "http://127.0.0.1:8080",
	} {
		c, err := acs.New(acs.Config{Credentials: good, Region: "cn-hangzhou", Endpoint: endpoint})
		require.NoError(t, err)
		assert.Equal(t, want, c.Endpoint())
		assert.Equal(t, "cn-hangzhou", c.Region())
	}
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
