package acsfake

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
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
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	b.clock.Step(time.Minute)
}

// busy reports whether a task runs or an add-on is being updated.
func (b bench) busy() bool {
	st := b.State()
	for _, task := range st.Tasks {
		if task.State == taskRunning {
			return true
		}
	}
	for _, a := range st.Addons {
		if a.State == addonUpdating {
			return true
		}
	}
	return false
}

// settle moves the clock until nothing is busy.
func (b bench) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		if b.clock.HasWaiters() {
			b.clock.Step(time.Minute)
		}
		return !b.busy()
	}, time.Minute, time.Millisecond)
}

// sign adds the headers of a signature of version 1.
func sign(r *http.Request, body string, now time.Time) { signV1(r, body, now, "HMAC-SHA1", sha1.New) }

func signV1(r *http.Request, body string, now time.Time, method string, hash func() hash.Hash) {
	sum := md5.Sum([]byte(body))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	r.Header.Set("x-acs-version", "2015-12-15")
	r.Header.Set("x-acs-signature-method", method)
	r.Header.Set("Authorization", "acs "+testKey+":"+base64.StdEncoding.EncodeToString(keyed(hash, testSecret, textV1(r))))
}

// signV3 adds the headers of a signature of version 3.
func signV3(r *http.Request, body string, now time.Time) {
	sum := sha256.Sum256([]byte(body))
	r.Header.Set("x-acs-action", "DescribeClusterDetail")
	r.Header.Set("x-acs-version", "2015-12-15")
	r.Header.Set("x-acs-date", now.UTC().Format(time.RFC3339))
	r.Header.Set("x-acs-signature-nonce", rand.Text())
	r.Header.Set("x-acs-content-sha256", hex.EncodeToString(sum[:]))
	authorizeV3(r, append([]string{"host"}, headersOf(r)...))
}

func authorizeV3(r *http.Request, names []string) {
	r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s,SignedHeaders=%s,Signature=%s", algorithmV3, testKey, strings.Join(names, ";"),
		hex.EncodeToString(keyed(sha256.New, testSecret, textV3(r, names)))))
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
	now := b.clock.Now()
	v1 := func(r *http.Request) { sign(r, "{}", now) }
	v3 := func(r *http.Request) { signV3(r, "{}", now) }
	set := func(key, value string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(key, value) } }
	query := func(r *http.Request) { r.URL.RawQuery = "a=b" }
	body := func(r *http.Request) { r.Body = http.NoBody }
	for _, tc := range []struct {
		name, code string
		status     int
		change     []func(*http.Request)
	}{
		{"good", "", 200, []func(*http.Request){v1}},
		{"good by SHA-256", "", 200, []func(*http.Request){func(r *http.Request) { signV1(r, "{}", now, "HMAC-SHA256", sha256.New) }}},
		{"no signature", "IncompleteSignature", 400, nil},
		{"no key", "IncompleteSignature", 400, []func(*http.Request){v1, set("Authorization", "acs someone")}},
		{"other scheme", "IncompleteSignature", 400, []func(*http.Request){v1, set("Authorization", "Bearer x")}},
		{"unknown key", "InvalidAccessKeyId.NotFound", 404, []func(*http.Request){v1, set("Authorization", "acs someone:x")}},
		{"unknown method", "InvalidSignatureMethod", 400, []func(*http.Request){v1, set("x-acs-signature-method", "MD5")}},
		{"other method", "SignatureDoesNotMatch", 400, []func(*http.Request){v1, set("x-acs-signature-method", "HMAC-SHA256")}},
		{"changed header", "SignatureDoesNotMatch", 400, []func(*http.Request){v1, set("x-acs-version", "2016-01-01")}},
		{"changed query", "SignatureDoesNotMatch", 400, []func(*http.Request){v1, query}},
		{"changed body", "SignatureDoesNotMatch", 400, []func(*http.Request){v1, body}},
		{"old", "InvalidTimeStamp.Expired", 400, []func(*http.Request){func(r *http.Request) { sign(r, "{}", now.Add(-time.Hour)) }}},
		{"token of nobody", "InvalidSecurityToken.MismatchWithAccessKey", 400, []func(*http.Request){set("x-acs-security-token", "t"), v1}},

		{"version 3: good", "", 200, []func(*http.Request){v3}},
		{"version 3: with content type and query", "", 200, []func(*http.Request){func(r *http.Request) { r.URL.RawQuery = "b=x+y%2Fz*~&a=&a-b=2"; v3(r) }}},
		{"version 3: nothing but its name", "IncompleteSignature", 400, []func(*http.Request){v3, set("Authorization", "ACS3-HMAC-SHA256 Credential=x")}},
		{"version 3: header that is not signed", "IncompleteSignature", 400, []func(*http.Request){v3, set("x-acs-security-token", "t")}},
		{"version 3: headers out of order", "IncompleteSignature", 400, []func(*http.Request){v3, func(r *http.Request) { authorizeV3(r, append(headersOf(r), "host")) }}},
		{"version 3: unknown key", "InvalidAccessKeyId.NotFound", 404, []func(*http.Request){v3, func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), testKey, "someone", 1))
		}}},
		{"version 3: changed header", "SignatureDoesNotMatch", 400, []func(*http.Request){v3, set("x-acs-version", "2016-01-01")}},
		{"version 3: changed host", "SignatureDoesNotMatch", 400, []func(*http.Request){v3, func(r *http.Request) { r.Host = "other" }}},
		{"version 3: changed query", "SignatureDoesNotMatch", 400, []func(*http.Request){v3, query}},
		{"version 3: changed body", "SignatureDoesNotMatch", 400, []func(*http.Request){v3, body}},
		{"version 3: old", "InvalidTimeStamp.Expired", 400, []func(*http.Request){func(r *http.Request) { signV3(r, "{}", now.Add(-time.Hour)) }}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/clusters/"+testCluster, strings.NewReader("{}"))
			for _, change := range tc.change {
				change(r)
			}
			status, answer := b.send(r)
			assert.Equal(t, tc.status, status, answer)
			if tc.code != "" {
				assert.Equal(t, tc.code, answer["Code"])
				assert.NotContains(t, answer, "code", "the gateway's errors have CamelCase keys")
				assert.NotContains(t, answer["Message"], testSecret)
			}
		})
	}
}

// A nonce is good once, until a request with it would be too old.
func TestNonces(t *testing.T) {
	b := newBench(t, nil)
	request := func() *http.Request {
		r := httptest.NewRequest("GET", "/clusters/"+testCluster, http.NoBody)
		signV3(r, "", b.clock.Now())
		return r
	}
	r := request()
	status, _ := b.send(r)
	assert.Equal(t, 200, status)
	status, answer := b.send(r)
	assert.Equal(t, 400, status)
	assert.Equal(t, "SignatureNonceUsed", answer["Code"])
	b.clock.Step(3 * assumeClockSkew)
	status, _ = b.send(request())
	assert.Equal(t, 200, status)
	assert.Len(t, b.nonces, 1, "the old one is forgotten")
}

// A temporary access key needs its token.
func TestSecurityToken(t *testing.T) {
	b := newBench(t, func(o *Options) { o.SecurityToken = "token" })
	for token, want := range map[string]int{"token": 200, "other": 400, "": 400} {
		r := httptest.NewRequest("GET", "/clusters/"+testCluster, http.NoBody)
		if token != "" {
			r.Header.Set("x-acs-security-token", token)
		}
		signV3(r, "", b.clock.Now())
		status, answer := b.send(r)
		assert.Equal(t, want, status, answer)
	}
}

// The example of the vendor's page on version 3 has the signature that the page says.
func TestExampleOfTheVendor(t *testing.T) {
	r := httptest.NewRequest("POST", "https://ecs.cn-shanghai.aliyuncs.com/?ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai", http.NoBody)
	r.Header.Set("x-acs-action", "RunInstances")
	r.Header.Set("x-acs-version", "2014-05-26")
	r.Header.Set("x-acs-date", "2023-10-26T10:22:32Z")
	r.Header.Set("x-acs-signature-nonce", "3156853299f313e23d1673dc12e1703d")
	r.Header.Set("x-acs-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	assert.Equal(t, "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0",
		hex.EncodeToString(keyed(sha256.New, "YourAccessKeySecret", textV3(r, requiredV3))))
}

func TestOptionsThatAreIncomplete(t *testing.T) {
	_, err := New(Options{ClusterID: "c"})
	assert.ErrorContains(t, err, "region")
	_, err = New(Options{ClusterID: "c", Region: "r", AccessKeyID: "a", AccessKeySecret: "b", State: &State{Version: 99}})
	assert.ErrorContains(t, err, "version 99")
}
