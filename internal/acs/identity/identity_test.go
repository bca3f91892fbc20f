package identity_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
)

// metadata answers for the metadata service of ECS instances, whose address is fixed: the
// process reaches it through a proxy.
var metadata atomic.Pointer[http.HandlerFunc]

func TestMain(m *testing.M) {
	trusted := httptest.NewTLSServer(nil)
	folder, err := os.MkdirTemp("", "identity")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(folder, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		panic(err)
	}
	trusted.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*metadata.Load())(w, r) }))
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if upper := strings.ToUpper(name); strings.HasPrefix(upper, "ALIBABA_CLOUD_") || strings.HasSuffix(upper, "_PROXY") {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("SSL_CERT_FILE", file) // of which the process reads what it trusts once
	_ = os.Setenv("HTTP_PROXY", proxy.URL)
	_ = os.Setenv("HOME", folder)
	code := m.Run()
	proxy.Close()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// sts is a Security Token Service.
type sts struct {
	host   string
	expire time.Duration // how long its credentials hold

	mu     sync.Mutex
	asked  []url.Values
	refuse string // what it answers instead of credentials
}

func startSTS(t *testing.T) *sts {
	t.Helper()
	s := &sts{expire: time.Hour}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.Form)
		if s.refuse != "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, s.refuse)
			return
		}
		writeCredentials(w, map[string]any{"Credentials": temporary(fmt.Sprintf("STS.%d", len(s.asked)), s.expire)})
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "https://")
	return s
}

func temporary(id string, expire time.Duration) map[string]any {
	return map[string]any{
		"Code": "Success", "AccessKeyId": id, "AccessKeySecret": "secret-of-" + id, "SecurityToken": "token-of-" + id,
		"Expiration": time.Now().Add(expire).UTC().Format(time.RFC3339),
	}
}

func writeCredentials(w http.ResponseWriter, answer map[string]any) {
	_ = json.NewEncoder(w).Encode(answer)
}

// sidecar answers with temporary credentials.
func sidecar(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeCredentials(w, temporary("SIDECAR", time.Hour)) }))
	t.Cleanup(server.Close)
	return server.URL
}

func instanceRole(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/latest/api/token":
		_, _ = fmt.Fprint(w, "metadata-token")
	case "/latest/meta-data/ram/security-credentials/worker":
		writeCredentials(w, temporary("ECS", time.Hour))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const profileText = `{"current":"b","profiles":[
	{"name":"a","mode":"AK","access_key_id":"IDA","access_key_secret":"SA","region_id":"cn-a"},
	{"name":"b","mode":"StsToken","access_key_id":"IDB","access_key_secret":"SB","sts_token":"TB","region_id":"cn-b"}]}`

func TestOrigins(t *testing.T) {
	handler := http.HandlerFunc(instanceRole)
	metadata.Store(&handler)
	file, token := write(t, profileText), write(t, "oidc-token")
	uri := sidecar(t)
	of := func(id string) acs.Credentials {
		return acs.Credentials{AccessKeyID: id, AccessKeySecret: "secret-of-" + id, SecurityToken: "token-of-" + id}
	}
	key := identity.Settings{AccessKey: "ID", SecretKey: "S"}
	role := identity.Role{ARN: "acs:ram::1:role/admin", Policy: "{}", ExternalID: "ext", SessionName: "me", Seconds: 1800}
	oidc := identity.OIDC{Role: identity.Role{ARN: "acs:ram::1:role/pod"}, ProviderARN: "acs:ram::1:oidc-provider/ack", TokenFile: token}
	for name, tc := range map[string]struct {
		change func(*identity.Settings)
		want   acs.Credentials
		origin string
		asked  url.Values // what STS was asked last
	}{
		"access key": {func(s *identity.Settings) { *s = key }, acs.Credentials{AccessKeyID: "ID", AccessKeySecret: "S"}, "the access key ID and its secret", nil},
		"temporary access key": {
			func(s *identity.Settings) { *s = key; s.SecurityToken = "T" },
			acs.Credentials{AccessKeyID: "ID", AccessKeySecret: "S", SecurityToken: "T"}, "with a security token", nil,
		},
		"profile": {
			func(s *identity.Settings) { s.Profile, s.SharedCredentialsFile = "a", file },
			acs.Credentials{AccessKeyID: "IDA", AccessKeySecret: "SA"}, `the profile "a" of ` + file, nil,
		},
		"current profile": {
			func(s *identity.Settings) { s.SharedCredentialsFile = file },
			acs.Credentials{AccessKeyID: "IDB", AccessKeySecret: "SB", SecurityToken: "TB"}, `the profile "b"`, nil,
		},
		"URI":                  {func(s *identity.Settings) { s.CredentialsURI = uri }, of("SIDECAR"), "what credentials_uri answers", nil},
		"role of the instance": {func(s *identity.Settings) { s.ECSRoleName = "worker" }, of("ECS"), "the RAM role worker of this ECS instance", nil},
		"role of a pod": {
			func(s *identity.Settings) { s.OIDC = &oidc }, of("STS.1"), "the role acs:ram::1:role/pod, assumed with an OIDC token of " + token,
			url.Values{"Action": {"AssumeRoleWithOIDC"}, "RoleArn": {oidc.ARN}, "OIDCProviderArn": {oidc.ProviderARN}, "OIDCToken": {"oidc-token"}, "RoleSessionName": {"terraform"}, "DurationSeconds": {"3600"}},
		},
		"role by a token in no file": {
			func(s *identity.Settings) { o := oidc; o.Token = "text-token"; s.OIDC = &o }, of("STS.1"), "assumed with an OIDC token",
			url.Values{"Action": {"AssumeRoleWithOIDC"}, "OIDCToken": {"text-token"}},
		},
		"role to assume": {
			func(s *identity.Settings) { *s = key; s.Role = &role }, of("STS.1"), "the role acs:ram::1:role/admin, assumed with the access key ID",
			url.Values{"Action": {"AssumeRole"}, "RoleArn": {role.ARN}, "Policy": {"{}"}, "ExternalId": {"ext"}, "RoleSessionName": {"me"}, "DurationSeconds": {"1800"}, "AccessKeyId": {"ID"}},
		},
		"role to assume with temporary credentials": {
			func(s *identity.Settings) {
				s.CredentialsURI = uri
				s.Role = &identity.Role{ARN: "acs:ram::1:role/admin"}
			}, of("STS.1"), "assumed with what credentials_uri answers",
			url.Values{"AccessKeyId": {"SIDECAR"}, "SecurityToken": {"token-of-SIDECAR"}, "RoleSessionName": {"terraform"}, "DurationSeconds": {"3600"}},
		},
		"an access key goes before all": {
			func(s *identity.Settings) {
				*s = key
				s.SharedCredentialsFile, s.CredentialsURI, s.ECSRoleName, s.OIDC = file, uri, "worker", &oidc
			}, acs.Credentials{AccessKeyID: "ID", AccessKeySecret: "S"}, "the access key", nil,
		},
		"a profile before the rest": {
			func(s *identity.Settings) { s.Profile, s.SharedCredentialsFile, s.CredentialsURI = "a", file, uri },
			acs.Credentials{AccessKeyID: "IDA", AccessKeySecret: "SA"}, "the profile", nil,
		},
		"a URI before roles": {func(s *identity.Settings) { s.CredentialsURI, s.ECSRoleName, s.OIDC = uri, "worker", &oidc }, of("SIDECAR"), "credentials_uri", nil},
	} {
		t.Run(name, func(t *testing.T) {
			service := startSTS(t)
			var s identity.Settings
			tc.change(&s)
			s.STSEndpoint = "https://" + service.host
			source, err := identity.New(s)
			require.NoError(t, err)
			assert.Contains(t, source.String(), tc.origin)
			assert.Empty(t, service.asked, "nobody is asked before credentials are needed")
			for range 2 {
				got, err := source.Get(t.Context())
				require.NoError(t, err)
				assert.Equal(t, tc.want, got)
			}
			if tc.asked == nil {
				assert.Empty(t, service.asked)
				return
			}
			require.Len(t, service.asked, 1, "what is good is not asked for again")
			for key, want := range tc.asked {
				assert.Equal(t, want, service.asked[0][key], key)
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "gpuplan-oidc-token-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "no token stays in a file")
}

// Without any setting the current profile of the aliyun command counts, if there is one.
func TestNothingIsSet(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	_, err := identity.New(identity.Settings{})
	assert.ErrorIs(t, err, identity.ErrNone)
	assert.Empty(t, identity.Settings{}.Region())

	require.NoError(t, os.Mkdir(filepath.Join(os.Getenv("HOME"), ".aliyun"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HOME"), ".aliyun", "config.json"), []byte(profileText), 0o600))
	for _, file := range []string{"", "~/.aliyun/config.json"} {
		source, err := identity.New(identity.Settings{SharedCredentialsFile: file})
		require.NoError(t, err)
		c, err := source.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "IDB", c.AccessKeyID)
	}
	t.Setenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")
	_, err = identity.New(identity.Settings{})
	assert.ErrorIs(t, err, identity.ErrNone)
	_, err = identity.New(identity.Settings{Profile: "a"})
	assert.ErrorContains(t, err, "unset ALIBABA_CLOUD_CLI_PROFILE_DISABLED")
}

func TestRegion(t *testing.T) {
	file := write(t, profileText)
	for want, s := range map[string]identity.Settings{
		"cn-a": {SharedCredentialsFile: file, Profile: "a"},
		"cn-b": {SharedCredentialsFile: file},
		"":     {SharedCredentialsFile: file, AccessKey: "ID", SecretKey: "S"},
	} {
		assert.Equal(t, want, s.Region())
	}
}

func TestWhatIsNotComplete(t *testing.T) {
	file := write(t, profileText)
	for name, tc := range map[string]struct {
		settings identity.Settings
		want     string
	}{
		"no secret":            {identity.Settings{AccessKey: "ID"}, "ALIBABA_CLOUD_ACCESS_KEY_SECRET"},
		"no key":               {identity.Settings{SecretKey: "S"}, "ALIBABA_CLOUD_ACCESS_KEY_ID"},
		"no profile":           {identity.Settings{SharedCredentialsFile: file, Profile: "c"}, `there is no profile "c"; there are: a, b`},
		"profile that is null": {identity.Settings{SharedCredentialsFile: write(t, `{"profiles":[null]}`)}, "one of the profiles is null"},
		"profile of itself":    {identity.Settings{SharedCredentialsFile: write(t, `{"current":"c","profiles":[{"name":"c","mode":"ChainableRamRoleArn","source_profile":"c"}]}`)}, "the profiles c are the source_profile of each other"},
		"cycle of profiles":    {identity.Settings{SharedCredentialsFile: write(t, `{"current":"c","profiles":[{"name":"c","mode":"ChainableRamRoleArn","source_profile":"d"},{"name":"d","mode":"ChainableRamRoleArn","source_profile":"c"}]}`)}, "the profiles c, d are the source_profile of each other"},
		"profile of nobody":    {identity.Settings{SharedCredentialsFile: write(t, `{"current":"c","profiles":[{"name":"c","mode":"ChainableRamRoleArn"}]}`)}, `the profile "c" has no source_profile that exists`},
		"role of a program":    {identity.Settings{SharedCredentialsFile: write(t, `{"current":"c","profiles":[{"name":"c","mode":"ChainableRamRoleArn","source_profile":"d"},{"name":"d","mode":"External","process_command":"x"}]}`)}, "choose it, and the role by assume_role"},
		"folder of profiles":   {identity.Settings{SharedCredentialsFile: t.TempDir()}, "is not a regular file"},
		"no file":              {identity.Settings{SharedCredentialsFile: "/nowhere"}, "check shared_credentials_file"},
		"no role":              {identity.Settings{AccessKey: "ID", SecretKey: "S", Role: &identity.Role{}}, "assume_role"},
		"no OIDC token":        {identity.Settings{OIDC: &identity.OIDC{}}, "assume_role_with_oidc"},
		"session of 10s":       {identity.Settings{AccessKey: "ID", SecretKey: "S", Role: &identity.Role{ARN: "x", Seconds: 10}}, "900s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := identity.New(tc.settings)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

// Credentials that are about to expire are renewed.
func TestRenewal(t *testing.T) {
	service := startSTS(t)
	service.expire = time.Minute
	source, err := identity.New(identity.Settings{AccessKey: "ID", SecretKey: "S", Role: &identity.Role{ARN: "r"}, STSEndpoint: service.host})
	require.NoError(t, err)
	for _, want := range []string{"STS.1", "STS.2"} {
		c, err := source.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, c.AccessKeyID)
	}
}

// Many ask at once: the service is asked once.
func TestManyAskAtOnce(t *testing.T) {
	service := startSTS(t)
	source, err := identity.New(identity.Settings{AccessKey: "ID", SecretKey: "S", Role: &identity.Role{ARN: "r"}, STSEndpoint: service.host})
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			_, err := source.Get(t.Context())
			assert.NoError(t, err)
		})
	}
	group.Wait()
	assert.Len(t, service.asked, 1)
}

// An interruption ends the wait for credentials at once, for who asks and for who stands in line.
func TestInterruption(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	source, err := identity.New(identity.Settings{CredentialsURI: server.URL})
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-asked; interrupt() }()
	_, err = source.Get(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = source.Get(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// No error has a secret in it, and each says where the credentials were to come from.
func TestErrorsKeepSecrets(t *testing.T) {
	answer := func(status int, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	service := startSTS(t)
	service.refuse = `{"RequestId":"R-1","Code":"SignatureDoesNotMatch","Message":"Specified signature is not matched. server string to sign is:POST&SecurityToken%3Dplanted-token","HostId":"h"}`
	notFound := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	metadata.Store(&notFound)
	key := identity.Settings{AccessKey: "ID", SecretKey: "planted-secret", SecurityToken: "planted-token", Role: &identity.Role{ARN: "the-role"}}
	refused, unreachable := key, key
	refused.STSEndpoint, unreachable.STSEndpoint = service.host, strings.TrimPrefix(closed.URL, "http://")
	for name, tc := range map[string]struct {
		settings identity.Settings
		want     []string
	}{
		"file that is no JSON": {
			identity.Settings{SharedCredentialsFile: write(t, `{"profiles":[{"access_key_secret":"planted-secret"},]}`)},
			[]string{"is not a file of profiles"},
		},
		"answer that lacks something": {
			identity.Settings{CredentialsURI: answer(200, `{"AccessKeyId":"ID","AccessKeySecret":"planted-secret","SecurityToken":"planted-token"}`) + "/?pass=planted-secret"},
			[]string{"cannot get credentials", "they are what credentials_uri answers"},
		},
		"answer with an error": {
			identity.Settings{CredentialsURI: answer(500, `{"AccessKeySecret":"planted-secret"}`)}, []string{"cannot get credentials"},
		},
		"answer that repeats what was asked": {
			identity.Settings{CredentialsURI: answer(403, `{"Code":"Forbidden","Message":"GET /?pass=planted%2Fsecret"}`) + "/?pass=planted/secret"},
			[]string{"Forbidden: GET /?pass=***"},
		},
		"parts of the URI that are no secrets": {
			identity.Settings{CredentialsURI: answer(403, `{"Code":"Forbidden","Message":"version 1 has gone"}`) + "/?v=1"},
			[]string{"Forbidden: version 1 has gone"},
		},
		"nobody answers": {
			identity.Settings{CredentialsURI: closed.URL + "/?pass=planted-secret"}, []string{"no answer from 127.0.0.1:", "connection refused"},
		},
		"no token service":         {unreachable, []string{"no answer from 127.0.0.1:", "they are the role the-role, assumed with the access key ID"}},
		"token service that fails": {refused, []string{"SignatureDoesNotMatch: Specified signature is not matched.", "(request R-1)", "the role the-role"}},
		"role that is not there":   {identity.Settings{ECSRoleName: "worker"}, []string{"httpStatus: 404", "the RAM role worker of this ECS instance"}},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := identity.New(tc.settings)
			if err == nil {
				_, err = source.Get(t.Context())
			}
			require.Error(t, err)
			for _, want := range tc.want {
				assert.ErrorContains(t, err, want)
			}
			assert.NotContains(t, err.Error(), "planted")
		})
	}
}
