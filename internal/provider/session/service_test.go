package session_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// A service that fails is asked once in a plan, however many resources want to know; an apply asks again.
func TestServiceThatFailsIsAskedOnce(t *testing.T) {
	empty(t)
	var requests atomic.Int64
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(away.Close)
	s := session.New(session.Settings{Identity: identity.Settings{AccessKey: "a", SecretKey: "s"}, Region: "cn-hangzhou", ClusterID: "c", Endpoint: away.URL})
	for name, ask := range map[string]func() error{
		"add-ons": func() error { _, err := s.Addons(t.Context()); return err },
		"add-on":  func() error { _, err := s.Addon(t.Context(), "ack-arena"); return err },
		"record":  func() error { _, err := s.Record(t.Context()); return err },
		"pools":   func() error { _, err := s.NodePools(t.Context()); return err },
	} {
		requests.Store(0)
		require.Error(t, ask(), name)
		first := requests.Load()
		require.Error(t, ask(), name)
		assert.Equal(t, first, requests.Load(), name)
	}
	s.Ledger.StartApplying()
	before := requests.Load()
	_, err := s.Record(t.Context())
	require.Error(t, err)
	assert.Greater(t, requests.Load(), before)
}
