package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const (
	// separate is on a page whose blocks are configurations of their own; those of others are one together.
	separate = "<!-- each block is a configuration -->"
	// exists is before a block that is applied, so that jobs run on its nodes when the next one is planned.
	exists = "<!-- it exists, and a job runs on its nodes -->"
)

// fenced is a block of a page with the comment before it.
var fenced = regexp.MustCompile("(?ms)^(<!-- [^\n]* -->\n)?```(terraform|hcl|text)\n(.*?)^```$")

// guidePlan is a configuration of a guide, and what its plan has to say.
type guidePlan struct {
	before, config string
	says           []string
}

// guidePlans reads the configurations of a guide: a text block is what the plan of the blocks before it says.
func guidePlans(page string) (plans []guidePlan) {
	var next guidePlan
	text := false
	for _, m := range fenced.FindAllStringSubmatch(page, -1) {
		comment, language, block := strings.TrimSpace(m[1]), m[2], m[3]
		switch {
		case language == "hcl": // of others
			continue
		case language == "text":
			next.says, text = append(next.says, block), true
			continue
		case text && strings.Contains(page, separate):
			plans, next, text = append(plans, next), guidePlan{}, false
		}
		if comment == exists {
			next.before = block
			continue
		}
		next.config += block + "\n"
	}
	if next.config != "" {
		plans = append(plans, next)
	}
	return plans
}

// full gives the provider its address in the registry: OpenTofu means another one by the short name.
func full(config string) string {
	return strings.ReplaceAll(config, `"gpuplan/gpuplan"`, `"registry.terraform.io/gpuplan/gpuplan"`)
}

// Every configuration of a guide can be planned, and its plan says what the guide shows.
func TestGuides(t *testing.T) {
	pages, err := filepath.Glob("docs/guides/*.md")
	require.NoError(t, err)
	require.Len(t, pages, 9)
	configurations := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		plans := guidePlans(string(text))
		configurations += len(plans)
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
				if m[2] != "text" {
					requireFormatted(t, m[3])
				}
			}
			for _, plan := range plans {
				planGuide(t, plan)
			}
		})
	}
	assert.Greater(t, configurations, 15)
}

// The guide on fleets shows the example, which make demo-fleet runs: a plan of it needs a hub.
func TestGuideOfFleet(t *testing.T) {
	page, err := os.ReadFile("docs/guides/fleet.md")
	require.NoError(t, err)
	example, err := os.ReadFile("examples/fleet/main.tf")
	require.NoError(t, err)
	blocks := fenced.FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(blocks), 4)
	for _, m := range blocks {
		assert.Equal(t, "hcl", m[2])
		assert.Contains(t, string(example), m[3])
	}
}

// requireFormatted checks that terraform can read a block, and would not format it otherwise.
func requireFormatted(t *testing.T, block string) {
	t.Helper()
	format := newCLI(t, "").Command("fmt", "-check", "-diff", "-")
	format.Stdin = strings.NewReader(block)
	output, err := format.CombinedOutput()
	require.NoError(t, err, "%s\n%s", output, block)
}

func planGuide(t *testing.T, plan guidePlan) {
	t.Helper()
	cloud := acctest.StartCloud(t)
	terraform := newCLI(t, full(plan.before))
	if plan.before != "" {
		terraform.Must(t, "apply", "-auto-approve")
		for _, node := range cloud.NodeNames(t) {
			cloud.Put(t, acctest.GangPod("trainer", "trainer-"+node, node, 0, 1))
		}
	}
	imports := strings.Contains(plan.config, "\nimport {")
	if imports {
		poolOfTheOtherProvider(t, cloud)
	}
	terraform.Write(t, full(plan.config))
	output, err := terraform.Run("plan")
	refused := false
	for _, says := range plan.says {
		refused = refused || strings.HasPrefix(says, "Error: ")
		for paragraph := range strings.SplitSeq(says, "\n\n") {
			if !strings.Contains(acctest.Unwrapped(output), acctest.Unwrapped(paragraph)) {
				assert.Fail(t, "the plan does not say this", "%s\nbut\n%s\nof\n%s", paragraph, output, plan.config)
			}
		}
	}
	if refused {
		assert.Error(t, err, output)
		return
	}
	require.NoError(t, err, "%s\n%s", output, plan.config)
	if plan.before == "" && !imports {
		assert.Contains(t, output, "0 to change, 0 to destroy")
	}
	if imports {
		terraform.Must(t, "apply", "-auto-approve")
		terraform.Unchanged(t)
		terraform.Must(t, "state", "rm", "gpuplan_node_pool.v100")
		assert.Contains(t, terraform.Must(t, "plan"), "Plan: 1 to import, 0 to add, 0 to change, 0 to destroy.", "a pool with the label")
	}
}

// poolOfTheOtherProvider makes the pool that the guide on migration begins with, as the alicloud provider makes it.
func poolOfTheOtherProvider(t *testing.T, cloud *acctest.Cloud) {
	t.Helper()
	client, err := acs.New(acs.Config{Endpoint: cloud.Endpoint, Region: acctest.Region, Credentials: cloud.Credentials(), PollInterval: 10 * time.Millisecond})
	require.NoError(t, err)
	size := int64(2)
	started, err := client.CreateNodePool(t.Context(), acctest.ClusterID, acs.NodePoolSpec{
		Info: acs.NodePoolInfo{Name: "v100"},
		ScalingGroup: acs.ScalingGroup{
			InstanceTypes: []string{"ecs.gn6v-c10g1.20xlarge"}, DesiredSize: &size, VSwitchIDs: []string{"vsw-bp1q8tcxl9xxxxxxxxxxx"},
			SystemDiskCategory: "cloud_essd", SystemDiskSize: 120, KeyPair: "ops", Tags: []acs.Tag{{Key: "team", Value: "vision"}},
		},
		KubernetesConfig: acs.KubernetesConfig{
			Labels:    []acs.Label{{Key: contract.NodeModeLabel, Value: "topology"}, {Key: "team", Value: "vision"}},
			Taints:    []acs.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}},
			CPUPolicy: acs.CPUPolicyStatic,
		},
	})
	require.NoError(t, err)
	_, err = client.WaitNodePool(t.Context(), acctest.ClusterID, started.PoolID, size, func(acs.Progress) {})
	require.NoError(t, err)
}

// What a page has is found in it.
func TestGuidePlans(t *testing.T) {
	const block = "```terraform\nA\n```\n"
	text := func(says string) string { return "```text\n" + says + "\n```\n" }
	for name, test := range map[string]struct {
		page string
		want []guidePlan
	}{
		"together": {block + text("x") + block + "```hcl\nB\n```\n```sh\nC\n```\n" + text("y"), []guidePlan{{config: "A\n\nA\n\n", says: []string{"x\n", "y\n"}}}},
		"separate": {separate + "\n" + block + text("x") + text("y") + block + text("z"), []guidePlan{{config: "A\n\n", says: []string{"x\n", "y\n"}}, {config: "A\n\n", says: []string{"z\n"}}}},
		"exists":   {separate + "\n" + exists + "\n" + block + block + text("x"), []guidePlan{{before: "A\n", config: "A\n\n", says: []string{"x\n"}}}},
		"nothing":  {text("x"), nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, guidePlans(test.page)) })
	}
}
