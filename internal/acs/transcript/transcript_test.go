package transcript

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	clusterID = "c0123456789abcdef0123456789abcdef"
	poolID    = "npfedcba9876543210fedcba9876543210"
)

// through starts a recorder before a service, and returns a client that goes through it.
func through(t *testing.T, service http.HandlerFunc) (*Recorder, *http.Client) {
	t.Helper()
	recorder := &Recorder{Send: roundTrip(func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, "https", r.URL.Scheme)
		w := httptest.NewRecorder()
		service(w, r)
		return w.Result(), nil
	})}
	proxy := httptest.NewServer(recorder)
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	return recorder, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address)}}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Nothing that names an account, a machine, a person or a secret is in a transcript.
func TestNothingOfTheAccountStays(t *testing.T) {
	recorder, client := through(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "cs.cn-hangzhou.aliyuncs.com", r.Host, "the host is what was signed")
		_, _ = w.Write([]byte(`{"state":"active","code":"10.1.2.3","account":1234567890123456,"size":3,"ok":true,"none":null,
			"runtime":"containerd","current_version":"1.36.3-aliyun.1","instance_types":["ecs.gn6v-c10g1.20xlarge"],
			"nodepool_info":{"nodepool_id":"` + poolID + `","name":"secret-project","resource_group_id":"rg-acfm1234567890"},
			"nodes":[{"node_name":"cn-hangzhou.10.1.2.3","instance_id":"i-bp1234567890","type":"i-bp1234567890"}],
			"meta_data":"{\"AccountId\":\"1234567890123456\"}","arn":"acs:ram::1234567890123456:role/admin"}`))
	})
	request, err := http.NewRequest("PUT", "http://cs.cn-hangzhou.aliyuncs.com/clusters/"+clusterID+"/nodepools/"+poolID+
		`?NodepoolName=secret-project&force=true&instance_ids=["i-bp1234567890"]`, strings.NewReader(`{"login_password":"hunter2","name":"secret-project","spot_strategy":"NoSpot"}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "ACS3-HMAC-SHA256 Credential=LTAIkey,SignedHeaders=host,Signature=abcdef")
	request.Header.Set("x-acs-security-token", "the-token")
	request.Header.Set("x-acs-action", "ModifyClusterNodePool")
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())

	file := filepath.Join(t.TempDir(), "transcripts", "pool.json")
	require.NoError(t, recorder.Transcript("a test").Write(file))
	got, err := Read(file)
	require.NoError(t, err)
	require.Len(t, got.Exchanges, 1)
	e := got.Exchanges[0]
	assert.Equal(t, "ModifyClusterNodePool", e.Operation)
	assert.Equal(t, "/clusters/c-1/nodepools/np-1?NodepoolName=text-1&force=true&instance_ids=%5B%22i-1%22%5D", e.Target)
	assert.Equal(t, map[string]any{"login_password": "text-2", "name": "text-1", "spot_strategy": "NoSpot"}, e.Request)
	assert.Equal(t, map[string]any{
		"state": "active", "code": "text-5", "account": 0.0, "size": 3.0, "ok": true, "none": nil,
		"runtime": "containerd", "current_version": "1.36.3-aliyun.1", "instance_types": []any{"ecs.gn6v-c10g1.20xlarge"},
		"nodepool_info": map[string]any{"nodepool_id": "np-1", "name": "text-1", "resource_group_id": "rg-1"},
		"nodes":         []any{map[string]any{"node_name": "text-5", "instance_id": "i-1", "type": "i-1"}},
		"meta_data":     "text-5", "arn": "text-3",
	}, with(e.Answer, "code", "text-5", "node_name", "text-5", "meta_data", "text-5"))
	text, err := json.Marshal(got)
	require.NoError(t, err)
	for _, hidden := range []string{"secret-project", "hunter2", "10.1.2.3", "1234567890", "LTAIkey", "the-token", "abcdef", "cn-hangzhou"} {
		assert.NotContains(t, string(text), hidden)
	}
}

// with sets texts of which only matters that they are placeholders.
func with(v any, pairs ...string) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for key, value := range object {
		for i := 0; i < len(pairs); i += 2 {
			if text, ok := value.(string); ok && key == pairs[i] && strings.HasPrefix(text, "text-") {
				object[key] = pairs[i+1]
			}
		}
		if list, ok := value.([]any); ok {
			for _, element := range list {
				with(element, pairs...)
			}
		}
	}
	return object
}

// An exchange that only repeats the one before is written down once.
func TestRepetitions(t *testing.T) {
	states := []string{"running", "running", "success", "success"}
	recorder, client := through(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"state":"` + states[0] + `"}`))
		states = states[1:]
	})
	for len(states) > 0 {
		response, err := client.Get("http://cs.cn-hangzhou.aliyuncs.com/tasks/T-1234567890")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	assert.Len(t, recorder.Transcript("a test").Exchanges, 2)
}

func TestTranscriptsThatAreNone(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "nothing"))
	assert.Error(t, err)
	_, err = Read("transcript.go")
	assert.ErrorContains(t, err, "is no transcript")
}

// answers is a service with one answer after the other.
type answers struct {
	asked  []string
	answer []string
	status int
	waited int
}

func (a *answers) Ask(method, target, body string) (int, []byte) {
	a.asked = append(a.asked, method+" "+target+" "+body)
	answer := a.answer[0]
	if len(a.answer) > 1 {
		a.answer = a.answer[1:]
	}
	return a.status, []byte(answer)
}

func (a *answers) Wait() { a.waited++ }

func TestDifferences(t *testing.T) {
	recorded := map[string]any{"state": "active", "size": 1.0, "on": true, "name": "text-1", "list": []any{map[string]any{"a": "x"}}, "none": nil}
	for name, tc := range map[string]struct {
		answer string
		status int
		want   []string
	}{
		"none":              {`{"state":"active","size":2,"on":false,"name":"n","list":[{"a":"y"},{"a":"z"}],"none":"x"}`, 200, nil},
		"empty list":        {`{"state":"active","size":2,"on":false,"name":"n","list":[],"none":null}`, 200, nil},
		"other status":      {`{}`, 404, []string{"status 404 instead of 200"}},
		"other state":       {`{"state":"failed","size":2,"on":false,"name":"n","list":[],"none":null}`, 200, []string{`.state is "failed" instead of "active"`}},
		"key is missing":    {`{"state":"active","size":2,"on":false,"list":[],"none":null}`, 200, []string{".name is missing"}},
		"key too much":      {`{"state":"active","size":2,"on":false,"name":"n","list":[{"a":"y","b":1}],"none":null}`, 200, []string{".list[0].b is not in the transcript"}},
		"kinds":             {`{"state":1,"size":"2","on":"no","name":"n","list":{},"none":null}`, 200, []string{".state is ", ".size is ", ".on is ", ".list is "}},
		"no object":         {`[]`, 200, []string{" is []interface {} instead of map"}},
		"nothing":           {``, 200, []string{"one of the answers has no body"}},
		"text, not in JSON": {`out of order`, 200, []string{" is string instead of map"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Replay(Transcript{Exchanges: []Exchange{{Operation: "Op", Method: "POST", Target: "/x", Status: 200, Answer: recorded}}},
				&answers{answer: []string{tc.answer}, status: tc.status})
			require.Len(t, got, len(tc.want), "%v", got)
			for i, want := range tc.want {
				_, after, _ := strings.Cut(strings.Join(got, "\n"), "1. Op POST /x: ")
				assert.Contains(t, after, want, i)
			}
		})
	}
}

// Names that the service gives take the place of the recorded ones, and reads wait for the recorded state.
func TestNamesAndStates(t *testing.T) {
	service := &answers{status: 200, answer: []string{`{"id":"np9"}`, `{"state":"busy"}`, `{"state":"active"}`}}
	got := Replay(Transcript{Exchanges: []Exchange{
		{Method: "POST", Target: "/pools", Request: map[string]any{"name": "text-1"}, Status: 200, Answer: map[string]any{"id": "np-1"}},
		{Method: "GET", Target: "/pools/np-1", Status: 200, Answer: map[string]any{"state": "active"}},
	}}, service)
	assert.Empty(t, got)
	assert.Equal(t, []string{`POST /pools {"name":"text-1"}`, "GET /pools/np9 ", "GET /pools/np9 "}, service.asked)
	assert.Equal(t, 1, service.waited)
}
