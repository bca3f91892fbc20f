package localtest

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy starts a proxy before the API server until the test ends, and returns a
// kubeconfig of the administrator that leads through it. The proxy's Rewrite may be nil
// and need not set the address.
func (p *Platform) Proxy(t testing.TB, proxy *httputil.ReverseProxy) (kubeconfig string) {
	t.Helper()
	config := p.Config(t)
	upstream, err := url.Parse(config.Host)
	require.NoError(t, err)
	proxy.Transport, err = rest.TransportFor(config)
	require.NoError(t, err)
	rewrite := proxy.Rewrite
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(upstream)
		if rewrite != nil {
			rewrite(r)
		}
	}
	proxy.FlushInterval = -1 // a watch is shown as it comes
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: startTimeout}
	go func() { _ = server.Serve(listener) }() // it ends when the server is closed
	t.Cleanup(func() { _ = server.Close() })

	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: "http://" + listener.Addr().String()}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, file))
	return file
}
