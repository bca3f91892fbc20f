package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
)

// backend is what `terraform init` writes down of the backend.
type backend struct {
	Type   string         `json:"type"`
	Config map[string]any `json:"config"`
}

// readBackend returns the backend that a data directory was initialized for, the zero
// value when there is none: then the state is a local file.
func readBackend(path string) (backend, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return backend{}, nil
	}
	if err != nil {
		return backend{}, err
	}
	var file struct {
		Backend backend `json:"backend"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return backend{}, fmt.Errorf("read %s: %w", path, err)
	}
	return file.Backend, nil
}

// settings name the place of a state, whatever the backend; everything else is access,
// credentials among it, which changes while the state stays where it is.
var settings = []string{
	"address", "bucket", "config_context", "conn_str", "container_name", "datacenter", "endpoint", "host", "key", "namespace",
	"path", "prefix", "schema_name", "secret_suffix", "storage_account_name", "workspace_key_prefix",
}

// variables are environment variables that some backends read in place of a setting.
var variables = map[string]map[string]string{
	"consul":     {"address": "CONSUL_HTTP_ADDR"},
	"http":       {"address": "TF_HTTP_ADDRESS"},
	"kubernetes": {"config_context": "KUBE_CTX", "host": "KUBE_HOST", "namespace": "KUBE_NAMESPACE"},
	"pg":         {"conn_str": "PG_CONN_STR", "schema_name": "PG_SCHEMA_NAME"},
}

// place lists the settings that name the place, "bucket=states".
func (b backend) place(getenv func(string) string) []string {
	var named []string
	for _, setting := range settings {
		value := b.text(setting, "")
		if variable := variables[b.Type][setting]; value == "" && variable != "" {
			value = getenv(variable)
		}
		if value != "" {
			named = append(named, setting+"="+withoutCredentials(value))
		}
	}
	return named
}

// slug is "organization/workspace" on HCP Terraform, as its own runs are told.
func (b backend) slug(getenv func(string) string, selected string) string {
	organization := b.text("organization", getenv("TF_CLOUD_ORGANIZATION"))
	workspaces, _ := b.Config["workspaces"].(map[string]any)
	if list, ok := b.Config["workspaces"].([]any); ok && len(list) > 0 {
		workspaces, _ = list[0].(map[string]any)
	}
	if name, _ := workspaces["name"].(string); name != "" {
		return organization + "/" + name
	}
	prefix, _ := workspaces["prefix"].(string)
	return organization + "/" + prefix + selected
}

func (b backend) text(setting, otherwise string) string {
	if value, _ := b.Config[setting].(string); value != "" {
		return value
	}
	return otherwise
}

// withoutCredentials keeps of an address or a PostgreSQL connection string what names
// the server and the database.
func withoutCredentials(value string) string {
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		return u.Host + u.Path
	}
	if !strings.Contains(value, "=") {
		return value
	}
	var kept []string
	for _, field := range strings.Fields(value) {
		switch key, _, _ := strings.Cut(field, "="); key {
		case "host", "hostaddr", "port", "dbname":
			kept = append(kept, field)
		}
	}
	return strings.Join(kept, " ")
}
