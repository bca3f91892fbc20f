package provider_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const (
	testToken  = "planted-security-token"
	testRegion = "cn-hangzhou"
)

// withToken is a cloud whose access key is a temporary one; what the test has put into the environment
// is taken out of it, and returned.
func withToken(t *testing.T) (key, secret string) {
	t.Helper()
	acctest.StartCloud(t, func(o *acsfake.Options) { o.SecurityToken = testToken })
	key, secret = os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID"), os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET")
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "")
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "")
	return key, secret
}

// apply expects that the configuration is applied, with nothing left to do and no secret in the state.
func apply(t *testing.T, config string, secrets ...string) {
	t.Helper()
	var checks []resource.TestCheckFunc
	for _, secret := range append(secrets, testToken) {
		checks = append(checks, acctest.StateMissing(secret))
	}
	resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{
		{ProtoV6ProviderFactories: acctest.Providers(), Config: config, Check: resource.ComposeTestCheckFunc(checks...)},
	}})
}

// Every way to credentials that needs no service of the cloud leads to the cloud.
func TestCredentials(t *testing.T) {
	key, secret := withToken(t)
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]string{
			"AccessKeyId": key, "AccessKeySecret": secret, "SecurityToken": testToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		}))
	}))
	t.Cleanup(sidecar.Close)
	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		`{"current":"x","profiles":[{"name":"prod","mode":"StsToken","access_key_id":%q,"access_key_secret":%q,"sts_token":%q,"region_id":%q}]}`,
		key, secret, testToken, testRegion), 0o600))
	for name, tc := range map[string]struct {
		block       string
		environment map[string]string
	}{
		"written": {block: block(fmt.Sprintf("access_key = %q", key), fmt.Sprintf("secret_key = %q", secret), fmt.Sprintf("security_token = %q", testToken))},
		"in the environment, as alicloud's": {environment: map[string]string{
			"ALICLOUD_ACCESS_KEY": key, "ALICLOUD_SECRET_KEY": secret, "ALICLOUD_SECURITY_TOKEN": testToken,
			"ALICLOUD_REGION": testRegion, "ALIBABA_CLOUD_REGION_ID": "",
		}},
		"in the environment, without an underscore": {environment: map[string]string{
			"ALIBABACLOUD_ACCESS_KEY_ID": key, "ALIBABACLOUD_ACCESS_KEY_SECRET": secret, "ALIBABACLOUD_SECURITY_TOKEN": testToken,
		}},
		"a profile, and its region": {
			block:       block(`profile = "prod"`, fmt.Sprintf("shared_credentials_file = %q", file)),
			environment: map[string]string{"ALIBABA_CLOUD_REGION_ID": "", "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": ""},
		},
		"a profile of the environment": {environment: map[string]string{"ALICLOUD_PROFILE": "prod", "ALIBABA_CLOUD_CREDENTIALS_FILE": file, "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": ""}},
		"a URI":                        {block: block(fmt.Sprintf("credentials_uri = %q", sidecar.URL))},
		"a URI of the environment":     {environment: map[string]string{"ALIBABA_CLOUD_CREDENTIALS_URI": sidecar.URL}},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range tc.environment {
				t.Setenv(variable, value)
			}
			apply(t, tc.block+pool, secret)
		})
	}
}

// What is wrong with credentials, and which are meant, a plan says.
func TestMistakesInCredentials(t *testing.T) {
	withToken(t)
	role := func(attributes string) string { return block("assume_role {\n" + attributes + "\n}") }
	pod := func(attributes string) string { return block("assume_role_with_oidc {\n" + attributes + "\n}") }
	const key = `access_key = "ID"` + "\n" + `secret_key = "S"`
	for name, test := range map[string]struct{ block, says string }{
		"secret is missing":     {block(`access_key = "ID"`), "access_key is set without secret_key"},
		"role is missing":       {role(""), "role_arn is missing: set it here, or the environment variable ALICLOUD_ASSUME_ROLE_ARN or ALIBABA_CLOUD_ROLE_ARN."},
		"OIDC provider":         {pod(`role_arn = "r"`), "oidc_provider_arn is missing: set it here, or the environment variable ALIBABA_CLOUD_OIDC_PROVIDER_ARN."},
		"session too long":      {role("role_arn = \"r\"\nsession_expiration = 50000"), "value must be between 900 and 43200"},
		"profile is missing":    {block(`shared_credentials_file = "/nowhere"`), "check shared_credentials_file (ALIBABA_CLOUD_CREDENTIALS_FILE)"},
		"no token service":      {block(key, `sts_endpoint = "127.0.0.1:1"`, "assume_role {\nrole_arn = \"acs:ram::1:role/x\"\n}"), "no answer from 127.0.0.1:1"},
		"and as whom":           {block(key, `sts_endpoint = "127.0.0.1:1"`, "assume_role {\nrole_arn = \"acs:ram::1:role/x\"\n}"), "they are the role acs:ram::1:role/x, assumed with the access key ID"},
		"token of a pod":        {block(`sts_endpoint = "127.0.0.1:1"`, "assume_role_with_oidc {\nrole_arn = \"r\"\noidc_provider_arn = \"p\"\noidc_token_file = \"/nowhere\"\n}"), "open /nowhere: no such file"},
		"token that is written": {block(`sts_endpoint = "127.0.0.1:1"`, "assume_role_with_oidc {\nrole_arn = \"r\"\noidc_provider_arn = \"p\"\noidc_token = \"planted\"\n}"), "no answer from 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) { plan(t, test.block+pool, test.says) })
	}
	t.Run("role of the environment", func(t *testing.T) {
		t.Setenv("ALICLOUD_ASSUME_ROLE_ARN", "acs:ram::1:role/env")
		plan(t, block(key, `sts_endpoint = "127.0.0.1:1"`, "assume_role {}")+pool, "they are the role acs:ram::1:role/env")
	})
	t.Run("session of the environment", func(t *testing.T) {
		t.Setenv("ALICLOUD_ASSUME_ROLE_SESSION_EXPIRATION", "soon")
		plan(t, block(key, "assume_role {\nrole_arn = \"r\"\n}")+pool, `ALICLOUD_ASSUME_ROLE_SESSION_EXPIRATION is "soon"; it must be 900 to 43200 seconds.`)
	})
	t.Run("role of a pod", func(t *testing.T) {
		t.Setenv("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/pod")
		t.Setenv("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "p")
		t.Setenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "/nowhere")
		plan(t, pool, "they are the role acs:ram::1:role/pod, assumed with an OIDC token of /nowhere")
	})
}

// An access key of the environment goes before what the configuration says, as it does for the
// alicloud provider: the plan says so.
func TestTheEnvironmentGoesFirst(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, block(`ecs_role_name = "worker"`)+pool)
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "which is used instead of ecs_role_name")
}
