package nodepool_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A pool of this configuration that its state has lost is changed under running jobs no sooner than one that
// it has, and the plan, which shows a new pool alone, says what becomes of it.
func TestPoolThatTheStateHasLost(t *testing.T) {
	const goesOn = "of this configuration exists, and Terraform makes a new one without regard to it"
	for name, test := range map[string]struct {
		before, after string // the pool has neither
		says          string
		refused       string // nothing: nobody is displaced
	}{
		"as it is": {says: "The apply goes on with that pool and its nodes."},
		"grown":    {after: "size = 2", says: "goes on with that pool, and changes in what it differs: size. To keep"},
		"in more": {after: "size = 2\n  labels = { team = \"a\" }\n  system_disk_size = 200",
			says: "goes on with that pool, and changes in what it differs: size, labels, system_disk_size. To keep"},
		"shrunk": {after: "size = 0", says: "goes on with that pool, and changes in what it differs: size. To keep",
			refused: "shrinks node pool v100 from 1 to 0 nodes (the cloud chooses which ones go)"},
		"switched": {after: `mode = "default"`, says: "goes on with that pool, and changes in what it differs: mode. To keep",
			refused: "switches node pool v100 from mode topology to default"},
		"tainted": {after: `taints = [{ key = "out", effect = "NoExecute" }]`, says: "goes on with that pool, and changes in what it differs: taints. To keep",
			refused: "adds taints to node pool v100 that evict jobs without a toleration"},
		"replaced": {after: `mode = "core_mem"`, says: "It differs in mode, so the apply replaces it with its nodes.",
			refused: "replaces node pool v100 from mode topology to core_mem"},
		"shrunk with consent":   {after: "size = 0\n  allow_disruption = true", says: "which allow_disruption permits. Jobs run there"},
		"replaced with consent": {before: "allow_disruption = true", after: `mode = "core_mem"`, says: "which allow_disruption permits. Jobs run there"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, poolWith(test.before))
			cli.Must(t, "apply", "-auto-approve")
			cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))
			after := poolWith(test.after)
			plan := func() {
				said, err := cli.Run("plan")
				assert.Equal(t, test.refused != "", err != nil, said)
				said = acctest.Unwrapped(said)
				assert.Contains(t, said, goesOn)
				assert.Contains(t, said, test.says)
				if test.refused != "" {
					assert.Contains(t, said, "The plan "+test.refused+", and there are running jobs that would lose their nodes: default/trainer")
				}
			}
			if acctest.Since(t, 11) { // OpenTofu shows the provider what a removed block gives up as what stays, and the plan says what each means
				cli.Write(t, strings.Replace(after, `"gpuplan_node_pool" "v100"`, `"gpuplan_node_pool" "again"`, 1)+acctest.Forgotten(pool))
				plan()
			}
			cli.Must(t, "state", "rm", pool)
			cli.Write(t, after)
			plan()
			if test.refused == "" {
				cli.Must(t, "apply", "-auto-approve")
				assert.Contains(t, cli.Must(t, "plan"), "No changes.")
			}
		})
	}
}

// Of a tainted pool the protocol says no more than of one whose address changes: the plan says what each means, and which
// jobs would lose their nodes.
func TestPoolThatIsTainted(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	cloud.Put(t, acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1))
	cli.Must(t, "taint", pool)
	said := acctest.Unwrapped(cli.Must(t, "plan"))
	assert.Contains(t, said, "If it is tainted there, the apply deletes it with its nodes and makes a new one, and fails while jobs that stay run on them; `terraform untaint` keeps it. Running there: default/trainer")
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "or set allow_disruption = true and apply that before. Where the pool is tainted, `terraform untaint` comes first.")
	cli.Must(t, "untaint", pool)
	cli.Unchanged(t)
}

// An apply that is interrupted while it makes a pool leaves it to the next one, as a kill does.
func TestPoolWhoseApplyIsInterrupted(t *testing.T) {
	cloud := acctest.StartCloud(t, func(o *acsfake.Options) { o.TaskDuration = 15 * time.Second })
	cli := acctest.StartCLI(t)
	cli.Write(t, poolWith(""))
	cmd := cli.Command("apply", "-auto-approve")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(cloud.ACS.Journal(), func(e acsfake.Exchange) bool { return strings.Contains(e.Target, "/tasks/") })
	}, time.Minute, 20*time.Millisecond, "the provider waits for the pool")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // whether the interruption is an error is Terraform's to say
	assert.Contains(t, acctest.Unwrapped(output.String()), "The next apply goes on from here.")
	assert.NotContains(t, cli.Must(t, "plan"), "must be replaced")
	said := acctest.Unwrapped(cli.Must(t, "plan", "-refresh=false"))
	assert.Contains(t, said, "0 to add, 1 to change, 0 to destroy")
	assert.Contains(t, said, "Node pool v100 will be repaired, and the apply waits until its nodes are ready: its creation did not complete.")
	cli.Must(t, "apply", "-auto-approve", "-refresh=false")
	cli.Unchanged(t)
	assert.Len(t, cloud.ACS.State().Pools, 1)
	assert.Equal(t, 2, cloud.ACS.State().NextPool, "no other pool was made")
}

// A destroy that meets a job of this configuration which is in no state, as after an apply that was cut off, says how it goes with the rest.
func TestPoolOfAJobInNoState(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	const advice = "Of this configuration are default/trainer, which this apply has not deleted so far."
	for owner, ours := range map[string]bool{"a": true, "b": false} {
		pod := acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1)
		pod.Labels[contract.ManagedByLabel], pod.Labels[contract.OwnerLabel] = contract.ManagedByValue, owner
		cloud.Put(t, pod)
		said, err := cli.Run("destroy", "-auto-approve")
		require.Error(t, err, said)
		assert.Equal(t, ours, strings.Contains(acctest.Unwrapped(said), advice), said)
	}
}

// A job of this configuration may leave in the same plan, which shows when Terraform visits it; the apply looks once more.
func TestPoolThatTheStateHasLostUnderAnOwnJob(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cli := acctest.StartCLI(t)
	owner := acctest.Owner("a")
	cli.Write(t, owner+poolWith(""))
	cli.Must(t, "apply", "-auto-approve")
	pod := acctest.GangPod("trainer", "trainer-0", "cn-hangzhou.10.0.1.1", 0, 1)
	pod.Labels[contract.ManagedByLabel], pod.Labels[contract.OwnerLabel] = contract.ManagedByValue, "a"
	cloud.Put(t, pod)
	cli.Must(t, "state", "rm", pool)
	cli.Write(t, owner+poolWith("size = 0"))
	cli.Must(t, "plan")
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "there are running jobs that would lose their nodes: default/trainer")
	assert.Len(t, cloud.NodeNames(t), 1)
	cli.Write(t, owner+poolWith("size = 0\n  allow_disruption = true"))
	said = acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
	assert.Contains(t, said, "which allow_disruption permits. Jobs run there, of which those that stay may lose their nodes: default/trainer")
	assert.Empty(t, cloud.NodeNames(t))
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
}

// A pool that one configuration has given up and another one imports is the other one's as soon as that is applied.
func TestImportedPoolGetsItsOwner(t *testing.T) {
	for name, test := range map[string]struct {
		more  string // what the other configuration changes as well
		nodes int
	}{
		"as it is":                         {"", 1},
		"in what the provider knows alone": {"allow_disruption = true", 1},
		"grown":                            {"size = 2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			first, second := acctest.StartCLI(t), acctest.StartCLI(t)
			first.Write(t, acctest.Owner("a")+poolWith(""))
			first.Apply(t, 1, 0, 0)
			first.Must(t, "state", "rm", pool)
			second.Write(t, acctest.Owner("b")+poolWith(test.more))
			second.Must(t, "import", pool, "v100")
			assert.Contains(t, acctest.Unwrapped(second.Must(t, "plan")), `Node pool v100 was imported, and carries the owner "a" of another configuration. The apply writes "b" on it`)
			assert.Contains(t, acctest.Unwrapped(second.Must(t, "plan", "-destroy")), `Node pool v100 was imported, and carries the owner "a" of another configuration (this one is "b"). The plan deletes it.`)
			second.Apply(t, 0, 1, 0)
			assert.Equal(t, "b", record(t, cloud).Tag(contract.OwnerTag))
			assert.Len(t, cloud.NodeNames(t), test.nodes)
			second.Must(t, "plan", "-detailed-exitcode", "-refresh=false")
			second.Unchanged(t)
			said, err := first.Run("plan")
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), `another Terraform configuration manages it, with the owner "b"`)
		})
	}
}

// A pool that another configuration has taken over is no longer that of the first one, whose state still has it: its plan says so, and
// its destroy leaves the pool alone, as an apply does that has not looked.
func TestPoolThatAnotherConfigurationHasTakenOver(t *testing.T) {
	cloud := acctest.StartCloud(t)
	first, second := acctest.StartCLI(t), acctest.StartCLI(t)
	first.Write(t, acctest.Owner("a")+poolWith(""))
	first.Apply(t, 1, 0, 0)
	second.Write(t, acctest.Owner("b")+poolWith(""))
	second.Must(t, "import", pool, "v100")
	first.Unchanged(t)
	second.Apply(t, 0, 1, 0)

	said, err := first.Run("plan")
	require.Error(t, err, said)
	said = acctest.Unwrapped(said)
	assert.Contains(t, said, `another configuration has taken it over, and its owner is "b" by now (it was "a"). Remove it from this configuration.`)
	assert.Contains(t, said, `another Terraform configuration manages it, with the owner "b"`)
	first.Write(t, acctest.Owner("a")+poolWith("size = 2"))
	said, err = first.Run("apply", "-auto-approve", "-refresh=false")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Another configuration has taken node pool v100 over since the state was read.")
	first.Must(t, "destroy", "-auto-approve", "-refresh=false")
	assert.Equal(t, "b", record(t, cloud).Tag(contract.OwnerTag))
	assert.Len(t, cloud.NodeNames(t), 1)
	second.Unchanged(t)
}
