package kube_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// A server that does not answer questions about rights is taken to grant them, and asked once.
func TestUnansweredRightsAreAskedOnce(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(code)
		}))
		t.Cleanup(server.Close)
		client, err := kube.New(&rest.Config{Host: server.URL})
		require.NoError(t, err)
		for range 3 {
			has, err := client.Has(t.Context(), kube.Right{Verb: "create", Resource: "pods", Namespace: "default"})
			require.NoError(t, err)
			assert.True(t, has)
		}
		assert.Equal(t, int32(1), asked.Load(), http.StatusText(code))
	}
}
