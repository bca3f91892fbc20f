package acctest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
)

// addresses are what a configuration without required_providers means, in Terraform and in OpenTofu.
var addresses = []string{"registry.terraform.io/hashicorp/gpuplan", "registry.opentofu.org/hashicorp/gpuplan"}

// CLI runs the terraform command in a folder of its own, with the provider in the
// test's process. It is for what [resource.TestCase] does not show: what terraform prints.
type CLI struct {
	// Dir is the folder of the configuration and the state.
	Dir string

	binary, attach string
}

// StartCLI serves the provider until the test ends.
func StartCLI(t *testing.T) *CLI {
	t.Helper()
	binary := os.Getenv("TF_ACC_TERRAFORM_PATH")
	if binary == "" {
		for _, name := range []string{"terraform", "tofu"} {
			if path, err := exec.LookPath(name); err == nil && binary == "" {
				binary = path
			}
		}
	}
	if binary == "" {
		t.Skip("neither terraform nor tofu is on PATH")
	}
	ctx, cancel := context.WithCancel(context.Background())
	attached, ended := make(chan *plugin.ReattachConfig), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- tf6server.Serve(addresses[0], func() tfprotov6.ProviderServer {
			return providerserver.NewProtocol6(provider.New("test")())()
		}, tf6server.WithDebug(ctx, attached, ended), tf6server.WithLoggingSink(t), tf6server.WithGoPluginLogger(hclog.NewNullLogger()), tf6server.WithoutLogStderrOverride())
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
	server := map[string]any{
		"Protocol": string(c.Protocol), "ProtocolVersion": c.ProtocolVersion, "Pid": c.Pid, "Test": true,
		"Addr": map[string]string{"Network": c.Addr.Network(), "String": c.Addr.String()},
	}
	servers := map[string]any{}
	for _, address := range addresses {
		servers[address] = server
	}
	attach, err := json.Marshal(servers)
	require.NoError(t, err)
	return &CLI{Dir: t.TempDir(), binary: binary, attach: string(attach)}
}

// Write replaces the configuration.
func (c *CLI) Write(t *testing.T, config string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "main.tf"), []byte(config), 0o600))
}

// Run runs a terraform command and returns what it prints, errors included.
func (c *CLI) Run(args ...string) (string, error) {
	cmd := exec.Command(c.binary, args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "TF_REATTACH_PROVIDERS="+c.attach, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_ARGS=-no-color")
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("terraform %s: %w", strings.Join(args, " "), err)
	}
	return string(output), err
}

// Must runs a terraform command that has to succeed.
func (c *CLI) Must(t *testing.T, args ...string) string {
	t.Helper()
	output, err := c.Run(args...)
	require.NoError(t, err, output)
	return output
}

// Lines counts the lines of a plan that say what happens to a resource, from the line
// that names it to its closing brace.
func Lines(plan, resource string) int {
	_, after, found := strings.Cut(plan, "# "+resource+" ")
	if !found {
		return 0
	}
	body, _, _ := strings.Cut(after, "\n    }\n")
	return strings.Count(body, "\n") + 2
}
