package clusterdata_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestCluster(t *testing.T) {
	cloud := acctest.StartCloud(t)
	for name, zone := range map[string]string{"a": "cn-hangzhou-j", "b": "cn-hangzhou-b", "c": "cn-hangzhou-j", "d": ""} {
		node, err := acctest.Node(acsfake.Node{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}})
		require.NoError(t, err)
		cloud.API.Put(node)
	}
	text := knownvalue.StringExact
	facts := func(zones knownvalue.Check) plancheck.PlanCheck {
		return plancheck.ExpectKnownOutputValue("cluster", knownvalue.ObjectExact(map[string]knownvalue.Check{
			"id": text(acctest.ClusterID), "name": text(acctest.ClusterID), "region": text(acctest.Region), "zones": zones, "state": text("running"), "version": text("1.36.3"),
			"type": text("ManagedKubernetes"), "profile": text("Default"), "spec": text("ack.pro.small"), "vpc_id": text("vpc-local"), "size": knownvalue.Int64Exact(0),
		}))
	}
	const config = "data \"gpuplan_cluster\" \"this\" {}\noutput \"cluster\" {\n  value = data.gpuplan_cluster.this\n}\n"
	step := func(zones knownvalue.Check) resource.TestStep {
		return resource.TestStep{
			Config: config, PlanOnly: true, ExpectNonEmptyPlan: true,
			ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPreRefresh: []plancheck.PlanCheck{facts(zones)}},
		}
	}
	without := step(knownvalue.Null())
	without.PreConfig = func() {
		withoutKubeconfig(t)
	}
	nowhere := resource.TestStep{
		PreConfig: func() { t.Setenv("GPUPLAN_CLUSTER_ID", "") }, Config: config, PlanOnly: true,
		ExpectError: acctest.Saying("set cluster_id in the provider block, or the environment variable GPUPLAN_CLUSTER_ID"),
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		step(knownvalue.ListExact([]knownvalue.Check{text("cn-hangzhou-b"), text("cn-hangzhou-j")})), without, nowhere,
	}})
}

const ephemeral = `
ephemeral "gpuplan_kubeconfig" "this" {
  duration = "30m"
}

# Whoever works in the cluster takes its access from there.
provider "gpuplan" {
  alias              = "jobs"
  owner              = "jobs"
  kubeconfig_content = ephemeral.gpuplan_kubeconfig.this.content
}

data "gpuplan_cluster" "this" {
  provider = gpuplan.jobs
}

output "zones" {
  value = data.gpuplan_cluster.this.zones
}
`

// What the service gives connects a provider, and is left nowhere.
func TestKubeconfigConnectsAProvider(t *testing.T) {
	cloud := acctest.StartCloud(t)
	withoutKubeconfig(t)
	terraform := acctest.StartCLI(t)
	node, err := acctest.Node(acsfake.Node{Name: "a", Labels: map[string]string{corev1.LabelTopologyZone: "cn-hangzhou-j"}})
	require.NoError(t, err)
	cloud.API.Put(node)
	terraform.Write(t, ephemeral)
	terraform.Must(t, "plan", "-out=saved")
	output := terraform.Must(t, "apply", "-auto-approve")
	assert.Contains(t, output, `"cn-hangzhou-j"`)
	assert.NotContains(t, output, acctest.UserToken)
	require.NoError(t, filepath.WalkDir(terraform.Dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		assert.NotContains(t, string(content), acctest.UserToken, name)
		return err
	}))
	for _, exchange := range cloud.ACS.Journal() {
		assert.NotContains(t, exchange.Answer, acctest.UserToken)
	}
}

func TestKubeconfigThatIsNotToBeHad(t *testing.T) {
	for name, test := range map[string]struct{ config, kubeconfig, says string }{
		"short":     {strings.Replace(ephemeral, "30m", "5m", 1), "", `duration: "5m" must be a positive duration such as 30s or 5m, from 15m to 72h.`},
		"not one":   {ephemeral, "apiVersion: [", "The service has sent a kubeconfig that cannot be used:"},
		"no rights": {ephemeral, "", "ForbiddenQueryClusterNamespace"},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) { o.Kubeconfig = test.kubeconfig })
			withoutKubeconfig(t)
			terraform := acctest.StartCLI(t)
			terraform.Write(t, test.config)
			output, err := terraform.Run("plan")
			require.Error(t, err, output)
			assert.Contains(t, acctest.Unwrapped(output), test.says)
		})
	}
}

// withoutKubeconfig takes the access to Kubernetes out of the environment.
func withoutKubeconfig(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
}
