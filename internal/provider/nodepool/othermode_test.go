package nodepool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// relabelled gives a node of the pool another mode, or none, as with kubectl.
func relabelled(t *testing.T, cloud *acctest.Cloud, number int, mode string) {
	t.Helper()
	label(t, cloud, nodeNumber(number), fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, contract.NodeModeLabel, mode))
}

// A node that someone has labelled to or from core_mem is named, and no label is written: by policy it is replaced.
func TestNodeOfAnotherModeIsNamedAndReplaced(t *testing.T) {
	sized := func(size int, more string) string {
		return strings.Replace(poolWith("mode = \"core_mem\"\n  "+more), "size = 1", fmt.Sprintf("size = %d", size), 1)
	}
	const replace = `mode_change_policy = "replace"`
	called := func(names ...string) knownvalue.Check {
		var nodes []knownvalue.Check
		for _, name := range names {
			nodes = append(nodes, knownvalue.ObjectPartial(map[string]knownvalue.Check{"name": knownvalue.StringExact(name)}))
		}
		return knownvalue.ListExact(nodes)
	}
	for name, options := range map[string][]func(*acsfake.Options){
		"a cloud that labels nodes": nil,
		"a slack cloud":             {func(o *acsfake.Options) { o.Backend = forgetful{o.Backend} }},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t, options...)
			modes := func(want map[int]string) resource.TestCheckFunc {
				return func(*terraform.State) error {
					assert.Len(t, cloud.NodeNames(t), len(want))
					for number, mode := range want {
						assert.Equal(t, mode, labelsOf(t, cloud, nodeNumber(number))[contract.NodeModeLabel], number)
					}
					return nil
				}
			}
			others := func(check knownvalue.Check) []statecheck.StateCheck {
				return []statecheck.StateCheck{statecheck.ExpectKnownValue(pool, at("other_mode_nodes"), check)}
			}
			is := func(checks ...plancheck.PlanCheck) resource.ConfigPlanChecks {
				return resource.ConfigPlanChecks{PreApply: checks}
			}
			reported := resource.TestStep{Config: sized(2, ""), PreConfig: func() { relabelled(t, cloud, 2, `"share"`) },
				ConfigPlanChecks: is(plancheck.ExpectEmptyPlan(), plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), called(nodeNumber(1)))),
				Check:            modes(map[int]string{1: "core_mem", 2: "share"}), ConfigStateChecks: others(knownvalue.MapExact(map[string]knownvalue.Check{nodeNumber(2): knownvalue.StringExact("share")}))}
			changed := resource.TestStep{Config: sized(2, `labels = { team = "a" }`),
				ConfigPlanChecks: is(plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), called(nodeNumber(1)))),
				Check: resource.ComposeTestCheckFunc(modes(map[int]string{1: "core_mem", 2: "share"}), func(*terraform.State) error {
					assert.Equal(t, "a", labelsOf(t, cloud, nodeNumber(2))["team"], "other labels are the pool's")
					return nil
				})}
			grown := resource.TestStep{Config: sized(3, ""),
				ConfigPlanChecks: is(plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), called(nodeNumber(1), "v100[1]"))),
				Check:            modes(map[int]string{1: "core_mem", 2: "share", 3: "core_mem"})}
			removed := resource.TestStep{Config: sized(2, fmt.Sprintf("remove_nodes = [%q]", nodeNumber(1))),
				ConfigPlanChecks: is(plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), called(nodeNumber(3)))),
				Check:            modes(map[int]string{2: "share", 3: "core_mem"})}
			replaced := resource.TestStep{Config: sized(2, replace),
				ConfigPlanChecks: is(plancheck.ExpectKnownValue(pool, at("capacity", "nodes"), called(nodeNumber(3), "v100[1]")), plancheck.ExpectUnknownValue(pool, at("node_names"))),
				Check:            modes(map[int]string{3: "core_mem", 4: "core_mem"}), ConfigStateChecks: others(knownvalue.MapExact(nil))}
			resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
				{Config: sized(2, ""), ConfigStateChecks: others(knownvalue.MapExact(nil))},
				reported, changed, grown, removed, replaced,
				{Config: sized(2, replace), ConfigPlanChecks: is(plancheck.ExpectEmptyPlan())},
			}})
		})
	}
}

// The data source counts the nodes that the resource counts.
func TestDataSourceWithoutNodesOfAnotherMode(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	config := strings.Replace(poolWith(""), "size = 1", "size = 2", 1)
	cli.Write(t, config)
	cli.Apply(t, 1, 0, 0)
	relabelled(t, cloud, 1, `"core_mem"`)
	cli.Write(t, config+`
data "gpuplan_node_pool" "same" { name = gpuplan_node_pool.v100.name }
output "same" { value = jsonencode(data.gpuplan_node_pool.same.capacity) == jsonencode(gpuplan_node_pool.v100.capacity) }
output "gpus" { value = data.gpuplan_node_pool.same.capacity.gpus }
output "node_names" { value = length(data.gpuplan_node_pool.same.node_names) }
`)
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "gpus = 8")
	assert.Contains(t, said, "same = true")
	assert.Contains(t, said, "node_names = 2")
}

// The plan says of a node of another mode what becomes of it, and asks for consent where jobs run there.
func TestNodeOfAnotherModeIsSaid(t *testing.T) {
	const stays = "They stay as they are, and count for nothing in the pool's capacity"
	for name, test := range map[string]struct {
		mode, label string
		named       string // "" for one that is labelled again
	}{
		"from core_mem":      {"core_mem", `"share"`, "(share)"},
		"no label any more":  {"core_mem", "null", "(default)"},
		"to core_mem":        {"share", `"core_mem"`, "(core_mem)"},
		"to mig":             {"default", `"mig"`, "(mig)"},
		"between two others": {"share", `"topology"`, ""},
		"from another one":   {"topology", "null", ""},
		"that of its pool":   {"core_mem", `"core_mem"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(fmt.Sprintf("mode = %q", test.mode)))
			cli.Must(t, "apply", "-auto-approve")
			relabelled(t, cloud, 1, test.label)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			assert.Equal(t, test.named != "", strings.Contains(said, stays), said)
			assert.Contains(t, said, test.named)
			cli.Must(t, "apply", "-auto-approve")
			if test.named == "" {
				assert.Equal(t, test.mode, labelsOf(t, cloud, nodeNumber(1))[contract.NodeModeLabel])
				return
			}
			cloud.Put(t, acctest.GangPod("trainer", "trainer-0", nodeNumber(1), 0, 1))
			replace := fmt.Sprintf("mode = %q\n  mode_change_policy = \"replace\"", test.mode)
			cli.Write(t, poolWith(replace))
			said, err := cli.Run("plan")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "The plan replaces nodes of node pool v100 that are of another mode ("+nodeNumber(1)+"), and there are running jobs that would lose their nodes: default/trainer")
			cli.Write(t, poolWith(replace+"\n  allow_disruption = true\n  scaling_policy = \"recycle\""))
			said, err = cli.Run("plan")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "Leave mode_change_policy out, so that they stay, or set scaling_policy = \"release\".")
			cli.Write(t, poolWith(replace+"\n  allow_disruption = true"))
			assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve")), "The apply drains and releases them, and the pool gets new ones.")
			assert.Equal(t, []string{nodeNumber(2)}, cloud.NodeNames(t))
			assert.Contains(t, cli.Must(t, "plan"), "No changes.")
		})
	}
}
