package acs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
		{"token of nobody", "InvalidSecurityToken.MismatchWithAccessKey", acs.Credentials{AccessKeyID: keyID, AccessKeySecret: secret, SecurityToken: "sts-token-text"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := client(t, url, func(cfg *acs.Config) { cfg.Credentials = tc.credentials })
			_, err := c.GetCluster(t.Context(), cluster)
			require.Error(t, err)
			assert.Equal(t, tc.code, acs.Code(err))
			assert.False(t, acs.IsNotFound(err), "a key that is not found is no missing object")
			assert.ErrorContains(t, err, "the access key "+tc.credentials.AccessKeyID)
			for _, hidden := range []string{tc.credentials.AccessKeySecret, "sts-token-text"} {
				assert.NotContains(t, err.Error(), hidden)
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", tc.credentials, tc.credentials, tc.credentials), hidden)
			}
		})
	}
}

// source is a source of credentials under the test's control.
type source func(context.Context) (acs.Credentials, error)

func (s source) Get(ctx context.Context) (acs.Credentials, error) { return s(ctx) }
func (source) String() string                                     { return "those of the test" }

// Each try is signed with the credentials of its moment.
func TestCredentialsThatChange(t *testing.T) {
	fake, url := emulator(t, nil)
	asked := 0
	c := client(t, url, func(cfg *acs.Config) {
		cfg.Credentials = source(func(context.Context) (acs.Credentials, error) {
			asked++
			return acs.Credentials{AccessKeyID: keyID, AccessKeySecret: secret}, nil
		})
	})
	fake.SetKnobs(acsfake.Knobs{Throttle: 2})
	_, err := c.GetCluster(t.Context(), cluster)
	require.NoError(t, err)
	assert.Equal(t, 3, asked)
}

// A request without credentials is not sent, not repeated, and nothing of it is in doubt.
func TestNoCredentials(t *testing.T) {
	fake, url := emulator(t, nil)
	asked := 0
	c := client(t, url, func(cfg *acs.Config) {
		cfg.Credentials = source(func(context.Context) (acs.Credentials, error) {
			asked++
			return acs.Credentials{}, errors.New("cannot get credentials: no role")
		})
	})
	_, err := c.GetCluster(t.Context(), cluster)
	assert.EqualError(t, err, "DescribeClusterDetail: cannot get credentials: no role")
	_, err = c.CreateNodePool(t.Context(), cluster, spec("v100", 1))
	assert.ErrorContains(t, err, "cannot get credentials: no role")
	assert.NotContains(t, err.Error(), "no answer")
	assert.Equal(t, 2, asked)
	assert.Empty(t, fake.Journal())
}

// An interruption ends a call at once, whatever it waits for.
func TestInterrupted(t *testing.T) {
	for name, change := range map[string]func(*acs.Config, chan<- struct{}){
		"while it waits for credentials": func(cfg *acs.Config, waits chan<- struct{}) {
			cfg.Credentials = source(func(ctx context.Context) (acs.Credentials, error) {
				close(waits)
				<-ctx.Done()
				return acs.Credentials{}, ctx.Err()
			})
		},
		"while it waits for the answer": func(cfg *acs.Config, waits chan<- struct{}) {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(waits)
				<-r.Context().Done()
			}))
			t.Cleanup(server.Close)
			cfg.Endpoint = server.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			waits := make(chan struct{})
			c := client(t, "http://127.0.0.1:1", func(cfg *acs.Config) { change(cfg, waits) })
			ctx, interrupt := context.WithCancel(t.Context())
			go func() { <-waits; interrupt() }()
			_, err := c.GetCluster(ctx, cluster)
			assert.ErrorIs(t, err, context.Canceled)
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
