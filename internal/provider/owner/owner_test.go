package owner_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/owner"
)

// config is a working directory with what `terraform init` left in it.
type config struct {
	dir, data, backend, selected string
	env                          map[string]string
	machine                      string
}

func stamp(t *testing.T, c config) string {
	t.Helper()
	data := filepath.Join(c.dir, ".terraform")
	if c.data != "" {
		data = filepath.Join(c.dir, c.data)
	}
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.MkdirAll(data, 0o755))
	if c.backend != "" {
		require.NoError(t, os.WriteFile(filepath.Join(data, "terraform.tfstate"), []byte(`{"version":3,"backend":`+c.backend+`}`), 0o600))
	}
	if c.selected != "" {
		require.NoError(t, os.WriteFile(filepath.Join(data, "environment"), []byte(c.selected), 0o600))
	}
	s, err := owner.Process{Dir: c.dir, Getenv: func(name string) string { return c.env[name] }, Machine: []string{c.machine}}.Stamp()
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`^[a-z2-7]{26}$`), s)
	return s
}

// Each group is one state, told in different ways; two groups are never the same.
func TestStamp(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	s3 := func(more string) string { return `{"type":"s3","config":{"bucket":"states","key":"gpu"` + more + `}}` }
	groups := map[string][]config{
		"local": {
			{dir: a, machine: "m"},
			{dir: a, machine: "m", selected: "default\n"},
			{dir: a, machine: "m", backend: `{"type":"local","config":{"path":null,"workspace_dir":null}}`},
			{dir: a, machine: "m", env: map[string]string{"TF_DATA_DIR": "elsewhere"}, data: "elsewhere"},
			{dir: b, machine: "m", backend: `{"type":"local","config":{"path":"` + filepath.Join(a, "terraform.tfstate") + `"}}`},
		},
		"another directory": {{dir: b, machine: "m"}},
		"another machine":   {{dir: a, machine: "n"}},
		"another workspace": {{dir: a, machine: "m", selected: "w"}, {dir: a, machine: "m", env: map[string]string{"TF_WORKSPACE": "w"}}},
		"another file":      {{dir: a, machine: "m", backend: `{"type":"local","config":{"path":"other.tfstate"}}`}},
		"s3": {
			{dir: a, machine: "m", backend: s3("")},
			{dir: b, machine: "n", backend: s3(`,"region":"eu-west-1","encrypt":true,"access_key":"AK","secret_key":"one","profile":null`)},
			{dir: b, machine: "n", backend: s3(`,"secret_key":"two","token":"t"`)},
			{dir: b, machine: "n", backend: s3(""), env: map[string]string{"TF_DATA_DIR": "elsewhere"}, data: "elsewhere"},
		},
		"s3, another workspace": {{dir: a, backend: s3(""), selected: "w"}},
		"s3, another prefix":    {{dir: a, backend: s3(`,"workspace_key_prefix":"p"`)}},
		"s3, another key":       {{dir: a, backend: `{"type":"s3","config":{"bucket":"states","key":"cpu"}}`}},
		"gcs":                   {{dir: a, backend: `{"type":"gcs","config":{"bucket":"states","prefix":"gpu","credentials":"{}"}}`}, {dir: b, backend: `{"type":"gcs","config":{"bucket":"states","prefix":"gpu","access_token":"t"}}`}},
		"http": {
			{dir: a, backend: `{"type":"http","config":{"address":"https://user:one@states.example/gpu?token=one"}}`},
			{dir: b, backend: `{"type":"http","config":{"address":null,"password":"x"}}`, env: map[string]string{"TF_HTTP_ADDRESS": "https://user:two@states.example/gpu"}},
		},
		"pg": {
			{dir: a, backend: `{"type":"pg","config":{"conn_str":"postgres://u:one@db.example/states?sslmode=disable"}}`},
			{dir: b, backend: `{"type":"pg","config":{}}`, env: map[string]string{"PG_CONN_STR": "postgres://u:two@db.example/states"}},
		},
		"pg, key and value": {
			{dir: a, backend: `{"type":"pg","config":{"conn_str":"host=db.example user=u password=one dbname=states"}}`},
			{dir: b, backend: `{"type":"pg","config":{"conn_str":"host=db.example dbname=states password=two"}}`},
		},
		"HCP Terraform": {
			{dir: a, env: map[string]string{"TFC_WORKSPACE_SLUG": "acme/gpu"}},
			{dir: b, backend: `{"type":"cloud","config":{"organization":"acme","hostname":"app.terraform.io","token":"t","workspaces":{"name":"gpu","tags":null}}}`},
			{dir: b, backend: `{"type":"cloud","config":{"organization":"acme","workspaces":{"name":null,"tags":["x"]}}}`, selected: "gpu"},
			{dir: b, backend: `{"type":"cloud","config":{"workspaces":{"tags":["x"]}}}`, env: map[string]string{"TF_CLOUD_ORGANIZATION": "acme", "TF_WORKSPACE": "gpu"}},
			{dir: b, backend: `{"type":"remote","config":{"organization":"acme","workspaces":[{"name":"gpu","prefix":null}]}}`},
			{dir: b, backend: `{"type":"remote","config":{"organization":"acme","workspaces":[{"name":null,"prefix":"g"}]}}`, selected: "pu"},
		},
		"a backend that nobody knows": {{dir: a, machine: "m", backend: `{"type":"new","config":{"secret":"one"}}`}, {dir: a, machine: "m", backend: `{"type":"new","config":{"secret":"two"}}`}},
		"the same elsewhere":          {{dir: b, machine: "m", backend: `{"type":"new","config":{"secret":"one"}}`}},
	}
	seen := map[string]string{}
	for name, same := range groups {
		want := stamp(t, same[0])
		for i, c := range same {
			assert.Equal(t, want, stamp(t, c), "%s %d", name, i)
		}
		assert.Empty(t, seen[want], "%s is like %s", name, seen[want])
		seen[want] = name
	}
}

func TestOfTests(t *testing.T) {
	assert.Regexp(t, `^[a-z2-7]{26}$`, owner.OfTests("team-a"))
	assert.NotEqual(t, owner.OfTests("team-a"), owner.OfTests("team-b"))
	assert.NotEqual(t, "team-a", owner.OfTests("team-a"))
}

func TestBrokenBackendFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".terraform"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".terraform", "terraform.tfstate"), []byte("{"), 0o600))
	_, err := owner.Process{Dir: dir, Getenv: func(string) string { return "" }}.Stamp()
	assert.ErrorContains(t, err, "terraform.tfstate")
}

func TestThisProcess(t *testing.T) {
	target, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(target, link))
	t.Chdir(target)
	direct, err := owner.This()
	require.NoError(t, err)
	t.Chdir(link)
	linked, err := owner.This()
	require.NoError(t, err)
	assert.Equal(t, direct.Dir, linked.Dir, "a link to the directory is the directory")
	assert.NotEmpty(t, direct.Machine)
}
