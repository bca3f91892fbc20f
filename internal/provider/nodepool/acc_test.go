package nodepool_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
)

const pool = "gpuplan_node_pool.v100"

func step(directory string) resource.TestStep {
	return resource.TestStep{ConfigDirectory: config.StaticDirectory("testdata/" + directory)}
}

func at(steps ...string) tfjsonpath.Path {
	p := tfjsonpath.New(steps[0])
	for _, s := range steps[1:] {
		p = p.AtMapKey(s)
	}
	return p
}

// The capacity is known in the first plan and is what the plan said after the apply;
// the next refresh reads the nodes, which is no change.
// A pool of no nodes is made, and has its mode when it gets some.
func TestPoolThatIsEmptyAtFirst(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith("size = 0"))
	cli.Must(t, "apply", "-auto-approve")
	assert.Empty(t, cloud.NodeNames(t))
	cli.Unchanged(t)
	cli.Write(t, poolWith("size = 1"))
	cli.Must(t, "apply", "-auto-approve")
	nodes := cloud.ACS.Nodes()
	if !assert.Len(t, nodes, 1) {
		return
	}
	assert.Equal(t, "topology", nodes[0].Mode)
}

func TestPool(t *testing.T) {
	cloud := acctest.StartCloud(t)
	nodeCalled := func(name string) knownvalue.Check {
		return knownvalue.ObjectPartial(map[string]knownvalue.Check{"name": knownvalue.StringExact(name), "held": knownvalue.Null()})
	}

	create := step("TestPool/1")
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(pool, at("capacity", "gpus"), knownvalue.Int64Exact(16)),
		plancheck.ExpectKnownValue(pool, at("capacity", "wiring"), knownvalue.StringExact("dgx1-v100")),
		plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), knownvalue.ListExact([]knownvalue.Check{nodeCalled("v100[0]"), nodeCalled("v100[1]")})),
		plancheck.ExpectUnknownValue(pool, at("nodepool_id")),
	}
	create.ConfigStateChecks = []statecheck.StateCheck{
		statecheck.ExpectKnownValue(pool, at("state"), knownvalue.StringExact("active")),
		statecheck.ExpectKnownValue(pool, at("drifted_nodes"), knownvalue.MapExact(nil)),
		statecheck.ExpectKnownValue(pool, at("node_names"), knownvalue.ListExact([]knownvalue.Check{
			knownvalue.StringExact("cn-hangzhou.10.0.1.1"), knownvalue.StringExact("cn-hangzhou.10.0.1.2")})),
	}

	again := step("TestPool/1")
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	again.ConfigStateChecks = []statecheck.StateCheck{
		statecheck.ExpectKnownValue(pool, at("capacity", "nodes"), knownvalue.ListExact([]knownvalue.Check{
			nodeCalled("cn-hangzhou.10.0.1.1"), nodeCalled("cn-hangzhou.10.0.1.2")})),
	}

	change := step("TestPool/2")
	change.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectResourceAction(pool, plancheck.ResourceActionUpdate),
		plancheck.ExpectKnownValue(pool, at("capacity", "gpus"), knownvalue.Int64Exact(24)),
		plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), knownvalue.ListExact([]knownvalue.Check{
			nodeCalled("cn-hangzhou.10.0.1.1"), nodeCalled("cn-hangzhou.10.0.1.2"), nodeCalled("v100[2]")})),
		plancheck.ExpectUnknownValue(pool, at("node_names")),
	}
	change.Check = func(*terraform.State) error {
		for _, n := range cloud.ACS.Nodes() {
			assert.Equal(t, "vision", n.Labels["team"], n.Name)
			assert.Equal(t, "topology", n.Mode, n.Name)
		}
		assert.Len(t, cloud.NodeNames(t), 3)
		return nil
	}

	refreshed := step("TestPool/2")
	refreshed.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	imported := resource.TestStep{ResourceName: pool, ImportState: true, ImportStateVerify: true, ImportStateVerifyIgnore: slices.Collect(maps.Keys(setting.Attributes()))} // those that nobody wrote are known then
	byName := imported
	byName.ImportStateId = "v100"

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, change, refreshed, imported, byName},
		CheckDestroy: func(*terraform.State) error {
			assert.Empty(t, cloud.ACS.Nodes())
			assert.Empty(t, cloud.NodeNames(t))
			return nil
		},
	})
}

// An object with nothing in it stays, and is no change in every plan.
func TestEmptyKubeletConfig(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith("kubelet_config = {}"))
	cli.Apply(t, 1, 0, 0)
	cli.Unchanged(t)
	cli.Write(t, poolWith("kubelet_config = { max_pods = 100 }"))
	cli.Apply(t, 0, 1, 0)
	cli.Unchanged(t)
	cli.Write(t, poolWith("kubelet_config = {}"))
	cli.Unchanged(t)
}

// What is written and empty is what is left out: the cloud decides, in every later plan as well.
func TestEmptySettings(t *testing.T) {
	config := func(size int, settings string) string {
		return fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = %d
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  %s
}
`, size, settings)
	}
	const empty = "security_group_ids = []\n key_pair = \"\"\n image_id = \"\"\n image_type = \"\"\n system_disk_category = \"\""
	const written = "security_group_ids = [\"sg-1\"]\n key_pair = \"ops\"\n image_id = \"m-1\"\n image_type = \"AliyunLinux3\"\n system_disk_category = \"cloud_essd\""
	for name, before := range map[string]string{"from the beginning": empty, "of what was left out": "", "of what was written": written} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, config(1, before))
			cli.Apply(t, 1, 0, 0)
			cli.Write(t, config(1, empty))
			cli.Unchanged(t)
			cli.Must(t, "state", "rm", pool)
			cli.Must(t, "import", pool, "v100")
			cli.Unchanged(t)
			cli.Write(t, config(2, empty))
			cli.Apply(t, 0, 1, 0)
			cli.Unchanged(t)
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}

// Which nodes a smaller pool loses the cloud chooses: the plan names none that stays, and says
// what the pool offers where that is the same whichever go.
func TestSmallerPool(t *testing.T) {
	sized := func(size int, changes ...plancheck.PlanCheck) resource.TestStep {
		return resource.TestStep{Config: poolWith(fmt.Sprintf("size = %d", size)), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: changes}}
	}
	called := func(names ...string) plancheck.PlanCheck {
		nodes := []knownvalue.Check{}
		for _, name := range names {
			nodes = append(nodes, knownvalue.ObjectPartial(map[string]knownvalue.Check{"name": knownvalue.StringExact(name)}))
		}
		return plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), knownvalue.ListExact(nodes))
	}
	open := []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(pool, at("capacity", "pool"), knownvalue.StringExact("v100")),
		plancheck.ExpectKnownValue(pool, at("capacity", "mode"), knownvalue.StringExact("topology")),
		plancheck.ExpectKnownValue(pool, at("capacity", "gpus_per_node"), knownvalue.Int64Exact(8)),
		plancheck.ExpectKnownValue(pool, at("capacity", "wiring"), knownvalue.StringExact("dgx1-v100")),
		plancheck.ExpectUnknownValue(pool, at("capacity", "nodes")), plancheck.ExpectUnknownValue(pool, at("node_names")),
	}
	for name, test := range map[string]struct {
		differ func(*testing.T, *acctest.Cloud)
		size   int
		plan   []plancheck.PlanCheck
	}{
		"nodes that are alike": {func(*testing.T, *acctest.Cloud) {}, 2,
			[]plancheck.PlanCheck{called("v100[0]", "v100[1]"), plancheck.ExpectUnknownValue(pool, at("node_names"))}},
		"nodes that differ": {func(t *testing.T, cloud *acctest.Cloud) {
			label(t, cloud, "cn-hangzhou.10.0.1.2", `{"spec":{"unschedulable":true}}`)
		}, 2, open},
		"a node that is absent": {func(_ *testing.T, cloud *acctest.Cloud) {
			cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Node"), "", "cn-hangzhou.10.0.1.2")
		}, 2, open},
		"all nodes": {func(t *testing.T, cloud *acctest.Cloud) {
			label(t, cloud, "cn-hangzhou.10.0.1.2", `{"spec":{"unschedulable":true}}`)
		}, 0, []plancheck.PlanCheck{called()}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			shrunk := sized(test.size, append(test.plan, plancheck.ExpectKnownValue(pool, at("state"), knownvalue.StringExact("active")))...)
			shrunk.PreConfig = func() { test.differ(t, cloud) }
			shrunk.Check = func(*terraform.State) error {
				assert.Len(t, cloud.NodeNames(t), test.size)
				return nil
			}
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps:                    []resource.TestStep{sized(3), shrunk, sized(test.size, plancheck.ExpectEmptyPlan())},
			})
		})
	}
}

// A pool whose type is not to be had gets the next one. Its nodes are planned with the least of both.
func TestFallbackInstanceTypes(t *testing.T) {
	const first, second, third = "ecs.gn6v-c10g1.20xlarge", "ecs.gn6v-c8g1.16xlarge", "ecs.ebmgn6v.24xlarge"
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.Knobs.OutOfStock = []string{first} })
	with := func(types string, action plancheck.ResourceActionType, more ...plancheck.PlanCheck) resource.TestStep {
		return resource.TestStep{Config: poolWith(types), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: append(more, plancheck.ExpectResourceAction(pool, action))}}
	}
	const none = "fallback_instance_types = []\n  remove_nodes = []"
	const two, three = `fallback_instance_types = ["` + second + `"]`, `fallback_instance_types = ["` + third + `", "` + second + `"]`
	typeLabel := func(known knownvalue.Check) plancheck.PlanCheck {
		return plancheck.ExpectKnownValue(pool, at("capacity").AtMapKey("nodes").AtSliceIndex(0).AtMapKey("labels"), known)
	}
	created := with(two, plancheck.ResourceActionCreate,
		plancheck.ExpectKnownValue(pool, at("capacity", "gpus"), knownvalue.Int64Exact(8)), typeLabel(knownvalue.Null()))
	created.Check = func(*terraform.State) error {
		for _, n := range cloud.ACS.Nodes() {
			assert.Equal(t, second, n.InstanceType)
		}
		return nil
	}
	isSecond := typeLabel(knownvalue.MapPartial(map[string]knownvalue.Check{"node.kubernetes.io/instance-type": knownvalue.StringExact(second)}))
	alone := with("", plancheck.ResourceActionUpdate, isSecond,
		plancheck.ExpectKnownValue(pool, at("capacity").AtMapKey("nodes").AtSliceIndex(0).AtMapKey("milli_cpu"), knownvalue.NotNull()))
	alone.Check = func(*terraform.State) error {
		assert.Equal(t, []string{first}, record(t, cloud).ScalingGroup.InstanceTypes)
		return nil
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		created,
		with(two, plancheck.ResourceActionNoop, isSecond),
		with(three, plancheck.ResourceActionUpdate, isSecond),
		with(three, plancheck.ResourceActionNoop, isSecond),
		{Config: acctest.Forgotten(pool)},
		{Config: poolWith(three), ResourceName: pool, ImportState: true, ImportStatePersist: true, ImportStateId: "v100"},
		with(three, plancheck.ResourceActionNoop, isSecond),
		with(none, plancheck.ResourceActionUpdate, isSecond),
		with(none, plancheck.ResourceActionNoop),
		with(two, plancheck.ResourceActionUpdate),
		alone,
		with("", plancheck.ResourceActionNoop),
		with(none, plancheck.ResourceActionUpdate, isSecond),
		{Config: acctest.Forgotten(pool)},
		{Config: poolWith(none), ResourceName: pool, ImportState: true, ImportStatePersist: true, ImportStateId: "v100"},
		with(none, plancheck.ResourceActionNoop),
	}})
}
