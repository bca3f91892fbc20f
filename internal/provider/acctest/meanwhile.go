package acctest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Meanwhile has something happen once, between what the provider has seen of a kind in the cluster, or
// in the service, and the first time that it writes one of it; plural is the kind's name in paths.
func (c *Cloud) Meanwhile(t testing.TB, plural string, happens func()) {
	t.Helper()
	var once sync.Once
	before := func(r *http.Request) {
		writes := (r.Method == http.MethodPost || r.Method == http.MethodPatch) && !r.URL.Query().Has("dryRun")
		if writes && strings.Contains(r.URL.Path+"/", "/"+plural+"/") {
			once.Do(happens)
		}
	}
	WriteKubeconfig(t, c.Kubeconfig, proxy(t, c.API.Config().Host, before))
	t.Setenv("GPUPLAN_CS_ENDPOINT", proxy(t, c.Endpoint, before))
}

// proxy serves what a server does, and calls before with each request first.
func proxy(t testing.TB, host string, before func(*http.Request)) string {
	t.Helper()
	target, err := url.Parse(host)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	next.FlushInterval = -1 // watches
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r)
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
