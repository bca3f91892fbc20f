package trainingjob_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A plan warns of nodes whose agents say that nothing keeps programs within their parts of GPUs.
func TestPartsOfGPUsThatAreNotEnforced(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	shared := strings.NewReplacer(`"topology"`, `"share"`, "gpus = 1", "memory_gib = 4", `image     = "train:1"`, `image = "train:1"`+"\n  mode = \"shared\"").Replace(oneJob("pytorch", "", ""))
	cli.Write(t, shared)
	cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
	node := cloud.NodeNames(t)[0]
	plan := func(sharing *contract.GPUSharing) string {
		t.Helper()
		machine, ok := catalog.Machine("ecs.gn6v-c10g1.20xlarge")
		require.True(t, ok)
		status := contract.StatusOf(machine)
		status.Sharing = sharing
		cloud.Publish(t, node, status)
		return acctest.Unwrapped(cli.Must(t, "plan"))
	}
	const summary = "Parts of GPUs are not enforced"
	assert.NotContains(t, plan(nil), summary, "nobody knows")
	assert.NotContains(t, plan(&contract.GPUSharing{Enforcement: contract.EnforcedByMPS}), summary)
	refused := &contract.GPUSharing{Enforcement: contract.NotEnforced, Reason: "no such program"}
	said := plan(refused)
	assert.Contains(t, said, summary)
	assert.Contains(t, said, "On node "+node+" which it may use, nothing keeps programs within theirs")
	assert.Contains(t, said, "The node agent of "+node+" says: no such program")
	cli.Write(t, strings.Replace(shared, "pools     = [gpuplan_node_pool.v100.capacity]", "", 1))
	assert.Contains(t, plan(refused), summary, "it may use all nodes")

	whole := strings.NewReplacer("memory_gib = 4", "gpus = 1", `mode = "shared"`, `mode = "topology"`, "replicas = 4", "replicas = 1", "pools     = [gpuplan_node_pool.v100.capacity]", "").Replace(shared)
	cli.Write(t, whole)
	output, _ := cli.Run("plan")
	assert.NotContains(t, acctest.Unwrapped(output), summary, "it asks for whole GPUs")

	cli.Write(t, strings.Replace(shared, "pools     = [gpuplan_node_pool.v100.capacity]", "", 1))
	live, err := cloud.Kube.Typed.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	live.Labels[contract.NodeModeLabel] = "topology"
	live.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	cloud.Put(t, live)
	output, _ = cli.Run("plan")
	assert.NotContains(t, acctest.Unwrapped(output), summary, "no parts are given there")
}
