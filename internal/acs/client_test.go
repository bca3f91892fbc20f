package acs_test

import (
	"fmt"
	"net/http/httptest"
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
			assert.False(t, acs.IsNotFound(err), "a key that is not found is no missing object")
			assert.ErrorContains(t, err, "ALIBABA_CLOUD_ACCESS_KEY_SECRET")
			for _, hidden := range []string{tc.credentials.AccessKeySecret, "sts-token-text"} {
				assert.NotContains(t, err.Error(), hidden)
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", tc.credentials, tc.credentials, tc.credentials), hidden)
			}
		})
	}
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
