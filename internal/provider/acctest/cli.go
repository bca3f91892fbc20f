package acctest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// addresses are what a configuration may mean by gpuplan: without required_providers, in
// Terraform and in OpenTofu, and with the address in the registry.
var addresses = []string{"registry.terraform.io/hashicorp/gpuplan", openTofu, "registry.terraform.io/gpuplan/gpuplan"}

const openTofu = "registry.opentofu.org/hashicorp/gpuplan"

// CLI runs the terraform command in a folder of its own. It is for what
// [resource.TestCase] does not show: what terraform prints, and how it dies.
type CLI struct {
	// Dir is the folder of the configuration and the state.
	Dir string
	// Env is what the commands find in the environment besides the test's own.
	Env []string

	binary string
}

// NewCLI returns a CLI that starts the program at a path as the provider.
func NewCLI(t testing.TB, provider string) *CLI {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Symlink(provider, filepath.Join(folder, "terraform-provider-gpuplan")))
	var overrides strings.Builder
	for _, address := range addresses {
		fmt.Fprintf(&overrides, "    %q = %q\n", address, folder)
	}
	rc := filepath.Join(folder, "terraformrc")
	text := "provider_installation {\n  dev_overrides {\n" + overrides.String() + "  }\n  direct {}\n}\n"
	require.NoError(t, os.WriteFile(rc, []byte(text), 0o600))
	return newCLI(t, "TF_CLI_CONFIG_FILE="+rc)
}

// StartCLI returns a CLI whose provider is served by the test's process until the test ends.
func StartCLI(t *testing.T) *CLI {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	attached, ended := make(chan *plugin.ReattachConfig), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- tf6server.Serve(addresses[0], func() tfprotov6.ProviderServer {
			return server.New(provider.New("test", provider.Command{})(), server.Command{})
		},
			tf6server.WithDebug(ctx, attached, ended), tf6server.WithLoggingSink(t), tf6server.WithGoPluginLogger(hclog.NewNullLogger()), tf6server.WithoutLogStderrOverride())
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	var c *plugin.ReattachConfig
	select {
	case c = <-attached:
	case err := <-served:
		require.NoError(t, err, "serve the provider")
	}
	servers := map[string]any{}
	for _, address := range addresses {
		servers[address] = map[string]any{
			"Protocol": string(c.Protocol), "ProtocolVersion": c.ProtocolVersion, "Pid": c.Pid, "Test": true,
			"Addr": map[string]string{"Network": c.Addr.Network(), "String": c.Addr.String()},
		}
	}
	attach, err := json.Marshal(servers)
	require.NoError(t, err)
	return newCLI(t, "TF_REATTACH_PROVIDERS="+string(attach))
}

// binary is the terraform of the tests.
func binary(t testing.TB) string {
	t.Helper()
	binary := os.Getenv("TF_ACC_TERRAFORM_PATH")
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil && binary == "" {
			binary = path
		}
	}
	require.NotEmpty(t, binary, "neither terraform nor tofu is on PATH: `make test` builds one")
	return binary
}

// Since reports whether the tests run with that version of HashiCorp's Terraform, 1.MINOR, or a later one:
// OpenTofu, whose versions count on their own, lacks what these brought.
func Since(t testing.TB, minor int) bool {
	t.Helper()
	cmd := exec.Command(binary(t), "version")
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
	output, err := cmd.Output()
	require.NoError(t, err)
	var has int
	_, err = fmt.Sscanf(string(output), "Terraform v1.%d.", &has)
	return err == nil && has >= minor
}

func newCLI(t testing.TB, provider string) *CLI {
	t.Helper()
	return &CLI{
		Dir: t.TempDir(), binary: binary(t),
		Env: []string{provider, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_INPUT=0", "TF_CLI_ARGS=-no-color"},
	}
}

// Write replaces the configuration.
func (c *CLI) Write(t testing.TB, config string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "main.tf"), []byte(config), 0o600))
}

// Command is a terraform command that nobody has started.
func (c *CLI) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, args...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	return cmd
}

// Run runs a terraform command and returns what it prints, errors included.
func (c *CLI) Run(args ...string) (string, error) {
	output, err := c.Command(args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("terraform %s: %w", strings.Join(args, " "), err)
	}
	return string(output), err
}

// Must runs a terraform command that has to succeed.
func (c *CLI) Must(t testing.TB, args ...string) string {
	t.Helper()
	output, err := c.Run(args...)
	require.NoError(t, err, output)
	return output
}

// Apply applies the configuration, and requires that so many resources are added, changed and destroyed.
func (c *CLI) Apply(t testing.TB, added, changed, destroyed int) {
	t.Helper()
	output := c.Must(t, "apply", "-auto-approve")
	require.Contains(t, output, fmt.Sprintf("Resources: %d added, %d changed, %d destroyed.", added, changed, destroyed))
}

// Unchanged requires that the plan of the configuration is empty.
func (c *CLI) Unchanged(t testing.TB) {
	t.Helper()
	c.Must(t, "plan", "-detailed-exitcode")
}

// Refuses requires that the plan of a configuration fails, and says what a pattern matches.
func (c *CLI) Refuses(t testing.TB, config string, says *regexp.Regexp) {
	t.Helper()
	c.Write(t, config)
	output, err := c.Run("plan")
	require.Error(t, err, output)
	assert.Regexp(t, says, output)
}

// Unwrapped is what terraform prints without its line breaks and frames.
func Unwrapped(output string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(output, "│", " ")), " ")
}

// Lines counts the lines of a plan that say what happens to a resource, from the line
// that names it to its closing brace, but for those by which OpenTofu shows write-only attributes.
func Lines(plan, resource string) int {
	_, after, found := strings.Cut(plan, "# "+resource+" ")
	if !found {
		return 0
	}
	body, _, _ := strings.Cut(after, "\n    }\n")
	return strings.Count(body, "\n") + 2 - strings.Count(body, "(write-only attribute)")
}
