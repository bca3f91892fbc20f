package kills

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// point is a moment in a command of terraform: the n-th request of the provider, or the
// n-th that writes. The zero value is never.
type point struct {
	number int
	writes bool
	// answered means that the server carries the request out, and only its answer is lost.
	answered bool
	// alone means that terraform alone dies, and its provider is left behind.
	alone bool
	// once means the first request for which it is true, instead of the n-th.
	once func() bool
}

func (p point) String() string {
	what, when := "request", "before"
	if p.writes {
		what = "write"
	}
	if p.answered {
		when = "after"
	}
	if p.alone {
		when = "terraform alone, " + when
	}
	return fmt.Sprintf("%s %s %d", when, what, p.number)
}

// gate is what the provider's requests to both servers go through.
type gate struct {
	mu sync.Mutex
	// requests and writes of the command so far.
	requests, writes int
	at               point
	kill             func(alone bool)
	fatal            string // the request that the command died at
}

// start begins to count for a command that dies at a point.
func (g *gate) start(at point, kill func(alone bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests, g.writes, g.at, g.kill, g.fatal = 0, 0, at, kill, ""
}

// seen returns how many requests the command has made, and which it died at.
func (g *gate) seen() (requests, writes int, died string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests, g.writes, g.fatal
}

// arrive counts a request. now tells to kill the command before the request gets on.
func (g *gate) arrive(r *http.Request) (fatal, now bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	number := g.requests
	write := writes(r)
	if write {
		g.writes++
	}
	if g.at.writes {
		if !write {
			return false, false
		}
		number = g.writes
	}
	due := number == g.at.number
	if g.at.once != nil {
		due = g.fatal == "" && g.at.once()
	}
	if !due || g.fatal != "" {
		return false, false
	}
	g.fatal = r.Method + " " + r.URL.Path
	endless := r.URL.Query().Get("watch") != ""
	return true, !g.at.answered || endless
}

// writes tells a request that changes something from a question.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" && path.Base(r.URL.Path) != "selfsubjectaccessreviews"
}

// guard puts the gate before a server. It reads a request whole before it passes it on: a
// proxy that still looks for the end of the request when the answer begins would find it
// closed, and cut the answer off.
func (g *gate) guard(proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // who sent it has died
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		fatal, now := g.arrive(r)
		if fatal && now {
			g.kill(g.at.alone)
			panic(http.ErrAbortHandler)
		}
		if fatal {
			recorder := httptest.NewRecorder()
			proxy.ServeHTTP(recorder, r) // carried out, whoever waits for the answer
			g.kill(g.at.alone)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})
}

// serve puts the gate before the server at an address, and returns the address of both.
func (g *gate) serve(t *testing.T, address string) string {
	t.Helper()
	upstream, err := url.Parse(address)
	require.NoError(t, err)
	server := httptest.NewServer(g.guard(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:     &http.Transport{DisableKeepAlives: true}, // a request that dies takes no other one along
		FlushInterval: -1,                                       // a watch is shown as it comes
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// environment is the environment of a provider that talks to the platform through the gate.
func (g *gate) environment(t *testing.T, platform *localtest.Platform) []string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", platform.Proxy(t, &httputil.ReverseProxy{}))
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	acctest.WriteKubeconfig(t, kubeconfig, g.serve(t, config.Host))
	return append(platform.Environ(), "GPUPLAN_CS_ENDPOINT="+g.serve(t, platform.Env["GPUPLAN_CS_ENDPOINT"]), "KUBECONFIG="+kubeconfig)
}
