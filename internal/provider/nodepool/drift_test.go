package nodepool_test

import (
	"context"
	"fmt"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// drifted expects that the refreshed state names what differs.
type drifted map[string]string

func (d drifted) CheckPlan(_ context.Context, req plancheck.CheckPlanRequest, resp *plancheck.CheckPlanResponse) {
	for _, change := range req.Plan.ResourceChanges {
		before, _ := change.Change.Before.(map[string]any)
		found, _ := before["drifted_nodes"].(map[string]any)
		for name, text := range d {
			if found[name] != text {
				resp.Error = fmt.Errorf("drifted_nodes[%q] is %v, should be %q; all: %v", name, found[name], text, found)
			}
		}
		if change.Change.Actions.NoOp() || !change.Change.Actions.Update() {
			resp.Error = fmt.Errorf("%s is planned as %v, should be an update", change.Address, change.Change.Actions)
		}
	}
	if len(req.Plan.ResourceChanges) == 0 {
		resp.Error = fmt.Errorf("the plan has no changes: %v", tfjson.ActionNoop)
	}
}

func label(t *testing.T, cloud *acctest.Cloud, node, patch string) {
	t.Helper()
	_, err := cloud.Kube.Typed.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
}

func labelsOf(t *testing.T, cloud *acctest.Cloud, node string) map[string]string {
	t.Helper()
	n, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	return n.Labels
}

// forgetful is a cloud that does not carry label changes over to nodes.
type forgetful struct{ acsfake.Backend }

func (forgetful) UpdateNode(context.Context, acsfake.Node, acsfake.Node) error { return nil }

func TestNodeThatDiffersIsNamedAndRepaired(t *testing.T) {
	const node = "cn-hangzhou.10.0.1.2"
	for name, options := range map[string][]func(*acsfake.Options){
		"by the cloud":       nil,
		"past a slack cloud": {func(o *acsfake.Options) { o.Backend = forgetful{o.Backend} }},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t, options...)
			repair := step("TestPool/1")
			repair.PreConfig = func() {
				label(t, cloud, node, `{"metadata":{"labels":{"ack.node.gpu.schedule":"default","team":null}},"spec":{"taints":null}}`)
			}
			repair.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{drifted{
				node: "label ack.node.gpu.schedule is default, should be topology; label team is missing, should be research; taint gpu=yes:NoSchedule is missing",
			}}
			repair.Check = func(*terraform.State) error {
				live := labelsOf(t, cloud, node)
				assert.Equal(t, "topology", live[contract.NodeModeLabel])
				assert.Equal(t, "research", live["team"])
				return nil
			}
			after := step("TestPool/1")
			after.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps:                    []resource.TestStep{step("TestPool/1"), repair, after},
			})
		})
	}
}

// Taints are one list: what Kubernetes or someone else adds to it, while a node gets those of its pool, stays.
func TestTaintOfOthersStaysOnANodeThatIsRepaired(t *testing.T) {
	const node = "cn-hangzhou.10.0.1.1"
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.Backend = forgetful{o.Backend} })
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Apply(t, 1, 0, 0)
	cloud.Meanwhile(t, "nodes", func() {
		label(t, cloud, node, `{"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]}}`)
	})
	cli.Write(t, poolWith(`taints = [{ key = "gpu", value = "yes", effect = "NoSchedule" }]`))
	cli.Apply(t, 0, 1, 0)
	live, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	assert.ElementsMatch(t, []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule},
	}, live.Spec.Taints)
}

func TestLabelThatIsRemovedGoesFromTheNodes(t *testing.T) {
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.Backend = forgetful{o.Backend} })
	without := resource.TestStep{Config: poolWith("")}
	without.Check = func(*terraform.State) error {
		assert.NotContains(t, labelsOf(t, cloud, "cn-hangzhou.10.0.1.1"), "team")
		return nil
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{{Config: poolWith(`labels = { team = "a" }`)}, without},
	})
}

// A pool that got only some of its nodes is known to Terraform, shows as drift once it is
// kept, and the next apply completes it.
func TestPoolThatIsNotComplete(t *testing.T) {
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) {
		fault := acsfake.NoStock()
		fault.NodesBefore = 1
		o.Knobs.TaskFaults = []acsfake.Fault{fault}
	})
	failing := step("TestPool/1")
	failing.ExpectError = acctest.Saying("InstanceTypeNoStock")
	replaced := step("TestPool/1")
	replaced.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(pool, plancheck.ResourceActionDestroyBeforeCreate)}
	replaced.Check = func(*terraform.State) error {
		assert.Len(t, cloud.ACS.Nodes(), 2)
		return nil
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{failing, replaced}})
}

func TestGrowthThatFailsIsTriedAgain(t *testing.T) {
	cloud := acctest.StartCloud(t)
	failing := step("TestPool/2")
	failing.PreConfig = func() { cloud.ACS.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{acsfake.NoQuota()}}) }
	failing.ExpectError = acctest.Saying("QuotaExceed.ElasticQuota")
	completed := step("TestPool/2")
	completed.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{drifted{"v100": "2 nodes exist, should be 3; its last change did not complete"}}
	completed.ConfigStateChecks = []statecheck.StateCheck{statecheck.ExpectKnownValue(pool, at("drifted_nodes"), knownvalue.MapExact(nil))}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{step("TestPool/1"), failing, completed}})
}

// strict is a cloud that cannot bring a node up to date which Kubernetes does not have.
type strict struct {
	acsfake.Backend
	cloud *acctest.Cloud
}

func (s *strict) UpdateNode(ctx context.Context, old, node acsfake.Node) error {
	if _, err := s.cloud.Kube.Typed.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{}); err != nil {
		return err
	}
	return s.Backend.UpdateNode(ctx, old, node)
}

// A node that was deleted from Kubernetes is a difference, and so is the pool of which a change
// failed for that: until a later apply completes it, also when the node has come back since.
func TestNodeThatTheClusterMissing(t *testing.T) {
	const node = "cn-hangzhou.10.0.1.2"
	absent := "is not in the cluster, though the cloud has it; if it does not come back, restart its instance, or remove it from the pool at the cloud"
	backend := &strict{}
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) {
		backend.Backend = o.Backend
		o.Backend = backend
	})
	backend.cloud = cloud
	planned := func(directory string, before drifted) resource.TestStep {
		s := step(directory)
		s.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{before}
		return s
	}
	kind := corev1.SchemeGroupVersion.WithKind("Node")
	lacking := planned("TestPool/1", drifted{node: absent})
	lacking.PreConfig = func() { cloud.API.Remove(kind, "", node) }
	lacking.ExpectError = acctest.Saying(`"` + node + `" not found`)
	growing := planned("TestPool/2", drifted{node: absent, "v100": "its last change did not complete"})
	growing.ExpectError = lacking.ExpectError
	completed := planned("TestPool/2", drifted{"v100": "its last change did not complete"})
	completed.PreConfig = func() {
		for _, n := range cloud.ACS.Nodes() {
			if n.Name == node {
				require.NoError(t, backend.EnsureNode(t.Context(), n))
			}
		}
	}
	completed.ConfigStateChecks = []statecheck.StateCheck{statecheck.ExpectKnownValue(pool, at("drifted_nodes"), knownvalue.MapExact(nil))}
	after := step("TestPool/2")
	after.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{step("TestPool/1"), lacking, growing, completed, after},
	})
}

func TestCreateWhoseAnswerIsLost(t *testing.T) {
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.Knobs.LoseCreateAnswers = 1 })
	create := step("TestPool/1")
	create.Check = func(*terraform.State) error {
		assert.Len(t, cloud.ACS.Nodes(), 2, "one pool, not two")
		return nil
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{create}})
}

// Without a kubeconfig the pool works, and the plan says what is not checked.
func TestPoolWithoutKubernetes(t *testing.T) {
	acctest.StartCloud(t)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	again := resource.TestStep{ConfigDirectory: config.StaticDirectory("testdata/TestPool/1")}
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{step("TestPool/1"), again}})
}

// Without a kubeconfig, too, the service tells of the pool what it lacks, as after an apply that was interrupted.
func TestPoolWithoutKubernetesThatIsNotComplete(t *testing.T) {
	cloud := acctest.StartCloud(t)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	service := client(t, cloud)
	grown := poolWith("size = 2")
	completed := resource.TestStep{Config: grown, PreConfig: func() {
		pools, err := service.ListNodePools(t.Context(), acctest.ClusterID)
		require.NoError(t, err)
		require.Len(t, pools, 1)
		cloud.ACS.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{acsfake.NoStock()}})
		spec, size := pools[0].NodePoolSpec, int64(2)
		spec.ScalingGroup.DesiredSize = &size
		started, err := service.ModifyNodePool(t.Context(), acctest.ClusterID, pools[0].Info.ID, spec, acs.ModifyOptions{})
		require.NoError(t, err)
		_, err = service.WaitTask(t.Context(), started.TaskID, nil)
		require.ErrorContains(t, err, "InstanceTypeNoStock")
	}}
	completed.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{drifted{"v100": "1 node exists, should be 2"}}
	completed.Check = func(*terraform.State) error {
		assert.Len(t, cloud.ACS.Nodes(), 2)
		return nil
	}
	after := resource.TestStep{Config: grown}
	after.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{Config: poolWith("")}, completed, after}})
}

// A pool that is replaced on request takes the place of its namesake.
func TestReplacementOnRequest(t *testing.T) {
	acctest.StartCloud(t)
	tainted := step("TestPool/1")
	tainted.Taint = []string{pool}
	tainted.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(pool, plancheck.ResourceActionDestroyBeforeCreate)}
	triggered := func(trigger string) resource.TestStep {
		return resource.TestStep{Config: fmt.Sprintf("resource \"terraform_data\" \"trigger\" {\n  input = %q\n}\n", trigger) +
			poolWith("lifecycle {\n    replace_triggered_by = [terraform_data.trigger]\n  }")}
	}
	replaced := triggered("b")
	replaced.ConfigPlanChecks.PreApply = tainted.ConfigPlanChecks.PreApply
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{step("TestPool/1"), tainted, triggered("a"), replaced},
	})
}
