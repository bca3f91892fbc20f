package nodeagent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
)

const (
	this   = "gpuplan_node_agent.this"
	config = `resource "gpuplan_node_agent" "this" {
  image        = "gpuplan-node-agent:1"
  interval     = "60s"
  metrics_port = 9400
}`
)

var (
	clusterRole = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	daemonSet   = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
)

func TestNodeAgent(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t) // no node qualifies, which is no reason to wait

	same := resource.TestStep{Config: config}
	same.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	same.ConfigStateChecks = []statecheck.StateCheck{statecheck.ExpectKnownValue(this, tfjsonpath.New("interval"), knownvalue.StringExact("60s"))}

	respelled := resource.TestStep{Config: strings.Replace(config, "60s", "1m", 1)}
	respelled.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	given := resource.TestStep{Config: strings.Replace(config, "metrics_port = 9400", "device_plugins = true\n  feature_labels = false", 1)}
	given.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate)}
	given.ConfigPlanChecks.PostApplyPostRefresh = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	given.Check = func(*terraform.State) error {
		daemons, err := cloud.Kube.Get(t.Context(), daemonSet, contract.SystemNamespace, contract.NodeAgentName)
		require.NoError(t, err)
		assert.True(t, program.Switch(daemons, "device-plugins"))
		assert.Equal(t, "false", program.Flag(daemons, "feature-labels"))
		role, err := cloud.Kube.Get(t.Context(), clusterRole, "", contract.NodeAgentName)
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(role.Object["rules"]), "pods")
		return nil
	}

	enforced := resource.TestStep{Config: strings.Replace(config, "metrics_port = 9400", "device_plugins = true\nmps = true", 1)}
	enforced.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate)}
	enforced.ConfigPlanChecks.PostApplyPostRefresh = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	enforced.ConfigStateChecks = []statecheck.StateCheck{statecheck.ExpectKnownValue(this, tfjsonpath.New("mps"), knownvalue.Bool(true))}

	missing := resource.TestStep{Config: config, PreConfig: func() { cloud.API.Remove(clusterRole, "", contract.NodeAgentName) }}
	missing.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate)}
	missing.Check = func(*terraform.State) error {
		_, err := cloud.Kube.Get(t.Context(), clusterRole, "", contract.NodeAgentName)
		return err
	}

	mirror := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"devices": "{}"}}}
	mirror.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	mirror.SetNamespace("kube-system")
	mirror.SetName("gpu-topology-n1")
	mirror.SetLabels(map[string]string{contract.NameLabel: contract.NodeAgentName})
	published := resource.TestStep{Config: config, PreConfig: func() { cloud.API.Put(mirror) }}
	published.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: config}, same, respelled, missing, published, given, enforced,
			{ResourceName: this, ImportState: true, ImportStateVerify: true},
			{ResourceName: this, ImportState: true, ImportStateId: "x", ExpectError: acctest.Saying("its import ID is gpuplan-system/gpuplan-node-agent")},
		},
		CheckDestroy: func(*terraform.State) error {
			objs, err := deploy.Objects(deploy.Options{Image: "x"})
			require.NoError(t, err)
			for _, obj := range append(objs, mirror) {
				_, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
				assert.True(t, kube.IsNotFound(err), "%s %s: %v", obj.GetKind(), obj.GetName(), err)
			}
			return nil
		},
	})
}

func TestBadInput(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	for attribute, says := range map[string]string{
		`interval = "often"`:                 `interval: "often" must be a positive duration such as 30s or 5m, from 1s to`,
		`interval = "-5s"`:                   `"-5s" must be a positive duration such as 30s or 5m, from 1s to`,
		`interval = "6m"`:                    `from 1s to 2m`,
		`metrics_port = -1`:                  "must be between 0 and 65535",
		`metrics_port = 9401`:                "none of",
		`mps = true`:                         "set device_plugins = true, or leave mps out",
		"mps = true\ndevice_plugins = false": "set device_plugins = true, or leave mps out",
	} {
		t.Run(attribute, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{{Config: "resource \"gpuplan_node_agent\" \"this\" {\n  image = \"x\"\n  " + attribute + "\n}", PlanOnly: true,
					ExpectError: acctest.Saying(says)}},
			})
		})
	}
}

// Of two configurations that install the agent at the same time the second to write has it: the first one's next plan says so, and its destroy
// leaves the agent alone.
func TestNodeAgentThatAnotherConfigurationHasTakenOver(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+config)
	cli.Must(t, "apply", "-auto-approve")
	live, err := cloud.Kube.Get(t.Context(), daemonSet, contract.SystemNamespace, contract.NodeAgentName)
	require.NoError(t, err)
	labels := live.GetLabels()
	labels[contract.OwnerLabel] = "b"
	live.SetLabels(labels)
	cloud.API.Put(live)
	said, err := cli.Run("plan")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), `another configuration has taken it over, and its owner is "b" by now (it was "a").`)
	cli.Must(t, "destroy", "-auto-approve", "-refresh=false")
	_, err = cloud.Kube.Get(t.Context(), daemonSet, contract.SystemNamespace, contract.NodeAgentName)
	assert.NoError(t, err)
}
