package acsfake

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	testCluster = "c-test"
	testKey     = "LTAI-test"
	testSecret  = "secret"
)

// bench is an emulator under a clock that only the test moves.
type bench struct {
	*Server
	clock *clocktesting.FakeClock
}

func newBench(t *testing.T, change func(*Options)) bench {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	opts := Options{
		ClusterID: testCluster, Region: "cn-local", KubernetesVersion: "1.36.3-aliyun.1",
		AccessKeyID: testKey, AccessKeySecret: testSecret, TaskDuration: 12 * time.Second, Clock: clock,
	}
	if change != nil {
		change(&opts)
	}
	s, err := New(opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return bench{s, clock}
}

// step lets the task in progress do one stage: it waits until someone waits for the clock.
func (b bench) step(t *testing.T) {
	t.Helper()
	require.Eventually(t, b.clock.HasWaiters, 10*time.Second, time.Millisecond)
	b.clock.Step(time.Minute)
}

// settle moves the clock until no task runs and no add-on is being updated.
func (b bench) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		if b.clock.HasWaiters() {
			b.clock.Step(time.Minute)
		}
		st := b.State()
		for _, task := range st.Tasks {
			if task.State == taskRunning {
				return false
			}
		}
		for _, a := range st.Addons {
			if a.State == addonUpdating {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond)
}

// sign adds the headers of a signature.
func sign(r *http.Request, body string, now time.Time) {
	sum := md5.Sum([]byte(body))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	r.Header.Set("x-acs-version", "2015-12-15")
	mac := hmac.New(sha1.New, []byte(testSecret))
	mac.Write([]byte(canonical(r)))
	r.Header.Set("Authorization", "acs "+testKey+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// ask sends a signed request and returns the status and the decoded body.
func (b bench) ask(method, target, body string) (int, map[string]any) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	sign(r, body, b.clock.Now())
	return b.send(r)
}

func (b bench) send(r *http.Request) (int, map[string]any) {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	answer := map[string]any{}
	if raw := bytes.TrimSpace(w.Body.Bytes()); len(raw) > 0 {
		if err := json.Unmarshal(raw, &answer); err != nil {
			panic(fmt.Sprintf("answer is not a JSON object: %s", raw))
		}
	}
	return w.Code, answer
}

const pools = "/clusters/" + testCluster + "/nodepools"

// poolBodyOf renders a create request.
func poolBodyOf(name string, size int, more string) string {
	return fmt.Sprintf(`{"nodepool_info":{"name":%q},"scaling_group":{"instance_types":["ecs.gn6v-c10g1.20xlarge"],"vswitch_ids":["vsw-1"],"desired_size":%d}%s}`, name, size, more)
}

// create makes a settled pool and returns its path.
func (b bench) create(t *testing.T, body string) string {
	t.Helper()
	status, answer := b.ask("POST", pools, body)
	require.Equal(t, 200, status, answer)
	b.settle(t)
	return pools + "/" + answer["nodepool_id"].(string)
}

func poolState(t *testing.T, b bench, path string) (state string, registered int) {
	t.Helper()
	status, answer := b.ask("GET", path, "")
	require.Equal(t, 200, status, answer)
	st := answer["status"].(map[string]any)
	_, nodes := b.ask("GET", "/clusters/"+testCluster+"/nodes?nodepool_id="+answer["nodepool_info"].(map[string]any)["nodepool_id"].(string), "")
	return st["state"].(string), len(nodes["nodes"].([]any))
}

func TestRoutes(t *testing.T) {
	b := newBench(t, nil)
	for _, tc := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"GET", "/nothing", 501, "NotImplemented"},
		{"PATCH", pools, 501, "NotImplemented"},
		{"POST", pools + "/np1", 501, "NotImplemented"},
		{"GET", "/clusters/other/nodepools", 404, "ErrorClusterNotFound"},
		{"GET", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"PUT", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"DELETE", pools + "/np1", 404, "ErrorNodePoolNotFound"},
		{"GET", "/tasks/T-1", 404, "ErrorTaskNotFound"},
		{"GET", "/addons/none", 404, "AddonNotFound"},
		{"GET", "/clusters/" + testCluster + "/nodes?pageSize=101", 400, "InvalidParameter.PageSize"},
		{"GET", "/clusters/" + testCluster + "/nodes?pageNumber=0", 400, "InvalidParameter.PageNumber"},
	} {
		body := ""
		if tc.method == "PUT" {
			body = "{}"
		}
		status, answer := b.ask(tc.method, tc.target, body)
		assert.Equal(t, tc.status, status, "%s %s", tc.method, tc.target)
		assert.Equal(t, tc.code, answer["code"], "%s %s", tc.method, tc.target)
	}
}

func TestGateway(t *testing.T) {
	b := newBench(t, nil)
	for _, tc := range []struct {
		name, code string
		status     int
		spoil      func(*http.Request)
	}{
		{"good", "", 200, func(*http.Request) {}},
		{"no signature", "IncompleteSignature", 400, func(r *http.Request) { r.Header.Del("Authorization") }},
		{"other scheme", "IncompleteSignature", 400, func(r *http.Request) { r.Header.Set("Authorization", "ACS3-HMAC-SHA256 Credential=x") }},
		{"unknown key", "InvalidAccessKeyId.NotFound", 404, func(r *http.Request) { r.Header.Set("Authorization", "acs someone:x") }},
		{"changed header", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.Header.Set("x-acs-version", "2016-01-01") }},
		{"changed query", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.URL.RawQuery = "a=b" }},
		{"changed body", "SignatureDoesNotMatch", 400, func(r *http.Request) { r.Body = http.NoBody }},
		{"old", "InvalidTimeStamp.Expired", 400, func(r *http.Request) { sign(r, "{}", b.clock.Now().Add(-time.Hour)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/clusters/"+testCluster, strings.NewReader("{}"))
			sign(r, "{}", b.clock.Now())
			tc.spoil(r)
			status, answer := b.send(r)
			assert.Equal(t, tc.status, status)
			if tc.code != "" {
				assert.Equal(t, tc.code, answer["Code"])
				assert.NotContains(t, answer, "code", "the gateway's errors have CamelCase keys")
				assert.NotContains(t, answer["Message"], testSecret)
			}
		})
	}
}

func TestOptionsThatAreIncomplete(t *testing.T) {
	_, err := New(Options{ClusterID: "c"})
	assert.ErrorContains(t, err, "region")
	_, err = New(Options{ClusterID: "c", Region: "r", AccessKeyID: "a", AccessKeySecret: "b", State: &State{Version: 99}})
	assert.ErrorContains(t, err, "version 99")
}
