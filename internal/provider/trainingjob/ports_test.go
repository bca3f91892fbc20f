package trainingjob_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A plan warns of nodes on which no eRDMA port can be used, as their agents have seen.
func TestERDMAPortsThatAreDown(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	const kind = "ecs.gn8v-8x.16xlarge"
	config := strings.Replace(lone("pytorch", "{ replicas = 1, gpus = 1, rdma = true }", ""), "ecs.gn6v-c10g1.20xlarge", kind, 1)
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_node_pool.v100")
	node := cloud.NodeNames(t)[0]
	lockableKiB, redirectedBy, driver := int64(64), []string(nil), ""
	plan := func(ports ...string) string {
		t.Helper()
		machine, ok := catalog.Machine(kind)
		require.True(t, ok)
		status := contract.StatusOf(machine)
		status.NICs = nil
		for i, port := range ports {
			state, gid, _ := strings.Cut(port, " ")
			status.NICs = append(status.NICs, contract.NICInfo{Name: "erdma_" + string(rune('0'+i)), Port: state, GID: gid, RedirectedBy: redirectedBy})
		}
		status.LockableKiB, status.DriverVersion = lockableKiB, driver
		cloud.Publish(t, node, status)
		output, _ := cli.Run("plan")
		return acctest.Unwrapped(output)
	}
	const summary, locked = "eRDMA port is not active", "eRDMA needs locked memory"
	assert.NotContains(t, plan(), summary, "nobody knows")
	const missing = "eRDMA device is missing"
	assert.NotContains(t, plan(), missing, "the node is simulated")
	driver = "580.159.04"
	assert.Contains(t, plan(), "On node "+node+", which they may use, the node agent finds no RDMA device")
	assert.NotContains(t, plan("DOWN"), missing)
	assert.NotContains(t, plan("ACTIVE", "DOWN"), summary)
	assert.NotContains(t, plan("", "DOWN"), summary, "of one nobody knows")
	said := plan("INIT", "DOWN")
	assert.Contains(t, said, summary)
	assert.Contains(t, said, "On node "+node+", which they may use, the port of device erdma_0 is INIT, and not ACTIVE")

	assert.Contains(t, plan("ACTIVE none"), "the port of device erdma_0 has no GID of RoCE v2: its network interface has no address, or its driver offers iWARP alone")
	assert.NotContains(t, plan("ACTIVE 1"), summary)
	assert.NotContains(t, plan("ACTIVE 1"), locked, "the job's containers may lock memory")

	cli.Write(t, strings.Replace(config, `wait_for  = "none"`, "wait_for = \"none\"\n  rdma_defaults = false", 1))
	assert.Contains(t, plan("ACTIVE"), locked)
	assert.Contains(t, plan("ACTIVE"), "a container may lock 64 KiB of memory")
	redirectedBy = []string{"0000:02:00.0"}
	said = plan("DOWN")
	for _, each := range []string{summary, locked, "RDMA takes the way over the CPU"} {
		assert.Contains(t, said, each, "each of them has to be mended")
	}
	lockableKiB = 64 << 20
	assert.NotContains(t, plan("ACTIVE"), locked, "it is more than NCCL registers")
	lockableKiB = 0
	assert.NotContains(t, plan("ACTIVE"), locked)

	said = plan("ACTIVE")
	assert.Contains(t, said, "RDMA takes the way over the CPU")
	assert.Contains(t, said, "On node "+node+", which they may use, the PCI bridge 0000:02:00.0 redirects what device erdma_0 and GPUs below the same switch send each other to the CPU")
	redirectedBy = nil
	assert.NotContains(t, plan("ACTIVE"), "the way over the CPU")

	cli.Write(t, strings.Replace(config, ", rdma = true", "", 1))
	assert.NotContains(t, plan("DOWN"), summary, "it uses no eRDMA")
}
