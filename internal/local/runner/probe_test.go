package runner

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	_, text, err := net.SplitHostPort(u.Host)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	return int32(port)
}

func TestProbes(t *testing.T) {
	healthy := true
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer secure.Close()
	ports := []corev1.ContainerPort{{Name: "https", ContainerPort: portOf(t, secure.URL)}}
	ask := func(handler corev1.ProbeHandler) bool {
		return prober(&corev1.Probe{ProbeHandler: handler}, "127.0.0.1", ports)(context.Background())
	}
	byNumber := intstr.FromInt32(portOf(t, plain.URL))
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: byNumber}}
	getTLS := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("https"), Scheme: corev1.URISchemeHTTPS}}
	socket := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: byNumber}}
	assert.True(t, ask(get))
	assert.True(t, ask(getTLS))
	assert.True(t, ask(socket))
	assert.True(t, ask(corev1.ProbeHandler{Exec: &corev1.ExecAction{}}), "there is no container to run a command in")

	healthy = false
	assert.False(t, ask(get))
	assert.False(t, ask(getTLS))
	plain.Close()
	assert.False(t, ask(get))
	assert.False(t, ask(socket))
}

func TestReadiness(t *testing.T) {
	for name, test := range map[string]struct {
		threshold      int
		answers, ready string // of each probe: y or n
	}{
		"a failure is none":     {3, "ynynnyy", "yyyyyyy"},
		"failures in a row":     {3, "ynnnnyn", "yyynnyy"},
		"nothing before ready":  {3, "nnyn", "nnyy"},
		"at the first failure":  {1, "ynyn", "ynyn"},
		"it never has answered": {3, "nnnn", "nnnn"},
	} {
		t.Run(name, func(t *testing.T) {
			r, ready := &readiness{threshold: test.threshold}, ""
			for _, answer := range test.answers {
				if r.after(answer == 'y') {
					ready += "y"
				} else {
					ready += "n"
				}
			}
			assert.Equal(t, test.ready, ready)
		})
	}
}
