package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func serving(t *testing.T, a *Authority) Pair {
	t.Helper()
	pair, err := a.Ensure("server", Subject{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	return pair
}

func TestKubeconfigIdentifies(t *testing.T) {
	a, err := Open(filepath.Join(t.TempDir(), "pki"))
	require.NoError(t, err)
	pair := serving(t, a)
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	require.NoError(t, err)
	ca, err := os.ReadFile(a.CAFile())
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	var caller string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		caller = subject.CommonName + " of " + subject.Organization[0]
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()

	client, err := a.Ensure("admin", Subject{CommonName: "alice", Organization: "system:masters"})
	require.NoError(t, err)
	kubeconfig, err := a.Kubeconfig("here", server.URL, client)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	transport, err := restTransport(config.CAData, config.CertData, config.KeyData)
	require.NoError(t, err)
	answer, err := (&http.Client{Transport: transport}).Get(config.Host)
	require.NoError(t, err)
	answer.Body.Close()
	assert.Equal(t, "alice of system:masters", caller)
}

func restTransport(ca, cert, key []byte) (http.RoundTripper, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.X509KeyPair(cert, key)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}, err
}

func TestEverythingIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	contents := func() map[string]string {
		a, err := Open(dir)
		require.NoError(t, err)
		serving(t, a)
		_, err = a.EnsureSigningKey()
		require.NoError(t, err)
		files := map[string]string{}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			files[entry.Name()] = string(data)
			info, err := entry.Info()
			require.NoError(t, err)
			assert.Zero(t, info.Mode().Perm()&0o077, entry.Name())
		}
		return files
	}
	first := contents()
	assert.Len(t, first, 6)
	assert.Equal(t, first, contents())
}

func TestCertificatesAreRenewed(t *testing.T) {
	a, err := Open(t.TempDir())
	require.NoError(t, err)
	pair := serving(t, a)
	old, key, err := read(pair)
	require.NoError(t, err)

	old.NotAfter = time.Now().Add(renewBefore - time.Hour)
	require.NoError(t, sign(pair, old, a.cert, key, a.key))
	serving(t, a)
	renewed, _, err := read(pair)
	require.NoError(t, err)
	assert.Greater(t, time.Until(renewed.NotAfter), renewBefore)

	// Another authority, as after someone has deleted ca.crt.
	require.NoError(t, os.Remove(a.CAFile()))
	a, err = Open(a.dir)
	require.NoError(t, err)
	serving(t, a)
	renewed, _, err = read(pair)
	require.NoError(t, err)
	assert.NoError(t, renewed.CheckSignatureFrom(a.cert))
}

func TestBrokenFilesAreNamed(t *testing.T) {
	a, err := Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.CAFile(), []byte("nonsense"), 0o600))
	_, err = Open(a.dir)
	assert.ErrorContains(t, err, a.CAFile())
	assert.ErrorContains(t, err, "delete it")
}

// A program whose clock is behind takes the certificates, too.
func TestCertificatesForASlowClock(t *testing.T) {
	a, err := Open(filepath.Join(t.TempDir(), "pki"))
	require.NoError(t, err)
	pair, err := tls.LoadX509KeyPair(serving(t, a).CertFile, serving(t, a).KeyFile)
	require.NoError(t, err)
	ca, err := os.ReadFile(a.CAFile())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(-30 * time.Minute)})
	require.NoError(t, err)
}
