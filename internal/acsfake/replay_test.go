package acsfake

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/transcript"
)

// replayed is the emulator in the place of the service of a transcript.
type replayed struct {
	bench
	t *testing.T
}

func (r replayed) Ask(method, target, body string) (int, []byte) {
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	sign(request, body, r.clock.Now())
	w := httptest.NewRecorder()
	r.ServeHTTP(w, request)
	return w.Code, w.Body.Bytes()
}

func (r replayed) Wait() {
	require.Eventually(r.t, func() bool {
		if r.clock.HasWaiters() {
			r.clock.Step(10 * time.Second)
			return true
		}
		return !r.busy()
	}, time.Minute, time.Millisecond)
}

// replay sends a transcript to an emulator of its cluster.
func replay(t *testing.T, recorded transcript.Transcript) []string {
	t.Helper()
	require.NotEmpty(t, recorded.Exchanges)
	require.NotEmpty(t, recorded.Origin)
	cluster := strings.Split(recorded.Exchanges[0].Target, "/")[2]
	return transcript.Replay(recorded, replayed{newBench(t, func(o *Options) { o.ClusterID = cluster }), t})
}

// What the service has answered in an account, the emulator answers in the same form.
// Transcripts are recorded by `make testacc`.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("../acs/testdata/transcripts/*.json")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("nobody has recorded a transcript in an account yet: RECORD=1 make testacc")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			recorded, err := transcript.Read(file)
			require.NoError(t, err)
			assert.Empty(t, replay(t, recorded))
		})
	}
}

// A conversation with one emulator, recorded, is understood by another.
func TestRecordAndReplay(t *testing.T) {
	b := newBench(t, nil)
	recorder := &transcript.Recorder{Send: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		return w.Result(), nil
	})}
	proxy := httptest.NewServer(recorder)
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	client, err := acs.New(acs.Config{
		Credentials: acs.Credentials{AccessKeyID: testKey, AccessKeySecret: testSecret},
		Region:      "cn-local", Endpoint: "http://cs.cn-local.aliyuncs.com", Transport: &http.Transport{Proxy: http.ProxyURL(address)},
	})
	require.NoError(t, err)
	ctx, size := t.Context(), int64(1)
	_, err = client.GetCluster(ctx, testCluster)
	require.NoError(t, err)
	started, err := client.CreateNodePool(ctx, testCluster, acs.NodePoolSpec{
		Info:         acs.NodePoolInfo{Name: "planted-name"},
		ScalingGroup: acs.ScalingGroup{InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, VSwitchIDs: []string{"vsw-planted12345"}, DesiredSize: &size},
	})
	require.NoError(t, err)
	_, err = client.GetTask(ctx, started.TaskID)
	require.NoError(t, err)
	b.settle(t)
	_, err = client.GetTask(ctx, started.TaskID)
	require.NoError(t, err)
	_, err = client.GetNodePool(ctx, testCluster, started.PoolID)
	require.NoError(t, err)
	_, err = client.ListNodes(ctx, testCluster, started.PoolID)
	require.NoError(t, err)
	_, err = client.GetAddon(ctx, testCluster, "kube-scheduler")
	require.NoError(t, err)
	_, err = client.DeleteNodePool(ctx, testCluster, started.PoolID, true)
	require.NoError(t, err)
	b.settle(t)
	_, err = client.GetNodePool(ctx, testCluster, started.PoolID)
	require.True(t, acs.IsNotFound(err))

	file := filepath.Join(t.TempDir(), "emulator.json")
	require.NoError(t, recorder.Transcript("an emulator, in a test").Write(file))
	recorded, err := transcript.Read(file)
	require.NoError(t, err)
	assert.Empty(t, replay(t, recorded))

	recorded.Exchanges[0].Answer.(map[string]any)["invented"] = true
	last := &recorded.Exchanges[len(recorded.Exchanges)-1]
	last.Answer.(map[string]any)["code"] = "ErrorOfAnotherKind"
	differences := replay(t, recorded)
	require.Len(t, differences, 2, "%v", differences)
	assert.Contains(t, differences[0], ".invented is missing")
	assert.Contains(t, differences[1], `.code is "ErrorNodePoolNotFound" instead of "ErrorOfAnotherKind"`)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
