package promises

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// workspace is a folder in which terraform runs with the built provider.
type workspace struct{ *acctest.CLI }

func newWorkspace(t *testing.T, platform *localtest.Platform) workspace {
	t.Helper()
	provider, err := localtest.Program("terraform-provider-gpuplan")
	require.NoError(t, err)
	w := workspace{acctest.NewCLI(t, provider)}
	w.Env = append(platform.Environ(), w.Env...)
	return w
}

// write replaces the configuration.
func (w workspace) write(t *testing.T, configuration map[string]any) {
	t.Helper()
	content, err := json.MarshalIndent(configuration, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "main.tf.json"), content, 0o600))
}

// configuration is what stands in the folder.
func (w workspace) configuration() string {
	content, err := os.ReadFile(filepath.Join(w.Dir, "main.tf.json"))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// diagnostic is one of terraform's, as it prints them with -json.
type diagnostic struct {
	Severity, Summary, Detail, Address string
}

func (d diagnostic) String() string {
	return fmt.Sprintf("%s: %s (%s): %s", d.Severity, d.Summary, d.Address, d.Detail)
}

// names reports whether the diagnostic speaks of an object, "namespace/name".
func (d diagnostic) names(object string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(d.Detail, func(r rune) bool { return strings.ContainsRune(" ,;:()\"'\n", r) }),
		func(word string) bool { return strings.TrimSuffix(word, ".") == object })
}

// replaces reports whether the diagnostic would be a warning without -replace.
func (d diagnostic) replaces() bool { return strings.Contains(d.Detail, "replaced by -replace") }

type diagnostics []diagnostic

func (all diagnostics) errors() diagnostics {
	return slices.DeleteFunc(slices.Clone(all), func(d diagnostic) bool { return d.Severity != "error" })
}

// warnsOf reports whether one of these has a summary.
func (all diagnostics) warnsOf(summary string) bool {
	return slices.ContainsFunc(all, func(d diagnostic) bool { return strings.Contains(d.Summary, summary) })
}

func (all diagnostics) String() string {
	var text strings.Builder
	for _, d := range all {
		fmt.Fprintf(&text, "  %s\n", d)
	}
	return text.String()
}

// terraform runs a command and returns what it reports; code is its exit status.
func (w workspace) terraform(t *testing.T, args ...string) (all diagnostics, code int) {
	t.Helper()
	output, err := w.Command(args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var line struct {
			Type       string
			Diagnostic diagnostic
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Type == "diagnostic" && !strings.Contains(line.Diagnostic.Summary, "development overrides") {
			all = append(all, line.Diagnostic)
		}
	}
	require.NoError(t, lines.Err())
	return all, code
}

// planned is a plan that terraform has made.
type planned struct {
	diagnostics
	// changes says by address what is done to each resource.
	changes map[string]change
}

type change struct {
	Actions       []string
	Before, After map[string]any
}

// starts reports whether a change of a job starts it, which is so, too, of one that is resumed.
func (c change) starts(i instance) bool {
	return !i.suspended && (c.does("create") || c.does("update") && c.Before["suspend"] == true)
}

// does reports whether a change contains an action, "create" for instance.
func (c change) does(action string) bool { return slices.Contains(c.Actions, action) }

// plan plans the configuration, with options, into the file that apply takes. Of a plan that is
// refused changes has what Terraform came to.
func (w workspace) plan(t *testing.T, options ...string) planned {
	t.Helper()
	return w.planInto(t, "plan", options...)
}

func (w workspace) planInto(t *testing.T, name string, options ...string) (p planned) {
	t.Helper()
	file := filepath.Join(w.Dir, name)
	require.NoError(t, os.RemoveAll(file))
	var code int
	p.diagnostics, code = w.terraform(t, append([]string{"plan", "-json", "-out=" + name}, options...)...)
	require.Equal(t, len(p.errors()) > 0, code != 0, "plan ends with %d: %s", code, p.diagnostics)
	if _, err := os.Stat(file); err != nil && len(p.errors()) > 0 {
		return p // Terraform came to no resource: the configuration is not valid
	}
	output, err := w.Command("show", "-json", name).Output()
	require.NoError(t, err)
	var shown struct {
		ResourceChanges []struct {
			Address string
			Change  change
		} `json:"resource_changes"`
	}
	require.NoError(t, json.Unmarshal(output, &shown))
	p.changes = map[string]change{}
	for _, r := range shown.ResourceChanges {
		p.changes[r.Address] = r.Change
	}
	return p
}

// apply carries out the plan in the file.
func (w workspace) apply(t *testing.T) diagnostics {
	t.Helper()
	all, code := w.terraform(t, "apply", "-json", "plan")
	require.Equal(t, len(all.errors()) > 0, code != 0, "apply ends with %d: %s", code, all)
	return all
}

// unchanged plans once more and returns what a plan would still do.
func (w workspace) unchanged(t *testing.T) (diagnostics, bool) {
	t.Helper()
	all, code := w.terraform(t, "plan", "-json", "-detailed-exitcode")
	return all, code == 0
}

// destroy removes everything.
func (w workspace) destroy(t *testing.T) diagnostics {
	t.Helper()
	all, _ := w.terraform(t, "destroy", "-json", "-auto-approve")
	return all
}
