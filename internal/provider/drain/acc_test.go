package drain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// start starts a cluster with the nodes gpu-1 and gpu-2 of pool v100, on each of which a gang of one runs.
func start(t *testing.T) *acctest.Cloud {
	t.Helper()
	if !acctest.Since(t, 14) {
		t.Skip("actions are HashiCorp's, and came with Terraform 1.14")
	}
	cloud := acctest.StartCloud(t)
	for node, gang := range map[string]string{"gpu-1": "a", "gpu-2": "b"} {
		object, err := acctest.Node(acsfake.Node{
			Name: node, InstanceType: "ecs.gn6v-c10g1.20xlarge", Mode: "topology", Created: time.Now().Add(-time.Hour),
			Labels: map[string]string{contract.NodePoolNameLabel: "v100", contract.NodeModeLabel: "topology"},
		})
		require.NoError(t, err)
		cloud.API.Put(object)
		pod := acctest.GangPod(gang, gang+"-worker-0", node, 0, 1)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob", Name: gang, UID: "u", Controller: ptr.To(true)}}
		cloud.Put(t, pod)
	}
	return cloud
}

func pods(t *testing.T, cloud *acctest.Cloud) (names []string) {
	t.Helper()
	list, err := cloud.Kube.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// action is the action with some arguments, invoked with the creation of another resource.
func action(arguments string) string {
	return `
action "gpuplan_drain_nodes" "x" {
  config {
    ` + arguments + `
  }
}
resource "terraform_data" "after" {
  lifecycle {
    action_trigger {
      events  = [after_create]
      actions = [action.gpuplan_drain_nodes.x]
    }
  }
}
`
}

// An action that is invoked by itself evicts what the plan has named, and no more.
func TestActionIsInvoked(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, action(`nodes = ["gpu-1"]`))
	said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve", "-invoke=action.gpuplan_drain_nodes.x"))
	assert.Contains(t, said, "The action drains gpu-1, and evicts what runs there, gangs as a whole: default/a (on gpu-1).")
	assert.Contains(t, said, "Node gpu-1 is cordoned.")
	assert.Contains(t, said, "Drained gpu-1: 1 pod left.")
	assert.Equal(t, []string{"b-worker-0"}, pods(t, cloud))
}

// A resource can trigger it; all nodes of a pool are drained. Nothing is left to do afterwards.
func TestActionIsTriggered(t *testing.T) {
	cloud := start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, action(`pool = "v100"`))
	said := acctest.Unwrapped(cli.Must(t, "plan", "-out=saved"))
	assert.Contains(t, said, "default/a (on gpu-1), default/b (on gpu-2).")
	assert.Len(t, pods(t, cloud), 2, "a plan evicts nobody")
	said = acctest.Unwrapped(cli.Must(t, "apply", "saved"))
	assert.NotContains(t, said, "The action drains", "an apply says nothing that the plan has said")
	assert.Contains(t, said, "Drained gpu-1, gpu-2: 2 pods left.")
	assert.Empty(t, pods(t, cloud))
	cli.Unchanged(t)
}

// Mistakes are found in a plan, or before anything is done.
func TestActionIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ arguments, says string }{
		"no nodes":         {``, "No attribute specified when one (and only one) of"},
		"both":             {`nodes = ["gpu-1"]` + "\n" + `pool = "v100"`, "2 attributes specified when one (and only one) of"},
		"no such node":     {`nodes = ["gpu-1", "gpu-9"]`, "The cluster has no node gpu-9. Write names that `kubectl get nodes` shows."},
		"no duration":      {`nodes = ["gpu-1"]` + "\n" + `timeout = "soon"`, "must be a positive duration such as 30s or 5m"},
		"null in the list": {`nodes = ["gpu-1", null]`, "nodes[1] is null: leave it out."},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			acctest.StartCLI(t).Refuses(t, action(test.arguments), acctest.Saying(test.says))
			assert.Len(t, pods(t, cloud), 2)
		})
	}
}

// Values that Terraform does not know when it validates, as those of variables, are held against the same rules: it validates an action no
// second time.
func TestActionIsRefusedWithVariables(t *testing.T) {
	for name, test := range map[string]struct{ arguments, value, says string }{
		"no nodes":         {`nodes = var.x`, `null`, "No attribute specified when one (and only one) of"},
		"an empty list":    {`nodes = var.x`, `[]`, "list must contain at least 1 elements"},
		"null in the list": {`nodes = var.x`, `[null]`, "nodes[0] is null: leave it out."},
		"both":             {`nodes = ["gpu-1"]` + "\n" + `pool = var.x`, `"v100"`, "2 attributes specified when one (and only one) of"},
		"no duration":      {`nodes = ["gpu-1"]` + "\n" + `timeout = var.x`, `"-5m"`, "must be a positive duration such as 30s or 5m"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := start(t)
			cli := acctest.StartCLI(t)
			variable := "variable \"x\" {\n  default = " + test.value + "\n}\n"
			cli.Refuses(t, variable+action(test.arguments), acctest.Saying(test.says))
			said, err := cli.Run("plan", "-invoke=action.gpuplan_drain_nodes.x")
			require.Error(t, err)
			assert.Regexp(t, acctest.Saying(test.says), said)

			// The same, of values that only the apply knows.
			later := strings.ReplaceAll(test.arguments, "var.x", "terraform_data.before.output")
			cli.Write(t, variable+action(later)+"resource \"terraform_data\" \"before\" {\n  input = var.x\n}\n")
			said, err = cli.Run("apply", "-auto-approve")
			require.Error(t, err)
			assert.Regexp(t, acctest.Saying(test.says), said)
			assert.Len(t, pods(t, cloud), 2)
		})
	}
}

// A pool without nodes is no error, as before its first apply, but said: it may be misspelt.
func TestActionOnAPoolWithoutNodes(t *testing.T) {
	start(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, action(`pool = "v10"`))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "The cluster has no node of pool v10 now, so the action will do nothing. Check the name of the pool.")
}

// What stays is the action's error.
func TestActionFails(t *testing.T) {
	cloud := start(t)
	lone := acctest.GangPod("lone", "lone", "gpu-1", 2)
	cloud.Put(t, lone)
	cli := acctest.StartCLI(t)
	cli.Write(t, action(`nodes = ["gpu-1"]`))
	said, err := cli.Run("apply", "-auto-approve", "-invoke=action.gpuplan_drain_nodes.x")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "so the action will fail: default/lone. Move them, or evict them as well with force = true.")
	assert.Contains(t, acctest.Unwrapped(said), "Nobody makes these pods again, because no controller has made them: default/lone;")
	assert.Len(t, pods(t, cloud), 3)
}
