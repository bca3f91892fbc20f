package kube_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
)

var (
	namespaces  = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	configMaps  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	crds        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	widgets     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

// start returns a server, a client of it, and a context that ends with a hanging test.
func start(t *testing.T) (*kubetest.Server, *kube.Client, context.Context) {
	t.Helper()
	server := kubetest.Start(t)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return server, client, ctx
}

// object builds an object; labels are given as key, value, key, value.
func object(gvk schema.GroupVersionKind, namespace, name string, fields map[string]any, labels ...string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	for k, v := range fields {
		obj.Object[k] = v
	}
	obj.SetGroupVersionKind(gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	if len(labels) > 0 {
		m := map[string]string{}
		for i := 0; i < len(labels); i += 2 {
			m[labels[i]] = labels[i+1]
		}
		obj.SetLabels(m)
	}
	return obj
}

func configMap(name, value string) *unstructured.Unstructured {
	return object(configMaps, "default", name, map[string]any{"data": map[string]any{"key": value}})
}

func widgetCRD(labels ...string) *unstructured.Unstructured {
	return object(crds, "", "widgets.example.com", map[string]any{"spec": map[string]any{
		"group": "example.com", "scope": "Namespaced",
		"names":    map[string]any{"kind": "Widget", "plural": "widgets"},
		"versions": []any{map[string]any{"name": "v1"}},
	}}, labels...)
}

func TestApplyCreatesAndUpdates(t *testing.T) {
	server, client, ctx := start(t)

	_, err := client.Apply(ctx, configMap("a", "one"))
	require.NoError(t, err)
	_, err = client.Apply(ctx, configMap("a", "two"))
	require.NoError(t, err)

	got, err := client.Get(ctx, configMaps, "default", "a")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"key": "two"}, got.Object["data"])
	assert.Equal(t, 2, server.Writes())
}

func TestApplyNamesTheOtherManager(t *testing.T) {
	server, client, ctx := start(t)
	server.Put(configMap("a", "theirs"))

	_, err := client.Apply(ctx, configMap("a", "ours"))

	var conflict *kube.ConflictError
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, []kube.Conflict{{Manager: "test", Field: ".data.key"}}, conflict.Conflicts)
	assert.ErrorContains(t, err, `ConfigMap default/a was changed by someone else: .data.key is owned by "test"`)
	assert.ErrorContains(t, err, "`kubectl edit -n default configmap a`")
}

func TestApplyTakesTheFieldsThatItMay(t *testing.T) {
	server, client, ctx := start(t)
	both := object(configMaps, "default", "a", map[string]any{"data": map[string]any{"key": "theirs", "other": "theirs"}})
	ours := object(configMaps, "default", "a", map[string]any{"data": map[string]any{"key": "ours", "other": "ours"}})
	server.Put(both)

	_, err := client.Apply(ctx, ours, kube.Field{"data", "key"})
	require.ErrorAs(t, err, new(*kube.ConflictError), "the other field is not to be taken")
	_, err = client.Apply(ctx, ours, kube.Field{"data", "key"}, kube.Field{"data", "other"})
	require.NoError(t, err)

	got, err := client.Get(ctx, configMaps, "default", "a")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"key": "ours", "other": "ours"}, got.Object["data"])
}

func TestScopeAndKindMistakes(t *testing.T) {
	_, client, ctx := start(t)

	_, err := client.Apply(ctx, object(configMaps, "", "a", nil))
	assert.ErrorContains(t, err, "lives in a namespace")
	_, err = client.Get(ctx, namespaces, "default", "a")
	assert.ErrorContains(t, err, "cluster-scoped")
	_, err = client.Get(ctx, widgets, "default", "a")
	assert.ErrorIs(t, err, kube.ErrNotServed)
	_, err = client.Get(ctx, configMaps, "default", "absent")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

func TestServedFollowsTheServer(t *testing.T) {
	server, client, ctx := start(t)

	_, ok, err := client.Served(ctx, "example.com", "Widget")
	require.NoError(t, err)
	assert.False(t, ok)
	_, err = client.Apply(ctx, object(widgets, "default", "w", nil))
	require.ErrorIs(t, err, kube.ErrNotServed)

	server.Put(widgetCRD())
	version, ok, err := client.Served(ctx, "example.com", "Widget")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "v1", version)
	_, err = client.Apply(ctx, object(widgets, "default", "w", nil))
	assert.NoError(t, err, "the mapper asks again after a miss")

	server.Remove(crds, "", "widgets.example.com")
	_, err = client.List(ctx, widgets, "default", "")
	assert.ErrorIs(t, err, kube.ErrNotServed, "it has gone since discovery")
}

// Who has just created a CRD waits until what it defines is served, and nobody waits for one that is not there.
func TestAwaitServed(t *testing.T) {
	server, client, ctx := start(t)
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	require.NoError(t, client.AwaitServed(ctx, resource))

	early := widgetCRD()
	unstructured.RemoveNestedField(early.Object, "spec", "versions") // the server serves what it has a version of
	server.Put(early)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := client.AwaitServed(short, resource)
	require.ErrorContains(t, err, "the cluster has the CRD widgets.example.com, and does not serve what that defines")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ended := make(chan error)
	go func() { ended <- client.AwaitServed(ctx, resource) }()
	server.Put(widgetCRD())
	require.NoError(t, <-ended)
	_, err = client.Get(ctx, widgets, "default", "absent")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

// Who believes asks once for what is not served, within the time, and sees at once what is.
func TestBelieving(t *testing.T) {
	server, client, ctx := start(t)
	believing := client.Believing(time.Hour)
	for range 3 {
		_, err := believing.Get(ctx, widgets, "default", "w")
		require.ErrorIs(t, err, kube.ErrNotServed)
		_, ok, err := believing.Served(ctx, "example.com", "Widget")
		require.NoError(t, err)
		assert.False(t, ok)
	}
	assert.Equal(t, 1, server.Discoveries())

	server.Put(widgetCRD())
	_, err := believing.Get(ctx, widgets, "default", "w")
	require.ErrorIs(t, err, kube.ErrNotServed)
	_, err = client.Believing(time.Nanosecond).Get(ctx, widgets, "default", "w")
	assert.True(t, kube.IsNotFound(err), "%v", err)
	_, err = believing.Get(ctx, widgets, "default", "w")
	assert.True(t, kube.IsNotFound(err), "what one client has learnt the other knows: %v", err)
}

func TestUnreachableServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host := "https://" + listener.Addr().String()
	require.NoError(t, listener.Close())

	client, err := kube.New(&rest.Config{Host: host})
	require.NoError(t, err)
	_, err = client.Get(context.Background(), configMaps, "default", "a")
	require.ErrorContains(t, err, "cannot reach the Kubernetes API at "+host+": connection refused; check")
	_, _, err = client.Served(context.Background(), "apps", "Deployment")
	require.ErrorContains(t, err, "connection refused")
	assert.NotContains(t, err.Error(), "Get \"", "net/http's own prefix only repeats the address")
}

// What answers is not who the kubeconfig means, or is spoken to in another way.
func TestServerThatIsSpokenToWrongly(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	for name, test := range map[string]struct{ host, want string }{
		"another authority": {server.URL, "the kubeconfig's certificate authority does not vouch for it (x509: certificate signed by unknown authority); check that the kubeconfig"},
		"plain HTTP":        {strings.Replace(server.URL, "https://", "http://", 1), "it serves HTTPS, and the address says http; check that the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kube.New(&rest.Config{Host: test.host})
			require.NoError(t, err)
			_, err = client.Get(context.Background(), configMaps, "default", "a")
			assert.ErrorContains(t, err, "cannot reach the Kubernetes API at "+test.host+": "+test.want)
		})
	}
}

// An answer of 400 that is Kubernetes' own is left as it is.
func TestRequestThatTheServerRejects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no such field","reason":"BadRequest","code":400}`)
	}))
	t.Cleanup(server.Close)
	client, err := kube.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	_, err = client.Typed.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	assert.ErrorContains(t, err, "no such field")
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hanging.Close)
	client, err := kube.New(&rest.Config{Host: hanging.URL, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)

	_, _, err = client.Served(context.Background(), "apps", "Deployment")
	assert.ErrorContains(t, err, "cannot reach the Kubernetes API at "+hanging.URL+": no answer within 50ms")
	_, err = client.Typed.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	assert.ErrorContains(t, err, "no answer within 50ms")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = client.Typed.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	assert.ErrorIs(t, err, context.Canceled, "the caller's own end is not the server's fault")
}

// What takes connections and never says a word, as a balancer without a server behind it, is told apart from a
// server that takes its time: it does not even greet.
func TestServerThatSaysNothing(t *testing.T) {
	for name, then := range map[string]func(net.Conn){
		"waits":  func(net.Conn) {},
		"closes": func(conn net.Conn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			var taken atomic.Int32
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					taken.Add(1)
					then(conn)
				}
			}()
			host := "https://" + listener.Addr().String()
			client, err := kube.New(&rest.Config{Host: host, Timeout: time.Hour})
			require.NoError(t, err)
			_, err = client.Get(t.Context(), configMaps, "default", "a")
			require.ErrorContains(t, err, "cannot reach the Kubernetes API at "+host+": it takes connections, and says nothing; check")
			assert.EqualValues(t, 1, taken.Load(), "it is not asked again and again")
		})
	}
}

func TestServerThatAsksForALongPause(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(busy.Close)
	client, err := kube.New(&rest.Config{Host: busy.URL})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = client.Typed.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	assert.True(t, apierrors.IsTooManyRequests(err), "an answer, and no hour of waiting for another: %v", err)
}

func TestWatchesAreNotBounded(t *testing.T) {
	server := kubetest.Start(t)
	cfg := server.Config()
	cfg.Timeout = 200 * time.Millisecond
	client, err := kube.New(cfg)
	require.NoError(t, err)
	watch, err := client.Typed.CoreV1().ConfigMaps("default").Watch(context.Background(), metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	defer watch.Stop()
	select {
	case event, open := <-watch.ResultChan():
		assert.Fail(t, "the watch ended", "%v %v", event, open)
	case <-time.After(2 * cfg.Timeout):
	}
	server.Put(configMap("a", "x"))
	assert.Equal(t, "ADDED", string((<-watch.ResultChan()).Type))
}

func TestConfigFrom(t *testing.T) {
	server := kubetest.Start(t)
	text := kubeconfig(server.Config().Host)

	cfg, err := kube.ConfigFrom(kube.Access{Content: text})
	require.NoError(t, err)
	assert.Equal(t, server.Config().Host, cfg.Host)

	t.Setenv("KUBECONFIG", writeFile(t, text))
	cfg, err = kube.ConfigFrom(kube.Access{Context: "other"})
	require.NoError(t, err)
	assert.Equal(t, "https://other.example:6443", cfg.Host)

	for name, test := range map[string]struct {
		access kube.Access
		want   string
	}{
		"no such file":             {kube.Access{Path: "/nowhere/config"}, "kubeconfig /nowhere/config: file does not exist; check the path"},
		"not a kubeconfig":         {kube.Access{Content: "[1, 2]"}, "the kubeconfig text is not a kubeconfig: it is neither a YAML nor a JSON object with apiVersion and kind"},
		"unknown context":          {kube.Access{Content: text, Context: "prod"}, `has no context "prod"; its contexts: main, other`},
		"a password in an address": {kube.Access{Content: strings.Replace(text, "https://other.example:6443", "https://me:s3cret@ other", 1)}, `server of cluster "other" is not a URL`},
		"nothing in it":            {kube.Access{Content: "apiVersion: v1\nkind: Config\n"}, "the kubeconfig text names no cluster at all: take the cluster's own"},
		"no current context":       {kube.Access{Content: strings.Replace(text, "current-context", "x-context", 1)}, "has no current context: name one of its contexts: main, other"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kube.ConfigFrom(test.access)
			assert.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestConfigFromWithoutAnySource(t *testing.T) {
	t.Setenv("KUBECONFIG", writeFile(t, "")+"-missing")
	_, err := kube.ConfigFrom(kube.Access{})
	assert.ErrorContains(t, err, "environment variable KUBECONFIG")
}

// In a pod the file in the home folder goes before the pod's own account, as client-go has it.
func TestConfigFromInAPod(t *testing.T) {
	home := clientcmd.RecommendedHomeFile
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = home })
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")

	clientcmd.RecommendedHomeFile = writeFile(t, kubeconfig("https://home.example:6443"))
	cfg, err := kube.ConfigFrom(kube.Access{})
	require.NoError(t, err)
	assert.Equal(t, "https://home.example:6443", cfg.Host)

	for name, file := range map[string]string{"no file": filepath.Join(t.TempDir(), "none"), "an empty file": writeFile(t, "")} {
		clientcmd.RecommendedHomeFile = file
		_, err = kube.ConfigFrom(kube.Access{})
		assert.ErrorContains(t, err, "read the pod's service account", name)
		assert.NotErrorIs(t, err, kube.ErrNoSource, name)
	}

	clientcmd.RecommendedHomeFile = writeFile(t, "[1, 2]")
	_, err = kube.ConfigFrom(kube.Access{})
	assert.ErrorContains(t, err, "cannot be read")
	assert.NotErrorIs(t, err, kube.ErrNoSource, "a file that cannot be read is none that is missing")

	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), "none")
	_, err = kube.ConfigFrom(kube.Access{})
	assert.ErrorIs(t, err, kube.ErrNoSource)
}
