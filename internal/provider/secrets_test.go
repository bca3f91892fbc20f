package provider_test

import (
	"archive/zip"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// planted is a secret that is found wherever it is written.
const planted = "Planted/7f3a+91c2=="

// asking is a job, for which the plan asks the cluster, and the apply writes there.
const asking = `
resource "gpuplan_training_job" "train" {
  name      = "train"
  framework = "batch"
  image     = "train:1"
  suspend   = true
  wait_for  = "none"
  roles     = { worker = { replicas = 1, gpus = 1 } }
}
`

// traces are the ways in which a secret may be written: as it is, in a URL, in base64, in JSON.
var traces = regexp.MustCompile(strings.Join([]string{
	regexp.QuoteMeta(planted), regexp.QuoteMeta(url.QueryEscape(planted)), regexp.QuoteMeta(url.PathEscape(planted)),
	regexp.QuoteMeta(base64.StdEncoding.EncodeToString([]byte(planted))[:20]), `Planted(/|\\/)7f3a`,
}, "|"))

// No secret of the provider is in what Terraform prints, its log with everything in it, a plan's file or the state: neither where it is
// good nor where it is refused, by servers that answer with all that they were sent.
func TestSecretsLeaveNoTrace(t *testing.T) {
	binary, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	service := answerWithTheRequest(t, `{"Code":"Forbidden","Message":%[1]q,"code":"Forbidden","message":%[1]q}`)
	api := answerWithTheRequest(t, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	kubeconfig := func(server, user string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: %s}]}`, server, user)
	}
	token := fmt.Sprintf(`{token: %q}`, planted)
	// secret is how the configuration has it without writing it down.
	const secret = `var.secret`
	for name, test := range map[string]struct {
		env      map[string]string
		settings func(cloud *acctest.Cloud) string
		fails    bool
	}{
		"secret key that is good": {
			env: map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_SECRET": planted},
		},
		"secret key that is not": {
			settings: func(*acctest.Cloud) string { return `secret_key = "${var.secret}x"` }, fails: true,
		},
		"security token, of a service that answers with all": {
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("endpoint = %q\nsecurity_token = %s", service, secret)
			}, fails: true,
		},
		"profile": {
			env: map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": "", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "", "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": ""},
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("endpoint = %q\nprofile = \"p\"\nshared_credentials_file = %q", service, file(fmt.Sprintf(
					`{"current":"p","profiles":[{"name":"p","mode":"StsToken","access_key_id":"ID","access_key_secret":%q,"sts_token":%q}]}`, planted, planted)))
			}, fails: true,
		},
		"profile that is no JSON": {
			env: map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": "", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "", "ALIBABA_CLOUD_CLI_PROFILE_DISABLED": ""},
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("profile = \"p\"\nshared_credentials_file = %q", file(`{"profiles":[{"access_key_secret":"`+planted+`"},]}`))
			}, fails: true,
		},
		"OIDC token, of a token service that answers with all": {
			env: map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": "", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": ""},
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("sts_endpoint = %q\nassume_role_with_oidc {\n oidc_provider_arn = \"p\"\n role_arn = \"r\"\n oidc_token = %s\n}", strings.TrimPrefix(service, "http://"), secret)
			}, fails: true,
		},
		"URI with a password": {
			env: map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": "", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": ""},
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("credentials_uri = \"%s/?pass=${urlencode(%s)}\"", service, secret)
			}, fails: true,
		},
		"token of a kubeconfig": {
			settings: func(cloud *acctest.Cloud) string {
				return "kubeconfig_content = replace(" + fmt.Sprintf("%q", kubeconfig(cloud.API.Config().Host, `{token: SECRET}`)) + `, "SECRET", ` + secret + ")"
			},
		},
		"token of a kubeconfig, of a server that answers with all": {
			settings: func(*acctest.Cloud) string { return fmt.Sprintf("kubeconfig = %q", file(kubeconfig(api, token))) }, fails: true,
		},
		"password of a kubeconfig, of a server that answers with all": {
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("kubeconfig = %q", file(kubeconfig(api, fmt.Sprintf("{username: u, password: %q}", planted))))
			}, fails: true,
		},
		"kubeconfig with a key that is none": {
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("kubeconfig = %q", file(kubeconfig("https://127.0.0.1:1", fmt.Sprintf("{client-certificate-data: %q, client-key-data: %q}",
					base64.StdEncoding.EncodeToString([]byte(planted)), base64.StdEncoding.EncodeToString([]byte(planted))))))
			}, fails: true,
		},
		"kubeconfig that is no YAML": {
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("kubeconfig = %q", file("users: [{user: "+planted+"}, {: {["))
			}, fails: true,
		},
		"kubeconfig content that is no YAML": {
			settings: func(*acctest.Cloud) string { return `kubeconfig_content = "users: [{user: ${var.secret}}, {: {["` }, fails: true,
		},
		"plugin of a kubeconfig that prints it": {
			settings: func(*acctest.Cloud) string {
				return fmt.Sprintf("kubeconfig = %q", file(kubeconfig("http://127.0.0.1:1", fmt.Sprintf(
					"{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [-c, %q]}}", "echo '{\"status\":{\"token\":\""+planted+"\"}'"))))
			}, fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.AccessKeySecret = planted })
			t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", planted)
			t.Setenv("TF_VAR_secret", planted)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			cli := acctest.NewCLI(t, binary)
			cli.Env = append(cli.Env, "TF_LOG=TRACE", "TF_LOG_PATH="+filepath.Join(cli.Dir, "trace.log"))
			settings := ""
			if test.settings != nil {
				settings = test.settings(cloud)
			}
			cli.Write(t, "variable \"secret\" {\n  ephemeral = true\n}\nprovider \"gpuplan\" {\n"+settings+"\n}\n"+pool+asking)
			var printed strings.Builder
			failed := false
			for _, args := range [][]string{{"plan", "-out", "plan"}, {"apply", "plan"}, {"plan", "-detailed-exitcode"}, {"destroy", "-auto-approve"}} {
				output, err := cli.Run(args...)
				printed.WriteString(output)
				failed = failed || err != nil
			}
			assert.Equal(t, test.fails, failed, printed.String())
			assert.NotRegexp(t, traces, printed.String())
			everywhere(t, cli.Dir, func(path, text string) {
				if at := traces.FindStringIndex(text); at != nil {
					assert.Fail(t, "a secret is in "+path, text[max(0, at[0]-300):min(len(text), at[1]+100)])
				}
			})
		})
	}
}

// answerWithTheRequest refuses requests, and says all that was in them, as debugging proxies do. format is of two texts: that of a
// service of the cloud, or of Kubernetes.
func answerWithTheRequest(t *testing.T, format string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, true)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, format, dump)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// everywhere shows all files below a folder, and those within archives.
func everywhere(t *testing.T, folder string, show func(path, text string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		show(path, string(text))
		archive, err := zip.OpenReader(path)
		if err != nil {
			return nil //nolint:nilerr // it is no archive
		}
		defer func() { _ = archive.Close() }()
		for _, inside := range archive.File {
			reader, err := inside.Open()
			require.NoError(t, err)
			text, err := io.ReadAll(reader)
			require.NoError(t, err)
			show(path+"/"+inside.Name, string(text))
		}
		return nil
	}))
}
