package acsfake

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	testCluster = "c-test"
	testKey     = "LTAI-test"
	testSecret  = "secret"
)

// bench is an emulator under a clock that only the test moves.
type bench struct {
	*Server
	clock *clocktesting.FakeClock
}

func newBench(t *testing.T, change func(*Options)) bench {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	opts := Options{
		ClusterID: testCluster, Region: "cn-local", KubernetesVersion: "1.36.3-aliyun.1",
		AccessKeyID: testKey, AccessKeySecret: testSecret, TaskDuration: 12 * time.Second, Clock: clock,
	}
	if change != nil {
		change(&opts)
	}
	s, err := New(opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return bench{s, clock}
}

// step lets the task in progress do one stage: it waits until somebody waits for the clock.
func (b bench) step(t *testing.T) {
	t.Helper()
	require.Eventually(t, b.clock.HasWaiters, 10*time.Second, time.Millisecond)
	b.clock.Step(time.Minute)
}

// settle moves the clock until no task runs and no add-on is being updated.
func (b bench) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		if b.clock.HasWaiters() {
			b.clock.Step(time.Minute)
		}
		st := b.State()
		for _, task := range st.Tasks {
			if task.State == taskRunning {
				return false
			}
		}
		for _, a := range st.Addons {
			if a.State == addonUpdating {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}

// sign adds the headers of a signature.
func sign(r *http.Request, body string, now time.Time) {
	sum := md5.Sum([]byte(body))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	r.Header.Set("x-acs-version", "2015-12-15")
	mac := hmac.New(sha1.New, []byte(testSecret))
	mac.Write([]byte(canonical(r)))
	r.Header.Set("Authorization", "acs "+testKey+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// ask sends a signed request and returns the status and the decoded body.
func (b bench) ask(method, target, body string) (int, map[string]any) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	sign(r, body, b.clock.Now())
	return b.send(r)
}

func (b bench) send(r *http.Request) (int, map[string]any) {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	answer := map[string]any{}
	if raw := bytes.TrimSpace(w.Body.Bytes()); len(raw) > 0 {
		if err := json.Unmarshal(raw, &answer); err != nil {
			panic(fmt.Sprintf("answer is not a JSON object: %s", raw))
		}
	}
	return w.Code, answer
}

const pools = "/clusters/" + testCluster + "/nodepools"

// poolBodyOf renders a create request.
func poolBodyOf(name string, size int, more string) string {
	return fmt.Sprintf(`{"nodepool_info":{"name":%q},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["vsw-1"],"desired_size":%d}%s}`, name, size, more)
}

// create makes a settled pool and returns its path.
func (b bench) create(t *testing.T, body string) string {
	t.Helper()
	status, answer := b.ask("POST", pools, body)
	require.Equal(t, 200, status, answer)
	b.settle(t)
	return pools + "/" + answer["nodepool_id"].(string)
}

func poolState(t *testing.T, b bench, path string) (state string, registered int) {
	t.Helper()
	status, answer := b.ask("GET", path, "")
	require.Equal(t, 200, status, answer)
	st := answer["status"].(map[string]any)
	_, nodes := b.ask("GET", "/clusters/"+testCluster+"/nodes?nodepool_id="+answer["nodepool_info"].(map[string]any)["nodepool_id"].(string), "")
	return st["state"].(string), len(nodes["nodes"].([]any))
}

func TestPoolStatesWhileItGrows(t *testing.T) {
	b := newBench(t, nil)
	status, answer := b.ask("POST", pools, poolBodyOf("v100", 2, ""))
	require.Equal(t, 200, status)
	path := pools + "/" + answer["nodepool_id"].(string)
	expect := func(state string, nodes int) {
		t.Helper()
		require.Eventually(t, b.clock.HasWaiters, 10*time.Second, time.Millisecond)
		gotState, gotNodes := poolState(t, b, path)
		assert.Equal(t, state, gotState)
		assert.Equal(t, nodes, gotNodes, "nodes are listed when they have registered")
	}
	expect("initial", 0)
	b.step(t)
	expect("scaling", 0)
	b.step(t)
	expect("scaling", 0)
	_, task := b.ask("GET", "/tasks/"+answer["task_id"].(string), "")
	assert.Equal(t, "register_nodes", task["current_stage"])
	assert.Equal(t, "running", task["state"])
	assert.IsType(t, []any{}, task["task_result"], "an array, unlike what the vendor's SDK declares")
	b.settle(t)
	state, nodes := poolState(t, b, path)
	assert.Equal(t, "active", state)
	assert.Equal(t, 2, nodes)
}

func TestRefusedBodies(t *testing.T) {
	b := newBench(t, nil)
	group := func(extra string) string {
		return `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["v"]` + extra + `}}`
	}
	with := func(block string) string { return poolBodyOf("x", 1, ","+block) }
	many := strings.TrimSuffix(strings.Repeat(`{"key":"k","value":"v"},`, 21), ",")
	for _, tc := range []struct{ name, body, code, message string }{
		{"no JSON", `{`, "InvalidParameter", "not JSON"},
		{"no name", `{"scaling_group":{"instance_types":["ecs.x"],"vswitch_ids":["v"]}}`, "InvalidParameter.Name", ""},
		{"no scaling group", `{"nodepool_info":{"name":"x"}}`, "InvalidParameter.ScalingGroup", ""},
		{"no types", `{"nodepool_info":{"name":"x"},"scaling_group":{"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", ""},
		{"empty types", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":[],"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", "1 to 10"},
		{"no vSwitch", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.x"]}}`, "InvalidParameter.VSwitchIds", ""},
		{"empty vSwitches", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.x"],"vswitch_ids":[]}}`, "InvalidParameter.VSwitchIds", ""},
		{"no ECS type", `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["p3.large"],"vswitch_ids":["v"]}}`, "InvalidParameter.InstanceTypes", "does not exist"},
		{"boolean encrypted", group(`,"data_disks":[{"encrypted":true}]`), "InvalidParameter", "Unmarshal type error: expected=string, got=bool"},
		{"key_name", group(`,"key_name":"k"`), "InvalidParameter.ScalingGroup", "key_name"},
		{"min_size", group(`,"min_size":1`), "InvalidParameter.ScalingGroup", "min_size"},
		{"negative size", group(`,"desired_size":-1`), "InvalidParameter.DesiredSize", ""},
		{"huge size", group(`,"desired_size":2001`), "InvalidParameter.DesiredSize", ""},
		{"size with auto scaling", with(`"auto_scaling":{"enable":true,"max_instances":3}`), "InvalidDesiredSizeOrCount.NotNull", ""},
		{"count with auto scaling", strings.Replace(group(``), `}}`, `},"count":1,"auto_scaling":{"enable":true,"max_instances":3}}`, 1), "InvalidDesiredSizeOrCount.NotNull", ""},
		{"labels", with(`"kubernetes_config":{"labels":[` + many + `]}`), "InvalidParameter.Labels", "at most 20"},
		{"label prefix", with(`"kubernetes_config":{"labels":[{"key":"aliyun.com/x","value":""}]}`), "InvalidParameter.Labels", "must not start"},
		{"label length", with(`"kubernetes_config":{"labels":[{"key":"` + strings.Repeat("k", 65) + `","value":""}]}`), "InvalidParameter.Labels", "1 to 64"},
		{"taint", with(`"kubernetes_config":{"taints":[{"key":"k","value":"v","effect":"Never"}]}`), "InvalidParameter.Taints", "Never"},
		{"CPU policy", with(`"kubernetes_config":{"cpu_policy":"fast"}`), "InvalidParameter.CpuPolicy", "fast"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer := b.ask("POST", pools, tc.body)
			assert.Equal(t, 400, status)
			assert.Equal(t, tc.code, answer["code"])
			assert.Contains(t, answer["message"], tc.message)
			assert.NotContains(t, answer, "Code", "the service's own errors have lower-case keys")
		})
	}
	assert.Empty(t, b.State().Pools)
}

func TestRoutes(t *testing.T) {
	b := newBench(t, nil)
	for _, tc := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"GET", "/nothing", 501, "NotImplemented"},
		{"PATCH", pools, 501, "NotImplemented"},
		{"POST", pools + "/np1", 501, "NotImplemented"},
		{"GET", "/clusters/other/nodepools", 404, "ErrorClusterNotFound"},
		{"GET", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"PUT", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"DELETE", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"GET", "/tasks/T-1", 404, "ErrorTaskNotFound"},
		{"GET", "/addons/none", 404, "AddonNotFound"},
		{"GET", "/clusters/" + testCluster + "/nodes?pageSize=101", 400, "InvalidParameter.PageSize"},
		{"GET", "/clusters/" + testCluster + "/nodes?pageNumber=0", 400, "InvalidParameter.PageNumber"},
	} {
		body := ""
		if tc.method == "PUT" {
			body = "{}"
		}
		status, answer := b.ask(tc.method, tc.target, body)
		assert.Equal(t, tc.status, status, "%s %s", tc.method, tc.target)
		assert.Equal(t, tc.code, answer["code"], "%s %s", tc.method, tc.target)
	}
}

func TestGateway(t *testing.T) {
	b := newBench(t, nil)
	for _, tc := range []struct {
		name, code string
		status     int
		spoil      func(*http.Request)
	}{
		{"good", "", 200, func(*http.Request) {}},
		{"no signature", "IncompleteSignature", 400, func(r *http.Request) { r.Header.Del("Authorization") }},
		{"other scheme", "IncompleteSignature", 400, func(r *http.Request) { r.Header.Set("Authorization", "ACS3-HMAC-SHA256 Credential=x") }},
		{"unknown key", "InvalidAccessKeyId.NotFound", 404, func(r *http.Request) { r.Header.Set("Authorization", "acs someone:x") }},
		{"changed header", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.Header.Set("x-acs-version", "2016-01-01") }},
		{"changed query", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.URL.RawQuery = "a=b" }},
		{"changed body", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.Body = http.NoBody }},
		{"old", "InvalidTimeStamp.Expired", 400, func(r *http.Request) { sign(r, "{}", b.clock.Now().Add(-time.Hour)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/clusters/"+testCluster, strings.NewReader("{}"))
			sign(r, "{}", b.clock.Now())
			tc.spoil(r)
			status, answer := b.send(r)
			assert.Equal(t, tc.status, status)
			if tc.code != "" {
				assert.Equal(t, tc.code, answer["Code"])
				assert.NotContains(t, answer, "code", "the gateway's errors have CamelCase keys")
				assert.NotContains(t, answer["Message"], testSecret)
			}
		})
	}
}

func TestModifyKeepsListsAndResetsScalars(t *testing.T) {
	b := newBench(t, nil)
	path := b.create(t, poolBodyOf("x", 1, `,"kubernetes_config":{"labels":[{"key":"a","value":"1"}],"user_data":"c2NyaXB0","unschedulable":true},"management":{"enable":true}`))
	status, answer := b.ask("PUT", path, `{"kubernetes_config":{"cpu_policy":"static"}}`)
	require.Equal(t, 200, status, answer)
	b.settle(t)
	_, pool := b.ask("GET", path, "")
	k := pool["kubernetes_config"].(map[string]any)
	assert.Equal(t, "static", k["cpu_policy"])
	assert.Len(t, k["labels"], 1, "an absent list stays")
	assert.NotContains(t, k, "user_data", "an absent scalar falls back to its default")
	assert.NotContains(t, k, "unschedulable")
	assert.Equal(t, map[string]any{"enable": true}, pool["management"], "an absent block stays")
	assert.InDelta(t, 1, pool["scaling_group"].(map[string]any)["desired_size"], 0)

	_, answer = b.ask("PUT", path, `{"kubernetes_config":{"labels":[]}}`)
	require.NotNil(t, answer["task_id"])
	b.settle(t)
	_, pool = b.ask("GET", path, "")
	assert.Empty(t, pool["kubernetes_config"].(map[string]any)["labels"])
}

func TestAutoScaling(t *testing.T) {
	b := newBench(t, nil)
	body := `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["v"]},"auto_scaling":{"enable":true,"type":"gpu","min_instances":2,"max_instances":5}}`
	path := b.create(t, body)
	_, nodes := poolState(t, b, path)
	assert.Equal(t, 2, nodes)
	_, pool := b.ask("GET", path, "")
	assert.NotContains(t, pool["scaling_group"], "desired_size")
	status, answer := b.ask("PUT", path, `{"scaling_group":{"desired_size":3}}`)
	assert.Equal(t, 400, status)
	assert.Equal(t, "InvalidDesiredSizeOrCount.NotNull", answer["code"])
	status, _ = b.ask("PUT", path, `{"auto_scaling":{"enable":false},"scaling_group":{"desired_size":3}}`)
	assert.Equal(t, 200, status)
	b.settle(t)
	_, nodes = poolState(t, b, path)
	assert.Equal(t, 3, nodes)
}

func TestLabelsComeInRandomOrder(t *testing.T) {
	b := newBench(t, nil)
	var labels []string
	for i := range 10 {
		labels = append(labels, fmt.Sprintf(`{"key":"k%d","value":"v"}`, i))
	}
	path := b.create(t, poolBodyOf("x", 0, `,"kubernetes_config":{"labels":[`+strings.Join(labels, ",")+`]}`))
	orders := map[string]bool{}
	for range 20 {
		_, pool := b.ask("GET", path, "")
		orders[fmt.Sprint(pool["kubernetes_config"].(map[string]any)["labels"])] = true
	}
	assert.Greater(t, len(orders), 1)
}

func TestPasswordIsKeptNowhere(t *testing.T) {
	b := newBench(t, nil)
	path := b.create(t, `{"nodepool_info":{"name":"x"},"scaling_group":{"instance_types":["ecs.g7.large"],"vswitch_ids":["v"],"login_password":"Hunter2!"}}`)
	_, pool := b.ask("GET", path, "")
	assert.Equal(t, mask, pool["scaling_group"].(map[string]any)["login_password"])
	for _, kept := range []any{b.State(), b.Journal()} {
		raw, err := json.Marshal(kept)
		require.NoError(t, err)
		assert.NotContains(t, string(raw), "Hunter2!")
	}
}

func TestNodesCarryWhatTheCloudSets(t *testing.T) {
	b := newBench(t, nil)
	b.create(t, poolBodyOf("v100", 1, `,"kubernetes_config":{"labels":[{"key":"ack.node.gpu.schedule","value":"topology"}],"taints":[{"key":"gpu","value":"x","effect":"NoSchedule"}]}`))
	nodes := b.Nodes()
	require.Len(t, nodes, 1)
	assert.Equal(t, Node{
		Name: "cn-local.10.0.1.1", PoolID: b.State().Pools[0].ID, PoolName: "v100", InstanceID: nodes[0].InstanceID,
		InstanceType: "ecs.gn6v-c10g1.20xlarge", Index: 1, Mode: "topology",
		Labels: map[string]string{
			"ack.node.gpu.schedule": "topology", "alibabacloud.com/nodepool-id": b.State().Pools[0].ID,
			"node.kubernetes.io/instance-type": "ecs.gn6v-c10g1.20xlarge", "aliyun.accelerator/nvidia_name": "Tesla-V100-SXM2-16GB",
			"aliyun.accelerator/nvidia_mem": "16384MiB", "aliyun.accelerator/nvidia_count": "8",
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
	b := newBench(t, nil)
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

func TestOptionsThatAreIncomplete(t *testing.T) {
	_, err := New(Options{ClusterID: "c"})
	assert.ErrorContains(t, err, "region")
	_, err = New(Options{ClusterID: "c", Region: "r", AccessKeyID: "a", AccessKeySecret: "b", State: &State{Version: 99}})
	assert.ErrorContains(t, err, "version 99")
}
