package acsfake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodesCarryWhatTheCloudSets(t *testing.T) {
	b := newBench(t, nil)
	b.create(t, poolBodyOf("v100", 1, `,"kubernetes_config":{"labels":[{"key":"ack.node.gpu.schedule","value":"topology"}],"taints":[{"key":"gpu","value":"x","effect":"NoSchedule"}]}`))
	nodes := b.Nodes()
	require.Len(t, nodes, 1)
	assert.Equal(t, Node{
		Name: "cn-local.10.0.1.1", PoolID: b.State().Pools[0].ID, PoolName: "v100", InstanceID: nodes[0].InstanceID,
		InstanceType: "ecs.gn6v-c10g1.20xlarge", Index: 1, Mode: "topology",
		Labels: map[string]string{
			"ack.node.gpu.schedule": "topology", "ack.aliyun.com": testCluster, "alibabacloud.com/nodepool-id": b.State().Pools[0].ID,
			"node.kubernetes.io/instance-type": "ecs.gn6v-c10g1.20xlarge", "aliyun.accelerator/nvidia_name": "Tesla-V100-SXM2-16GB",
			"aliyun.accelerator/nvidia_mem": "16160MiB", "aliyun.accelerator/nvidia_count": "8",
		},
		Taints: []Taint{{"gpu", "x", "NoSchedule"}}, Created: nodes[0].Created,
	}, nodes[0])
}

// scripted is a backend whose operations a test can make fail or block.
type scripted struct {
	mu    sync.Mutex
	calls []string
	on    func(ctx context.Context, call string) error
}

func (s *scripted) say(ctx context.Context, call string) error {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if s.on == nil {
		return nil
	}
	return s.on(ctx, call)
}

func (s *scripted) EnsureNode(ctx context.Context, n Node) error { return s.say(ctx, "ensure "+n.Name) }
func (s *scripted) UpdateNode(ctx context.Context, old, n Node) error {
	return s.say(ctx, fmt.Sprintf("update %s %s→%s", n.Name, old.Mode, n.Mode))
}
func (s *scripted) DeleteNode(ctx context.Context, n Node) error { return s.say(ctx, "delete "+n.Name) }

func TestBackendSeesEveryNode(t *testing.T) {
	backend := &scripted{}
	b := newBench(t, func(o *Options) { o.Backend = backend })
	label := func(mode string) string {
		return `"kubernetes_config":{"labels":[{"key":"ack.node.gpu.schedule","value":"` + mode + `"}]}`
	}
	path := b.create(t, poolBodyOf("x", 2, ","+label("topology")))
	for _, body := range []string{
		`{"update_nodes":true,` + label("cgpu") + `}`,
		`{"update_nodes":true}`,
		`{"scaling_group":{"desired_size":1}}`,
		`{"scaling_group":{"desired_size":2}}`,
	} {
		status, answer := b.ask("PUT", path, body)
		require.Equal(t, 200, status, answer)
		b.settle(t)
	}
	status, _ := b.ask("DELETE", path+"?force=true", "")
	require.Equal(t, 200, status)
	b.settle(t)
	assert.Equal(t, []string{
		"ensure cn-local.10.0.1.1", "ensure cn-local.10.0.1.2",
		"update cn-local.10.0.1.1 topology→cgpu", "update cn-local.10.0.1.2 topology→cgpu",
		"update cn-local.10.0.1.1 cgpu→cgpu", "update cn-local.10.0.1.2 cgpu→cgpu",
		"delete cn-local.10.0.1.2", "ensure cn-local.10.0.1.3",
		"delete cn-local.10.0.1.3", "delete cn-local.10.0.1.1",
	}, backend.calls)
	assert.Empty(t, b.State().Pools)
}

func TestBackendErrorsFailTheTask(t *testing.T) {
	for _, tc := range []struct{ call, method, query, body, poolState string }{
		{"ensure", "PUT", "", `{"scaling_group":{"desired_size":3}}`, "active"},
		{"update", "PUT", "", `{"update_nodes":true}`, "active"},
		{"delete", "PUT", "", `{"scaling_group":{"desired_size":1}}`, "active"},
		{"delete", "DELETE", "?force=true", "", "delete_failed"},
	} {
		t.Run(tc.call+" "+tc.method, func(t *testing.T) {
			backend := &scripted{}
			b := newBench(t, func(o *Options) { o.Backend = backend })
			path := b.create(t, poolBodyOf("x", 2, ""))
			backend.mu.Lock()
			backend.on = func(_ context.Context, call string) error {
				if strings.HasPrefix(call, tc.call) {
					return errors.New("the API server said no")
				}
				return nil
			}
			backend.mu.Unlock()
			_, answer := b.ask(tc.method, path+tc.query, tc.body)
			b.settle(t)
			_, task := b.ask("GET", "/tasks/"+answer["task_id"].(string), "")
			assert.Equal(t, "failed", task["state"])
			assert.Contains(t, task["error"].(map[string]any)["message"], "the API server said no")
			state, _ := poolState(t, b, path)
			assert.Equal(t, tc.poolState, state)
		})
	}
}

func TestTasksOfOnePoolRunOneAfterAnother(t *testing.T) {
	backend := &scripted{}
	b := newBench(t, func(o *Options) { o.Backend = backend })
	_, first := b.ask("POST", pools, poolBodyOf("x", 1, ""))
	path := pools + "/" + first["nodepool_id"].(string)
	_, second := b.ask("PUT", path, `{"scaling_group":{"desired_size":3}}`)
	_, third := b.ask("DELETE", path+"?force=true", "")
	_, task := b.ask("GET", "/tasks/"+second["task_id"].(string), "")
	assert.Equal(t, "running", task["state"])
	assert.Empty(t, task["stages"], "it waits for the first")
	b.settle(t)
	for _, answer := range []map[string]any{first, second, third} {
		_, task := b.ask("GET", "/tasks/"+answer["task_id"].(string), "")
		assert.Equal(t, "success", task["state"])
	}
	assert.Empty(t, b.State().Pools)
	assert.Equal(t, []string{
		"ensure cn-local.10.0.1.1", "ensure cn-local.10.0.1.2", "ensure cn-local.10.0.1.3",
		"delete cn-local.10.0.1.3", "delete cn-local.10.0.1.2", "delete cn-local.10.0.1.1",
	}, backend.calls)
}

func TestOnlySoManyTasksAreKept(t *testing.T) {
	b := newBench(t, func(o *Options) { o.TaskDuration = 0 })
	path := b.create(t, poolBodyOf("x", 0, ""))
	for range keptTasks + 10 {
		status, _ := b.ask("PUT", path, `{}`)
		require.Equal(t, 200, status)
		b.settle(t)
	}
	assert.LessOrEqual(t, len(b.State().Tasks), keptTasks)
}
