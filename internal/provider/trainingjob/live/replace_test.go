package live_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Terraform plans a replacement twice and leaves out the warnings of the second plan, in
// which the new job is placed. They must be in the first.
func TestWarningsOfReplacements(t *testing.T) {
	acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {4, ""}, "b": {4, ""}}}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })

	cli.Write(t, setting{size: 1, gangs: gangs{"a": {5, ""}, "b": {5, ""}}}.config())
	said := acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "2 to add, 0 to change, 2 to destroy")
	assert.Contains(t, said, "Jobs fit alone, but not together")
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {5, ""}, "b": {3, ""}}}.config())
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), "not together")
}

// renamed are an elastic job with seven GPUs and a rigid one with six, which use their quota up,
// under the names that they have for now.
func renamed(elastic, rigid string) string {
	return setting{size: 2, max: 13, more: fmt.Sprintf(`
resource "gpuplan_training_job" "elastic" {
  name       = %q
  framework  = "pytorch"
  image      = "train:1"
  quota      = gpuplan_quota_tree.main.leaves["a"]
  gang       = { minimum = 3 }
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { master = { gpus = 1 }, worker = { replicas = 6, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
resource "gpuplan_training_job" "rigid" {
  name       = %q
  framework  = "mpi"
  image      = "train:1"
  quota      = gpuplan_quota_tree.main.leaves["a"]
  after      = [gpuplan_training_job.elastic.placed]
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { worker = { replicas = 6, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
`, elastic, rigid)}.config()
}

// plannedPlacements are the placements that the plan in the file "saved" names, by job.
func plannedPlacements(t *testing.T, cli *acctest.CLI) map[string]any {
	t.Helper()
	var file struct {
		ResourceChanges []struct {
			Address string
			Change  struct{ After map[string]any }
		} `json:"resource_changes"`
	}
	require.NoError(t, json.Unmarshal([]byte(cli.Must(t, "show", "-json", "saved")), &file))
	places := map[string]any{}
	for _, r := range file.ResourceChanges {
		if place, ok := r.Change.After["planned_placement"]; ok {
			places[r.Address] = place
		}
	}
	return places
}

// A job whose name changes is replaced like any other: it is planned without what the old one
// holds of GPUs and quota, and runs where the plan says.
func TestJobsChangeNames(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	apply := func(config string) (places map[string]any, said string) {
		cli.Write(t, config)
		said = cli.Must(t, "plan", "-out=saved")
		places = plannedPlacements(t, cli)
		return places, acctest.Unwrapped(said + cli.Must(t, "apply", "saved"))
	}
	apply(renamed("el", "rig"))
	t.Cleanup(func() {
		cli.Write(t, setting{size: 2, max: 13}.config())
		cli.Must(t, "apply", "-auto-approve")
		cli.Must(t, "destroy", "-auto-approve")
	})
	first, _ := apply(renamed("el", "rig")) // the nodes have names by now
	require.Len(t, first, 2)
	for _, names := range [][2]string{{"el2", "rig"}, {"el2", "rig2"}, {"rig2", "el2"}, {"el3", "rig3"}} {
		places, said := apply(renamed(names[0], names[1]))
		assert.Equal(t, first, places, "%v", names)
		assert.NotContains(t, said, "Warning: Job", "%v", names)
		assert.Equal(t, "true", asPlanned(t, cli, "elastic"), "%v", names)
		assert.Equal(t, "true", asPlanned(t, cli, "rigid"), "%v", names)
		assert.Contains(t, cli.Must(t, "plan"), "No changes", "%v", names)
	}
	events, err := client.Typed.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NotAsPlanned"})
	require.NoError(t, err)
	for _, event := range events.Items { // other tests have jobs of other names
		name := event.InvolvedObject.Name
		assert.False(t, strings.HasPrefix(name, "el") || strings.HasPrefix(name, "rig"), event.Message)
	}
}

// Terraform tells no provider that it creates a job before it deletes the one of another name. What was
// planned in its place is then not created; a job whose place is known after apply is placed beside it.
func TestJobIsCreatedBeforeTheOneThatItReplaces(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	config := func(name, pools string) string {
		return setting{size: 2, gangs: gangs{}, more: fmt.Sprintf(`
resource "gpuplan_training_job" "a" {
  name       = %q
  framework  = "mpi"
  image      = "train:1"
  roles      = { worker = { replicas = 6, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
  %s
  lifecycle { create_before_destroy = true }
}
`, name, pools)}.config()
	}
	const pools = "pools = [gpuplan_node_pool.v100.capacity]"
	cli.Write(t, config("a", pools))
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() {
		cli.Write(t, setting{size: 2}.config())
		cli.Must(t, "apply", "-auto-approve")
		cli.Must(t, "destroy", "-auto-approve")
	})
	cli.Write(t, config("b", pools))
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "planned_placement")
	assert.Equal(t, 6, runningPods(t, client, "a"), "nothing has changed")
	assert.Equal(t, 0, runningPods(t, client, "b"))

	cli.Write(t, config("b", ""))
	cli.Must(t, "apply", "-auto-approve")
	assert.Equal(t, 0, runningPods(t, client, "a"))
	assert.Equal(t, 6, runningPods(t, client, "b"))
	assert.Equal(t, "true", asPlanned(t, cli, "a"))
}
