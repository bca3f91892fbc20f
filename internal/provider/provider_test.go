package provider_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/function"
	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const pool = `
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  vswitch_ids   = ["vsw-1"]
}
`

const tree = `
resource "gpuplan_quota_tree" "main" {
  total  = { cpu = "1" }
  quotas = { a = {} }
}
`

// Every schema obeys the framework's rules, and everything in it is described.
func TestSchemas(t *testing.T) {
	p := provider.New("test", provider.Command{})()
	var config fwprovider.SchemaResponse
	p.Schema(t.Context(), fwprovider.SchemaRequest{}, &config)
	assert.Empty(t, config.Schema.ValidateImplementation(t.Context()))
	for name, a := range config.Schema.Attributes {
		assert.NotEmpty(t, a.GetMarkdownDescription(), name)
	}
	for _, secret := range []string{"secret_key", "security_token", "kubeconfig_content"} {
		assert.True(t, config.Schema.Attributes[secret].IsSensitive(), secret)
	}
	for name, b := range config.Schema.Blocks {
		assert.NotEmpty(t, b.GetMarkdownDescription(), name)
		for attribute, a := range b.GetNestedObject().GetAttributes() {
			assert.NotEmpty(t, a.GetMarkdownDescription(), name+"."+attribute)
			assert.Equal(t, attribute == "oidc_token", a.IsSensitive(), name+"."+attribute)
		}
	}
	for _, create := range p.Resources(t.Context()) {
		r := create()
		var meta fwresource.MetadataResponse
		r.Metadata(t.Context(), fwresource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		var s fwresource.SchemaResponse
		r.Schema(t.Context(), fwresource.SchemaRequest{}, &s)
		assert.Empty(t, s.Schema.ValidateImplementation(t.Context()), meta.TypeName)
		assert.NotEmpty(t, s.Schema.MarkdownDescription, meta.TypeName)
		for name, a := range s.Schema.Attributes {
			if name != "timeouts" { // described by its module
				assert.NotEmpty(t, a.GetMarkdownDescription(), "%s.%s", meta.TypeName, name)
			}
		}
		_, importable := r.(fwresource.ResourceWithImportState)
		assert.True(t, importable, meta.TypeName)
	}
	for _, create := range p.DataSources(t.Context()) {
		d := create()
		var meta datasource.MetadataResponse
		d.Metadata(t.Context(), datasource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		var s datasource.SchemaResponse
		d.Schema(t.Context(), datasource.SchemaRequest{}, &s)
		assert.Empty(t, s.Schema.ValidateImplementation(t.Context()), meta.TypeName)
		assert.NotEmpty(t, s.Schema.MarkdownDescription, meta.TypeName)
		for name, a := range s.Schema.Attributes {
			assert.NotEmpty(t, a.GetMarkdownDescription(), "%s.%s", meta.TypeName, name)
		}
	}
	for _, create := range p.Functions(t.Context()) {
		f := create()
		var meta function.MetadataResponse
		f.Metadata(t.Context(), function.MetadataRequest{}, &meta)
		var d function.DefinitionResponse
		f.Definition(t.Context(), function.DefinitionRequest{}, &d)
		var valid function.DefinitionValidateResponse
		d.Definition.ValidateImplementation(t.Context(), function.DefinitionValidateRequest{FuncName: meta.Name}, &valid)
		assert.Empty(t, valid.Diagnostics, meta.Name)
		assert.NotEmpty(t, d.Definition.Summary, meta.Name)
		assert.NotEmpty(t, d.Definition.MarkdownDescription, meta.Name)
		for _, parameter := range d.Definition.Parameters {
			assert.NotEmpty(t, parameter.GetMarkdownDescription(), "%s(%s)", meta.Name, parameter.GetName())
		}
	}
}

// block is a provider block with more attributes.
func block(attributes ...string) string {
	return "provider \"gpuplan\" {\n  " + strings.Join(attributes, "\n  ") + "\n}\n"
}

// plan expects that the plan of a configuration with a provider block fails.
func plan(t *testing.T, config, says string) {
	t.Helper()
	resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{{
		ProtoV6ProviderFactories: acctest.Providers(), Config: config, PlanOnly: true, ExpectError: acctest.Saying(says),
	}}})
}

func TestMistakesInTheAccess(t *testing.T) {
	cloud := acctest.StartCloud(t)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	closed := filepath.Join(t.TempDir(), "closed")
	acctest.WriteKubeconfig(t, closed, "http://127.0.0.1:1")
	for name, test := range map[string]struct{ block, resource, says string }{
		"unknown access key":        {block(`access_key = "LTAIwrong"`), pool, "InvalidAccessKeyId.NotFound"},
		"what to do about it":       {block(`access_key = "LTAIwrong"`), pool, "check the access key LTAIwrong and its secret (access_key, secret_key; ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET)"},
		"wrong secret":              {block(`secret_key = "wrong"`), pool, "SignatureDoesNotMatch"},
		"and no more than that":     {block(`secret_key = "wrong"`), pool, "Specified signature is not matched with our calculation. (request"},
		"unreachable API":           {block(`endpoint = "http://127.0.0.1:1"`), pool, "no answer from the Container Service API at http://127.0.0.1:1"},
		"malformed endpoint":        {block(`endpoint = "ftp://x"`), pool, `endpoint "ftp://x" must be a host, or a URL`},
		"unknown cluster":           {block(`cluster_id = "c-other"`), pool, "ErrorClusterNotFound"},
		"kubeconfig that is not":    {block(`kubeconfig = "` + nowhere + `"`), tree, "check the path or the environment variable KUBECONFIG"},
		"at its attribute":          {block(`kubeconfig = "` + nowhere + `"`), tree, ": kubeconfig = "},
		"kubeconfig of nothing":     {block(`kubeconfig_content = "x: ["`), tree, "The kubeconfig text is not a kubeconfig"},
		"context that is not":       {block(`kubeconfig = "`+cloud.Kubeconfig+`"`, `kube_context = "prod"`), tree, `has no context "prod"; its contexts: test`},
		"cluster that is off":       {block(`kubeconfig = "` + closed + `"`), tree, "cannot reach the Kubernetes API at http://127.0.0.1:1: connection refused"},
		"check that does not exist": {block(`placement_check = "maybe"`), pool, "value must be one of:"},
		"owner that is no label":    {block(`owner = "team a"`), pool, `"team a" cannot be an owner: write 1 to 63 letters, digits, '-', '_' or '.', which begin and end with a letter or digit, as in my-team.`},
	} {
		t.Run(name, func(t *testing.T) { plan(t, test.block+test.resource, test.says) })
	}
	t.Run("owner in the environment", func(t *testing.T) {
		t.Setenv("GPUPLAN_OWNER", "team a")
		plan(t, pool, `The environment variable GPUPLAN_OWNER "team a" cannot be an owner`)
	})
	t.Run("check in the environment", func(t *testing.T) {
		t.Setenv("GPUPLAN_PLACEMENT_CHECK", "maybe")
		plan(t, pool, `The environment variable GPUPLAN_PLACEMENT_CHECK is "maybe"; it must be one of error, warn, off.`)
	})
}

// Nothing is contacted that a plan does not need, and nothing needs to be configured for it.
func TestPlanWithoutAnyAccess(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{{
		ProtoV6ProviderFactories: acctest.Providers(), Config: pool + tree, PlanOnly: true, ExpectNonEmptyPlan: true,
	}}})
}

// An apply that needs what is not there says which attribute and variable to set.
func TestApplyWithoutAccess(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	for config, says := range map[string]string{
		pool: "set access_key in the provider block, or the environment variable ALIBABA_CLOUD_ACCESS_KEY_ID",
		tree: "set kubeconfig or kubeconfig_content in the provider block, or the environment variable KUBECONFIG",
	} {
		resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{{
			ProtoV6ProviderFactories: acctest.Providers(), Config: config, ExpectError: acctest.Saying(says),
		}}})
	}
}

// A provider whose configuration comes from a resource of the same apply plans without
// live state, and is complete at apply.
func TestConfigurationThatIsUnknownAtPlan(t *testing.T) {
	cloud := acctest.StartCloud(t)
	t.Setenv("GPUPLAN_CS_ENDPOINT", "")
	t.Setenv("KUBECONFIG", "")
	text, err := os.ReadFile(cloud.Kubeconfig)
	require.NoError(t, err)
	config := `
resource "terraform_data" "cluster" {
  input = { endpoint = "` + cloud.Endpoint + `", kubeconfig = <<EOT
` + string(text) + `EOT
  }
}
` + block(`endpoint = terraform_data.cluster.output.endpoint`, `kubeconfig_content = terraform_data.cluster.output.kubeconfig`) + pool
	resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{
		{ProtoV6ProviderFactories: acctest.Providers(), Config: config},
		{ProtoV6ProviderFactories: acctest.Providers(), Config: config, PlanOnly: true},
	}})
}

// An empty region, as modules pass on what nobody has set, does not hide the environment. An empty cluster_id does: it
// says that an alias is for a cluster of another kind.
func TestEmptyRegionNamesNothing(t *testing.T) {
	acctest.StartCloud(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{{Config: block(`region = ""`) + pool}},
	})
}

// No secret is in the state.
func TestSecretsAreNotInTheState(t *testing.T) {
	acctest.StartCloud(t)
	secret := os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET")
	require.NotEmpty(t, secret)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{{Config: pool, Check: acctest.StateMissing(secret)}},
	})
}
