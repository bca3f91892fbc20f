package integration

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// timestamps are those of JSON bodies, of seconds and of microseconds.
var timestamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// protobuf is what a client that follows metadata would rather have than JSON.
var protobuf = regexp.MustCompile(`application/vnd\.kubernetes\.protobuf[^,]*,?`)

// shift moves every timestamp of a body.
func shift(body []byte, by time.Duration) []byte {
	return timestamps.ReplaceAllFunc(body, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return text
		}
		layout := time.RFC3339
		if bytes.ContainsRune(text, '.') {
			layout = "2006-01-02T15:04:05.000000Z"
		}
		return []byte(at.Add(by).UTC().Format(layout))
	})
}

// skewed starts a proxy before the API server behind which the API server's clock is
// ahead by the given time: every timestamp that it answers is moved, and those that it
// is told are moved back. It has the API server answer in JSON, and returns a kubeconfig
// for programs that write JSON.
func skewed(t *testing.T, ahead time.Duration) (kubeconfig string) {
	t.Helper()
	return localtest.Start(t).Proxy(t, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Set("Accept-Encoding", "identity")
			r.Out.Header.Set("Accept", protobuf.ReplaceAllString(r.In.Header.Get("Accept"), ""))
			if r.Out.Body != nil {
				body, err := io.ReadAll(r.Out.Body)
				if err != nil {
					body = nil // the API server complains about what is missing
				}
				body = shift(body, -ahead)
				r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Content-Length")
			r.ContentLength = -1
			r.Body = &shifted{lines: bufio.NewReader(r.Body), source: r.Body, by: ahead}
			return nil
		},
	})
}

// shifted is a body whose timestamps are moved line by line: a watch is one object per line.
type shifted struct {
	lines  *bufio.Reader
	source io.Closer
	by     time.Duration
	rest   []byte
}

func (s *shifted) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		s.rest = shift(line, s.by)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *shifted) Close() error { return s.source.Close() }

// The proxy shows another clock, and nothing else.
func TestSkewedClock(t *testing.T) {
	s := newTestCluster(t)
	config, err := clientcmd.BuildConfigFromFlags("", skewed(t, time.Hour))
	require.NoError(t, err)
	config.ContentType = "application/json"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
	require.NoError(t, err)
	same, err := api().CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, namespace.CreationTimestamp.Equal(&metav1.Time{Time: same.CreationTimestamp.Add(time.Hour)}))
	namespace.CreationTimestamp, namespace.ManagedFields = same.CreationTimestamp, same.ManagedFields
	require.Equal(t, same, namespace)
}
