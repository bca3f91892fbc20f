package acsfake_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	openapiutil "github.com/alibabacloud-go/darabonba-openapi/v2/utils"
	"github.com/alibabacloud-go/tea/dara"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

var update = flag.Bool("update", false, "write the golden transcripts again")

const (
	cluster = "c-golden"
	keyID   = "LTAI-golden"
	secret  = "golden-secret"
)

// stage is an emulator behind a listener, the client, and the clock of the tasks.
type stage struct {
	fake  *acsfake.Server
	clock *clocktesting.FakeClock
	*acs.Client
	url string
}

func newStage(t *testing.T) stage {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	fake, err := acsfake.New(acsfake.Options{
		ClusterID: cluster, ClusterName: "golden", Region: "cn-local", KubernetesVersion: "1.36.3-aliyun.1",
		AccessKeyID: keyID, AccessKeySecret: secret, TaskDuration: 10 * time.Second, Clock: clock, Seed: 1,
	})
	require.NoError(t, err)
	web := httptest.NewServer(fake)
	t.Cleanup(func() { web.Close(); fake.Close() })
	client, err := acs.New(acs.Config{
		Credentials: acs.Credentials{AccessKeyID: keyID, AccessKeySecret: secret},
		Region:      "cn-local", Endpoint: web.URL, UserAgent: "gpuplan", RetryDelay: time.Millisecond,
	})
	require.NoError(t, err)
	return stage{fake, clock, client, web.URL}
}

// settle moves the clock until no task is left. It steps seconds, so that requests stay
// within the tolerated difference of clocks.
func (s stage) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		if s.clock.HasWaiters() {
			s.clock.Step(10 * time.Second)
		}
		st := s.fake.State()
		for _, task := range st.Tasks {
			if task.State == "running" {
				return false
			}
		}
		for _, a := range st.Addons {
			if a.State == "updating" {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}

var (
	timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	hosts      = regexp.MustCompile(`"HostId": "[^"]*"`)
)

// transcript renders the journal: what the client sent, byte for byte but indented, and
// what it was answered.
func transcript(t *testing.T, exchanges []acsfake.Exchange) string {
	t.Helper()
	var b strings.Builder
	for _, e := range exchanges {
		fmt.Fprintf(&b, "# %s\n%s %s\n%s→ %d\n%s\n", e.Action, e.Method, e.Target, indented(t, e.Body), e.Status, indented(t, e.Answer))
	}
	text := timestamps.ReplaceAllString(b.String(), "<time>")
	return hosts.ReplaceAllString(text, `"HostId": "<host>"`)
}

func indented(t *testing.T, raw string) string {
	t.Helper()
	if raw == "" {
		return ""
	}
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, []byte(raw), "", "  "))
	return b.String() + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "the wire format changed; if that is intended: go test ./internal/acsfake -update")
}

func TestTranscriptOfAPool(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	size := int64(2)
	spec := acs.NodePoolSpec{
		Info: acs.NodePoolInfo{Name: "v100"},
		ScalingGroup: acs.ScalingGroup{
			InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-1"}, DesiredSize: &size,
			SystemDiskCategory: "cloud_essd", SystemDiskSize: 120, KeyPair: "ops",
			DataDisks: []acs.DataDisk{{Category: "cloud_essd", Size: 500, PerformanceLevel: "PL1", Encrypted: "false"}},
		},
		KubernetesConfig: acs.KubernetesConfig{
			Labels:    []acs.Label{{Key: "ack.node.gpu.schedule", Value: "topology"}},
			CPUPolicy: "none",
		},
	}
	_, err := s.GetCluster(ctx, cluster)
	require.NoError(t, err)
	created, err := s.CreateNodePool(ctx, cluster, spec)
	require.NoError(t, err)
	s.settle(t)
	_, err = s.GetTask(ctx, created.TaskID)
	require.NoError(t, err)
	_, err = s.GetNodePool(ctx, cluster, created.PoolID)
	require.NoError(t, err)
	_, err = s.ListNodes(ctx, cluster, created.PoolID)
	require.NoError(t, err)

	spec.KubernetesConfig.Labels = nil
	s.fake.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{acsfake.NoStock()}})
	size = 3
	modified, err := s.ModifyNodePool(ctx, cluster, created.PoolID, spec, acs.ModifyOptions{UpdateNodes: true})
	require.NoError(t, err)
	s.settle(t)
	task, err := s.GetTask(ctx, modified.TaskID)
	require.NoError(t, err)
	require.Equal(t, "failed", task.State)

	_, err = s.DeleteNodePool(ctx, cluster, created.PoolID, true)
	require.NoError(t, err)
	s.settle(t)
	_, err = s.GetNodePool(ctx, cluster, created.PoolID)
	require.True(t, acs.IsNotFound(err))
	s.fake.SetKnobs(acsfake.Knobs{Throttle: 1})
	_, err = s.ListNodePools(ctx, cluster)
	require.NoError(t, err)

	golden(t, "nodepool", transcript(t, s.fake.Journal()))
}

func TestTranscriptOfAnAddon(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	_, err := s.DescribeAddon(ctx, cluster, "ack-erdma-controller", "")
	require.NoError(t, err)
	_, err = s.AddonMetadata(ctx, cluster, "ack-erdma-controller", "")
	require.NoError(t, err)
	task, err := s.InstallAddon(ctx, cluster, acs.Addon{Name: "ack-erdma-controller", Config: `{"agent":{"preferDriver":"ofed"}}`})
	require.NoError(t, err)
	s.settle(t)
	_, err = s.GetTask(ctx, task)
	require.NoError(t, err)
	require.NoError(t, s.ModifyAddon(ctx, cluster, "ack-erdma-controller", `{"agent":{"allocateAllDevices":true}}`))
	addon, err := s.GetAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err)
	require.Equal(t, "updating", addon.State)
	s.settle(t)
	addon, err = s.GetAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err)
	require.Equal(t, acs.AddonActive, addon.State)
	_, err = s.ListAddons(ctx, cluster)
	require.NoError(t, err)
	_, err = s.UninstallAddon(ctx, cluster, "ack-erdma-controller")
	require.NoError(t, err)
	s.settle(t)
	_, err = s.GetAddon(ctx, cluster, "ack-erdma-controller")
	require.True(t, acs.IsNotFound(err))
	golden(t, "addon", transcript(t, s.fake.Journal()))
}

// The vendor's newer client gets through the emulator's signature check by version 3 of the signature, which it
// prefers, and by version 1.
func TestTheVendorsNewerClientIsUnderstood(t *testing.T) {
	for _, algorithm := range []string{"", "v2"} {
		t.Run("algorithm "+algorithm, func(t *testing.T) {
			s := newStage(t)
			client, err := openapi.NewClient(&openapiutil.Config{
				AccessKeyId: dara.String(keyID), AccessKeySecret: dara.String(secret), SignatureAlgorithm: dara.String(algorithm),
				Protocol: dara.String("HTTP"), Endpoint: dara.String(strings.TrimPrefix(s.url, "http://")),
			})
			require.NoError(t, err)
			ask := func(action, method, path string, query map[string]*string, body any) (map[string]any, error) {
				answer, err := client.CallApi(&openapiutil.Params{
					Action: dara.String(action), Version: dara.String("2015-12-15"), Protocol: dara.String("HTTP"), Pathname: dara.String(path), Method: dara.String(method),
					AuthType: dara.String("AK"), Style: dara.String("ROA"), ReqBodyType: dara.String("json"), BodyType: dara.String("json"),
				}, &openapiutil.OpenApiRequest{Query: query, Body: body}, &dara.RuntimeOptions{})
				if err != nil {
					return nil, err
				}
				return answer["body"].(map[string]any), nil
			}
			_, err = ask("CreateClusterNodePool", "POST", "/clusters/"+cluster+"/nodepools", nil, map[string]any{
				"nodepool_info": map[string]any{"name": "a b"},
				"scaling_group": map[string]any{"instance_types": []string{"ecs.g7.large"}, "vswitch_ids": []string{"v"}, "desired_size": 0},
			})
			require.NoError(t, err)
			answer, err := ask("DescribeClusterNodePools", "GET", "/clusters/"+cluster+"/nodepools", map[string]*string{"NodepoolName": dara.String("a b")}, nil)
			require.NoError(t, err)
			assert.Len(t, answer["nodepools"], 1)
			_, err = ask("DescribeClusterNodePoolDetail", "GET", "/clusters/"+cluster+"/nodepools/none", nil, nil)
			assert.ErrorContains(t, err, "ErrorNodePoolNotFound")
		})
	}
}

// The vendor's older SDK gets through the emulator's signature check, by version 1.
func TestTheVendorsSDKIsUnderstood(t *testing.T) {
	t.Setenv("NO_PROXY", "127.0.0.1")
	s := newStage(t)
	client, err := sdk.NewClientWithOptions("cn-local", sdk.NewConfig(), credentials.NewAccessKeyCredential(keyID, secret))
	require.NoError(t, err)
	address := strings.TrimPrefix(s.url, "http://")
	host, port, _ := strings.Cut(address, ":")
	ask := func(method, path, query, body string) (int, string) {
		r := requests.NewCommonRequest()
		r.Method, r.Product, r.Version, r.PathPattern = method, "CS", "2015-12-15", path
		r.Scheme, r.Domain, r.Port = "HTTP", host, port
		if query != "" {
			r.QueryParams["NodepoolName"] = query
		}
		if body != "" {
			r.Content = []byte(body)
			r.SetContentType("application/json")
		}
		answer, err := client.ProcessCommonRequest(r)
		if answer == nil {
			t.Fatal(err)
		}
		return answer.GetHttpStatus(), answer.GetHttpContentString()
	}
	status, body := ask("POST", "/clusters/"+cluster+"/nodepools", "", `{"nodepool_info":{"name":"a b"},"scaling_group":{"instance_types":["ecs.g7.large"],"vswitch_ids":["v"],"desired_size":0}}`)
	assert.Equal(t, 200, status, body)
	status, body = ask("GET", "/clusters/"+cluster+"/nodepools", "a b", "")
	assert.Equal(t, 200, status, body)
	assert.Contains(t, body, `"name":"a b"`)
	status, body = ask("GET", "/clusters/"+cluster+"/nodepools/none", "", "")
	assert.Equal(t, 404, status)
	assert.Contains(t, body, `"code":"ErrorNodePoolNotFound"`)
}
