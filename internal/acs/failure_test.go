package acs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
)

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

// Who interrupts the wait for the next try gets the answer to the last one: a create that was
// refused is not one whose answer got lost.
func TestInterruptedBetweenTries(t *testing.T) {
	fake, url := emulator(t, nil)
	c := client(t, url, func(cfg *acs.Config) {
		cfg.RetryDelay = time.Hour
		cfg.Transport = onPost{before: func(*http.Request) error { fake.SetKnobs(acsfake.Knobs{Throttle: 1}); return nil }}
	})
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	_, err := c.CreateNodePool(ctx, cluster, spec("v100", 1))
	assert.True(t, acs.IsThrottled(err), "%v", err)
	assert.NotContains(t, err.Error(), "no pool named")
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

func TestTaskThatFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault acsfake.Fault
		want  []string
	}{
		{"no stock", acsfake.NoStock(), []string{"InstanceTypeNoStock", "register_nodes", "another instance type"}},
		{"no quota", acsfake.NoQuota(), []string{"QuotaExceed.ElasticQuota", "raise the account's quota"}},
		{"no addresses", acsfake.NoIPs(), []string{"InvalidVSwitchId.IpNotEnough", "add a vSwitch"}},
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

// What is waited for goes on while the service does not answer, so a wait outlasts that.
func TestWaitOutlastsAnOutage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		outage acsfake.Knobs
		fails  string
	}{
		{"of some minutes", acsfake.Knobs{Unavailable: 80}, ""},
		{"by throttling", acsfake.Knobs{Throttle: 80}, ""},
		{"without end", acsfake.Knobs{Unavailable: 1000}, "ServiceUnavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake, url := emulator(t, nil)
			c := client(t, url, func(cfg *acs.Config) { cfg.RetryDelay = time.Microsecond })
			started, err := c.CreateNodePool(t.Context(), cluster, spec("v100", 1))
			require.NoError(t, err)
			fake.SetKnobs(tc.outage)
			var reported []string
			_, err = c.WaitTask(t.Context(), started.TaskID, func(p acs.Progress) { reported = append(reported, p.Message) })
			assert.Contains(t, strings.Join(reported, "\n"), "no answer yet: DescribeTaskInfo: ")
			if tc.fails == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tc.fails)
			}
		})
	}
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

func TestWaitForAPoolThatDoesNotGrowSaysWhy(t *testing.T) {
	fake, c := both(t, nil)
	fake.SetKnobs(acsfake.Knobs{LoseCreateAnswers: 1, TaskFaults: []acsfake.Fault{acsfake.NoStock()}})
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
	assert.ErrorContains(t, err, "HTTP 404: <html>proxy</html>")
	assert.False(t, acs.IsNotFound(err), "a proxy does not know what exists")
}

// transport is a function that answers requests.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An endpoint without an address is not the network's fault where the caller knows better.
func TestEndpointWithoutAnAddress(t *testing.T) {
	for name, c := range map[string]struct {
		dns          net.DNSError
		advice, want string
	}{
		"a name that does not exist":  {net.DNSError{Err: "no such host", Name: "cs.x", IsNotFound: true}, "there is no region x", "no such host; there is no region x"},
		"the same, absolute":          {net.DNSError{Err: "no such host", Name: "cs.x.", IsNotFound: true}, "there is no region x", "no such host; there is no region x"},
		"a proxy that does not exist": {net.DNSError{Err: "no such host", Name: "proxy.x", IsNotFound: true}, "there is no region x", "no such host; check the endpoint"},
		"no better advice":            {net.DNSError{Err: "no such host", Name: "cs.x", IsNotFound: true}, "", "no such host; check the endpoint"},
		"no answer of the DNS":        {net.DNSError{Err: "timeout", Name: "cs.x", IsTimeout: true}, "there is no region x", "timeout; check the endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			fails := transport(func(*http.Request) (*http.Response, error) { return nil, &c.dns })
			_, err := client(t, "https://cs.x", func(cfg *acs.Config) { cfg.NoHost, cfg.Transport = c.advice, fails }).GetCluster(t.Context(), cluster)
			assert.ErrorContains(t, err, c.want)
		})
	}
}
