package nodepool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// shrunk is a pool of a size from which nodes are to go, which have these numbers.
func shrunk(size int, numbers ...int) string {
	if len(numbers) == 0 {
		return poolWith(fmt.Sprintf("size = %d", size))
	}
	var names []string
	for _, n := range numbers {
		names = append(names, fmt.Sprintf("%q", nodeNumber(n)))
	}
	return poolWith(fmt.Sprintf("size = %d\n  remove_nodes = [%s]", size, strings.Join(names, ", ")))
}

func nodeNumber(n int) string { return fmt.Sprintf("cn-hangzhou.10.0.1.%d", n) }

// Nodes that are named go, and no others: the plan knows what is left, and jobs there stay.
func TestNodesThatGoAreNamed(t *testing.T) {
	cloud := acctest.StartCloud(t)
	named := func(numbers ...int) knownvalue.Check {
		var nodes []knownvalue.Check
		for _, n := range numbers {
			nodes = append(nodes, knownvalue.ObjectPartial(map[string]knownvalue.Check{"name": knownvalue.StringExact(nodeNumber(n))}))
		}
		return knownvalue.ListExact(nodes)
	}
	left := func(numbers ...int) func(*terraform.State) error {
		var names []string
		for _, n := range numbers {
			names = append(names, nodeNumber(n))
		}
		return func(*terraform.State) error {
			assert.ElementsMatch(t, names, cloud.NodeNames(t))
			return nil
		}
	}
	planned := func(config string, check func(*terraform.State) error, checks ...plancheck.PlanCheck) resource.TestStep {
		return resource.TestStep{Config: config, Check: check, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: checks}}
	}
	second := planned(shrunk(3, 2), left(1, 3, 4),
		plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), named(1, 3, 4)),
		plancheck.ExpectKnownValue(pool, at("node_names"), knownvalue.ListExact([]knownvalue.Check{
			knownvalue.StringExact(nodeNumber(1)), knownvalue.StringExact(nodeNumber(3)), knownvalue.StringExact(nodeNumber(4))})))
	second.PreConfig = func() {
		cloud.Put(t, acctest.GangPod("trainer", "trainer-0", nodeNumber(1), 0, 1))
		cloud.Put(t, acctest.GangPod("other", "other-0", nodeNumber(4), 0, 1))
	}
	refused := func(config, says string) resource.TestStep {
		return resource.TestStep{Config: config, PlanOnly: true, ExpectError: acctest.SayingAt("remove_nodes", says)}
	}
	ended := planned(shrunk(2), left(1, 4))
	ended.PreConfig = func() {
		for _, name := range []string{"trainer-0", "other-0"} {
			cloud.API.Remove(corev1.SchemeGroupVersion.WithKind("Pod"), "default", name)
		}
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		planned(shrunk(4), left(1, 2, 3, 4)),
		planned(shrunk(4, 2), left(1, 2, 3, 4), plancheck.ExpectResourceAction(pool, plancheck.ResourceActionUpdate)),
		second,
		planned(shrunk(3, 2), left(1, 3, 4), plancheck.ExpectEmptyPlan()),
		{Config: poolWith("size = 2\n  remove_nodes = []"), PlanOnly: true, ExpectError: acctest.SayingAt("size", "(the cloud chooses which ones go)")},
		{Config: shrunk(2), PlanOnly: true, ExpectError: acctest.SayingAt("size", "let nodes go that run no jobs: size = 2, remove_nodes = [\""+nodeNumber(3)+"\"], or set allow_disruption = true.")},
		{Config: shrunk(1), PlanOnly: true, ExpectError: acctest.SayingAt("size", "let nodes go that run no jobs: size = 2, remove_nodes = [\""+nodeNumber(3)+"\"], or set allow_disruption = true.")},
		refused(shrunk(2, 4), "The plan shrinks node pool v100 from 3 to 2 nodes ("+nodeNumber(4)+"), and there are running jobs that would lose their nodes: default/other (on "+nodeNumber(4)+")."),
		refused(shrunk(2, 2), "remove_nodes names none of the pool's nodes. Name 1 of those in node_names,"),
		refused(shrunk(2, 1, 3), "remove_nodes names 2 of the pool's nodes ("+nodeNumber(1)+", "+nodeNumber(3)+")."),
		{Config: acctest.Forgotten(pool)},
		planned(shrunk(2, 2, 3), left(1, 4)), // the apply finds the pool, and goes on with it
		planned(shrunk(2, 2, 3), left(1, 4), plancheck.ExpectEmptyPlan()),
		ended,
	}})
}

// Nodes that are named while the pool keeps its size stay, and the plan says so.
func TestNamedNodesOfAPoolThatKeepsItsSize(t *testing.T) {
	acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, shrunk(2))
	cli.Apply(t, 1, 0, 0)
	for config, warned := range map[string]bool{shrunk(2, 2): true, shrunk(3, 2): true, shrunk(1, 2): false, shrunk(2, 7): false} {
		cli.Write(t, config)
		said := acctest.Unwrapped(cli.Must(t, "plan"))
		assert.Equal(t, warned, strings.Contains(said, "remove_nodes names "+nodeNumber(2)+" of node pool v100, which keeps its size of 2 or grows, so that they stay. Lower size by 1"), said)
	}
}

// A removal that failed is taken up again by the next apply.
func TestRemovalThatFails(t *testing.T) {
	cloud := acctest.StartCloud(t)
	failing := resource.TestStep{Config: shrunk(1, 1), ExpectError: acctest.Saying("DrainFailed")}
	failing.PreConfig = func() {
		cloud.ACS.SetKnobs(acsfake.Knobs{TaskFaults: []acsfake.Fault{{Code: "DrainFailed", Message: "The node does not answer."}}})
	}
	completed := resource.TestStep{Config: shrunk(1, 1)}
	completed.Check = func(*terraform.State) error {
		assert.Equal(t, []string{nodeNumber(2)}, cloud.NodeNames(t))
		return nil
	}
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{{Config: shrunk(2)}, failing, completed}})
}

// Instances that are to be stopped and kept are not released: the plan refuses to choose their nodes.
func TestNodesWhoseInstancesAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		policy, chosen string // what the pool has, and what is written with the choice
		outside        bool   // someone else has set it
		says           string
	}{
		"by the pool":             {`scaling_policy = "recycle"`, `scaling_policy = "recycle"`, false, `scaling_policy of node pool v100 is "recycle"`},
		"left out since":          {`scaling_policy = "recycle"`, "", false, "The service can only release those of nodes that it is told to remove: " + nodeNumber(2) + "."},
		"by someone else":         {"", "", true, "so that the service chooses nodes and stops their instances, or set scaling_policy = \"release\"."},
		"released from now on":    {`scaling_policy = "recycle"`, `scaling_policy = "release"`, false, ""},
		"released, as by default": {"", "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			with := func(config, policy string) string { return strings.Replace(config, "\n}", "\n  "+policy+"\n}", 1) }
			chosen := resource.TestStep{Config: with(shrunk(1, 2), test.chosen)}
			chosen.PreConfig = func() {
				if test.outside {
					someone(t, cloud, func(spec *acs.NodePoolSpec) { spec.ScalingGroup.ScalingPolicy = acs.ScalingPolicyRecycle })
				}
			}
			if test.says != "" {
				chosen.PlanOnly, chosen.ExpectError = true, acctest.SayingAt("remove_nodes", test.says)
			}
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
				{Config: with(shrunk(2), test.policy)}, chosen, {Config: with(shrunk(1), test.chosen)},
			}})
		})
	}
}
