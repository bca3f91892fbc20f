package acs

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseError(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		want       Error
	}{
		{"gateway", `{"Code":"SignatureDoesNotMatch","Message":"m","RequestId":"R","HostId":"h","Recommend":"u"}`, 400, Error{Status: 400, Code: "SignatureDoesNotMatch", Message: "m", RequestID: "R"}},
		{"service", `{"code":"ErrorNodePoolNotFound","message":"m","requestId":"R","status":404}`, 404, Error{Status: 404, Code: "ErrorNodePoolNotFound", Message: "m", RequestID: "R"}},
		{"snake case", `{"code":"X","message":"m","request_id":"R"}`, 400, Error{Status: 400, Code: "X", Message: "m", RequestID: "R"}},
		{"numeric code", `{"code":404,"message":"m"}`, 404, Error{Status: 404, Message: "m"}},
		{"html", " <html>bad gateway</html>\n", 502, Error{Status: 502, Message: "<html>bad gateway</html>"}},
		{"nothing", "", 503, Error{Status: 503, Message: "Service Unavailable"}},
		{"array", `["x"]`, 500, Error{Status: 500, Message: `["x"]`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, *parseError(tc.status, []byte(tc.body)))
		})
	}
}

func TestPredicates(t *testing.T) {
	of := func(status int, code string) error {
		return fmt.Errorf("outer: %w", &Error{Status: status, Code: code})
	}
	for _, tc := range []struct {
		err                         error
		notFound, throttled, server bool
	}{
		{err: nil},
		{err: errors.New("ErrorNodePoolNotFound")},
		{err: of(404, "ErrorClusterNotFound"), notFound: true},
		{err: of(404, "ErrorNodePoolNotFound"), notFound: true},
		{err: of(404, "AddonNotFound"), notFound: true},
		{err: of(404, "")}, // of a proxy, say: the service gives codes
		{err: of(404, "InvalidAccessKeyId.NotFound")},
		{err: of(403, "Forbidden.RAM")},
		{err: of(400, "SignatureDoesNotMatch")},
		{err: of(400, "Throttling"), throttled: true},
		{err: of(400, "Throttling.User"), throttled: true},
		{err: of(400, "Rejected.Throttling"), throttled: true},
		{err: of(429, ""), throttled: true},
		{err: of(500, ""), server: true},
		{err: of(200, "InternalError"), server: true},
		{err: of(503, "ServiceUnavailable"), server: true},
		{err: of(400, "InvalidParameter.Labels")},
	} {
		assert.Equal(t, tc.notFound, IsNotFound(tc.err), "%v", tc.err)
		assert.Equal(t, tc.throttled, IsThrottled(tc.err), "%v", tc.err)
		assert.Equal(t, tc.server, serverFault(tc.err), "%v", tc.err)
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{Operation: "Op", Status: 400, Code: "C", Message: "m", RequestID: "R", Hint: "do that"}
	assert.Equal(t, "Op: C: m (request R); do that", e.Error())
	assert.Equal(t, "Op: HTTP 502: m", (&Error{Operation: "Op", Status: 502, Message: "m"}).Error())
	c := &Client{credentials: Credentials{AccessKeyID: "LTAI1"}}
	for _, code := range []string{"Forbidden.RAM", "SignatureDoesNotMatch", "InvalidSecurityToken.Expired"} {
		assert.Contains(t, c.hint(code), "the access key LTAI1")
	}
	assert.Empty(t, c.hint("InvalidParameter"))
}

// What the gateway expected to be signed is of no use to people, however it begins.
func TestBrief(t *testing.T) {
	for _, more := range []string{
		" server string to sign is:GET\nx", ", client string to sign is GET", "; server StringToSign is [ACS3-HMAC-SHA256\nabc], server CanonicalRequest is [GET\n/]",
		". server canonical request is GET",
	} {
		assert.Equal(t, "Specified signature does not match.", brief("Specified signature does not match"+more))
	}
}

// States that nobody has documented mean that the task still runs.
func TestTaskMessages(t *testing.T) {
	var task Task
	require.NoError(t, json.Unmarshal([]byte(`{"task_id":"T-1","task_result":[{"data":{"name":"x"},"status":"Success"}],"stages":[{"message":"first"},{"message":"second"},{"message":""}]}`), &task))
	assert.Equal(t, "second", task.Message())
	assert.Empty(t, Task{}.Message())
	assert.NoError(t, failedResult(task))
	assert.Equal(t, "running, 1 of 2", Progress{State: "running", Message: "1 of 2"}.String())
}

func FuzzParseError(f *testing.F) {
	f.Add(400, []byte(`{"Code":"A","Message":"m","RequestId":"R"}`))
	f.Add(404, []byte(`{"code":"a","message":"m","request_id":"r"}`))
	f.Add(500, []byte("\xff\xfe<html>"))
	f.Add(0, []byte(`{"code":{"a":1},"message":[],"requestid":null}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		e := parseError(status, body)
		e.Operation = "Op"
		if e.Status != status {
			t.Errorf("status %d became %d", status, e.Status)
		}
		if text := e.Error(); text == "" || !utf8.ValidString(text) {
			t.Errorf("error text is not text: %q", text)
		}
		IsNotFound(e)
		IsThrottled(e)
	})
}
