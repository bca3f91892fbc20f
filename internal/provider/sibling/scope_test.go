package sibling

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Clusters in networks of their own may have one address, and clusters behind one proxy have one.
func TestReach(t *testing.T) {
	by := func(proxy string) func(*http.Request) (*url.URL, error) {
		return http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})
	}
	tls := func(ca, name string) rest.TLSClientConfig {
		return rest.TLSClientConfig{CAData: []byte(ca), ServerName: name}
	}
	exec := func(cluster string) *clientcmdapi.ExecConfig {
		return &clientcmdapi.ExecConfig{Command: "tsh", Args: []string{"kube", "credentials", "--kube-cluster=" + cluster}}
	}
	const address = "https://192.168.0.10:6443"
	for name, test := range map[string]struct {
		one, two     rest.Config
		server, user bool // are the same
	}{
		"the same":           {rest.Config{Host: address, Proxy: by("a")}, rest.Config{Host: address, Proxy: by("a")}, true, true},
		"another address":    {rest.Config{Host: address}, rest.Config{Host: "https://192.168.0.11:6443"}, false, false},
		"another proxy":      {rest.Config{Host: address, Proxy: by("a")}, rest.Config{Host: address, Proxy: by("b")}, false, false},
		"another authority":  {rest.Config{Host: address, TLSClientConfig: tls("a", "")}, rest.Config{Host: address, TLSClientConfig: tls("b", "")}, false, false},
		"another name":       {rest.Config{Host: address, TLSClientConfig: tls("a", "x")}, rest.Config{Host: address, TLSClientConfig: tls("a", "y")}, false, false},
		"another token":      {rest.Config{Host: address, BearerToken: "a"}, rest.Config{Host: address, BearerToken: "b"}, true, false},
		"another credential": {rest.Config{Host: address, ExecProvider: exec("a")}, rest.Config{Host: address, ExecProvider: exec("b")}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var one, two Scope
			one.Reach(&test.one)
			two.Reach(&test.two)
			assert.Equal(t, test.server, one.Server == two.Server)
			assert.Equal(t, test.user, one.Access == two.Access)
		})
	}
}
