package kube_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

// instead starts a server that answers as it likes, or as the API server when it writes nothing; it returns a client.
func instead(t *testing.T, api *kubetest.Server, answer func(http.ResponseWriter, *http.Request) bool) *kube.Client {
	t.Helper()
	target, err := url.Parse(api.Config().Host)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kube.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

// of answers requests for a path, and those below it, with a text.
func of(path string, code int, kind, text string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path+"/", path+"/") {
			return false
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
		return true
	}
}

// A group of which the server does not say what it has is no group without kinds: who takes it for one forgets what is there.
// That of others, as of an aggregated API that is away, is nobody's concern.
func TestGroupThatIsNotListed(t *testing.T) {
	api := kubetest.Start(t)
	var away atomic.Value
	client := instead(t, api, func(w http.ResponseWriter, r *http.Request) bool {
		if group, _ := away.Load().(string); r.URL.Path != "/apis/"+group+"/v1" {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	jobs := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	away.Store("batch")
	_, _, err := client.Served(t.Context(), "batch", "Job")
	require.Error(t, err)
	_, err = client.Serves(jobs)
	require.Error(t, err)
	_, err = client.Get(t.Context(), jobs, "default", "a")
	require.Error(t, err)
	assert.NotErrorIs(t, err, kube.ErrNotServed)
	assert.False(t, kube.IsNotFound(err))

	away.Store("apps")
	_, ok, err := client.Served(t.Context(), "batch", "Job")
	require.NoError(t, err)
	assert.True(t, ok)
	_, ok, err = client.Served(t.Context(), "batch", "Work")
	require.NoError(t, err)
	assert.False(t, ok)
	away.Store("")
	served, err := client.Serves(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	require.NoError(t, err)
	assert.True(t, served, "it answers again")
}

// What has no Kubernetes behind it says of no object and of no kind that there is none.
func TestStrangersAtTheAddress(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"no such cluster"}`
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		says   string
	}{
		"the default backend of an ingress": {of("", 404, "text/plain", "default backend - 404"), `404, "default backend - 404"`},
		"a page":                            {of("", 404, "text/html", "<h1>Not Found</h1>"), `404, "<h1>Not Found</h1>"`},
		"another API":                       {of("", 404, "application/json", `{"error":"not found"}`), "404, "},
		"nothing":                           {of("", 404, "text/plain", ""), "404, "},
		"a proxy of clusters":               {of("", 404, "application/json", status), "404, "},
		"anything":                          {of("", 200, "application/json", "{}"), "it serves no namespaces"},
		"a part of the API":                 {of("/api", 404, "text/plain", ""), "it serves no namespaces"},
		"for the objects alone":             {of("/apis/example.com/v1/namespaces", 404, "text/plain", "default backend - 404"), `404, "default backend - 404"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := kubetest.Start(t)
			if !strings.HasPrefix(name, "a part") {
				api.Put(widgetCRD())
			}
			client := instead(t, api, c.answer)
			_, get := client.Get(t.Context(), widgets, "default", "a")
			_, list := client.List(t.Context(), widgets, "default", "")
			gone := client.Delete(t.Context(), widgets, "default", "a")
			for _, err := range []error{get, list, gone} {
				var unreachable *kube.UnreachableError
				require.ErrorAs(t, err, &unreachable)
				assert.ErrorContains(t, err, "something else answers there: "+c.says)
				assert.False(t, kube.IsNotFound(err))
				assert.NotErrorIs(t, err, kube.ErrNotServed)
			}
			if !strings.HasPrefix(name, "for the objects") {
				_, _, err := client.Served(t.Context(), "example.com", "Widget")
				assert.ErrorContains(t, err, "something else answers there")
			}
		})
	}
}

// A kind whose CRD is deleted is served no more before discovery says so.
func TestDiscoveryLagsBehindACRD(t *testing.T) {
	api := kubetest.Start(t)
	api.Put(widgetCRD())
	var discoveries atomic.Int32
	var deleted atomic.Bool
	client := instead(t, api, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case deleted.Load() && strings.HasSuffix(r.URL.Path, "/widgets/a"):
			http.NotFound(w, r)
			return true
		case deleted.Load() && r.URL.Path == "/apis" && discoveries.Add(1) == 3:
			api.Remove(crds, "", "widgets.example.com")
		}
		return false
	})
	_, err := client.Get(t.Context(), widgets, "default", "a")
	require.True(t, kube.IsNotFound(err), "%v", err)
	deleted.Store(true)
	_, err = client.Get(t.Context(), widgets, "default", "a")
	require.ErrorIs(t, err, kube.ErrNotServed)
}

// A webhook may refuse with a 404 of its own, which says nothing of the server.
func TestWebhookThatAnswers404(t *testing.T) {
	api := kubetest.Start(t)
	api.Put(widgetCRD())
	const denied = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"admission webhook \"team\" denied the request: no such team"}`
	client := instead(t, api, of("/apis/example.com/v1/namespaces", 404, "application/json", denied))
	_, err := client.Create(t.Context(), object(widgets, "default", "a", nil))
	assert.ErrorContains(t, err, "no such team")
	assert.False(t, kube.IsNotFound(err))
	assert.NotErrorIs(t, err, kube.ErrNotServed)
	var unreachable *kube.UnreachableError
	assert.NotErrorAs(t, err, &unreachable)
}
