package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// lockVariable names a file that a provider of these tests holds a lock on while it lives.
const lockVariable = "GPUPLAN_TEST_PROVIDER_LOCK"

const pool = "name = \"p\"\ninstance_type = \"ecs.gn6v-c10g1.20xlarge\"\nsize = 1\nvswitch_ids = [\"v\"]"

// TestMain makes the test's own program the provider when Terraform starts it.
func TestMain(m *testing.M) {
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") == "" {
		os.Exit(m.Run())
	}
	if path := os.Getenv(lockVariable); path != "" {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil || syscall.Flock(int(file.Fd()), syscall.LOCK_SH) != nil {
			os.Exit(1)
		}
		defer func() { _ = file.Close() }() // keeps it open, and locked, until the end
	}
	if folder := os.Getenv(usageVariable); folder != "" {
		recorded(folder)
		return
	}
	main()
}

func TestVersion(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	provider := exec.CommandContext(t.Context(), self, "-version")
	provider.Env = append(os.Environ(), "TF_PLUGIN_MAGIC_COOKIE=any")
	printed, err := provider.Output()
	require.NoError(t, err)
	assert.Equal(t, "terraform-provider-gpuplan dev\n", string(printed))
}

// newCLI runs the test's own program as the provider.
func newCLI(t testing.TB, config string) *acctest.CLI {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	terraform := acctest.NewCLI(t, self)
	terraform.Write(t, config)
	return terraform
}

// A provider whose command was killed ends by itself, also in the middle of a wait.
func TestProviderEndsWithAKilledTerraform(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.ACS.SetKnobs(acsfake.Knobs{ExtraTaskDuration: 24 * time.Hour})
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	t.Setenv(lockVariable, lock.Name())

	terraform := newCLI(t, "resource \"gpuplan_node_pool\" \"p\" {\n"+pool+"\n}\n")
	var output bytes.Buffer
	apply := terraform.Command("apply", "-auto-approve", "-lock=false")
	apply.Stdout, apply.Stderr = &output, &output
	require.NoError(t, apply.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = apply.Wait() // it is killed
	}()
	waits := func() bool {
		return slices.ContainsFunc(cloud.ACS.Journal(), func(e acsfake.Exchange) bool { return strings.Contains(e.Target, "/tasks/") })
	}
	require.Eventually(t, waits, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, apply.Process.Kill())
	<-ended

	requireEnd(t, lock)
}

// The same where nothing else would end it: nobody has connected, and its output is read.
func TestProviderEndsWithItsParent(t *testing.T) {
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command("sh", "-c", `"$0" & wait`, self)
	parent.Env = append(os.Environ(), lockVariable+"="+lock.Name(), "PLUGIN_PROTOCOL_VERSIONS=6",
		"TF_PLUGIN_MAGIC_COOKIE=d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2")
	output, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	handshake, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, handshake, "grpc", "the provider serves")
	require.NoError(t, parent.Process.Kill())
	requireEnd(t, lock)
}

// requireEnd waits until the provider that holds the lock has ended.
func requireEnd(t *testing.T, lock *os.File) {
	t.Helper()
	free := make(chan error, 1)
	go func() { free <- syscall.Flock(int(lock.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-free:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "the provider lives on")
	}
}

// What a plan refuses to create is no reason not to destroy what exists.
func TestDestroyIsNotBlockedByPlanChecks(t *testing.T) {
	cloud := acctest.StartCloud(t)
	existing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}}
	existing.SetNamespace(contract.SystemNamespace)
	existing.SetName(contract.SchedulerName)
	cloud.API.Put(existing)
	objects, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	for _, obj := range objects {
		if obj.GetKind() == "CustomResourceDefinition" {
			cloud.API.Put(obj)
		}
	}
	tree := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.QuotaTreeGroup + "/" + contract.QuotaTreeVersion, "kind": contract.QuotaTreeKind,
		"spec": map[string]any{"root": map[string]any{"name": "root"}},
	}}
	tree.SetNamespace(contract.QuotaTreeNamespace)
	tree.SetName("another")
	cloud.API.Put(tree)

	job := func(address, name string) string {
		return `resource "gpuplan_training_job" "` + address + `" {
  name      = "` + name + `"
  framework = "pytorch"
  image     = "x"
  roles     = { worker = { replicas = 4, gpus = 8 } }
}
`
	}
	blockers := map[string]struct{ config, says string }{
		"a job that does not fit": {job("big", "big"), "Job default/big does not fit"},
		"a program that is there": {"resource \"gpuplan_scheduler\" \"this\" {\n  image = \"x\"\n}\n", "is installed already"},
		"a second quota tree":     {"resource \"gpuplan_quota_tree\" \"main\" {\n  total = { cpu = \"1\" }\n  quotas = { a = {} }\n}\n", "Quota tree cannot be created"},
		"a job on a pool": {
			"resource \"gpuplan_node_pool\" \"p\" {\n  name = \"p\"\n  instance_type = \"ecs.gn6v-c8g1.8xlarge\"\n  size = 1\n  vswitch_ids = [\"v\"]\n}\n" +
				strings.Replace(job("big", "big"), "roles", "pools = [gpuplan_node_pool.p.capacity]\n  roles", 1), "Job default/big does not fit",
		},
		"a job after one that does not fit": {
			job("big", "big") + strings.Replace(job("next", "next"), "roles", "after = [gpuplan_training_job.big.placed]\n  roles", 1), "Job default/big does not fit",
		},
		"an order that is left open": {strings.Replace(job("next", "next"), "roles", "after = [\"default/big\"]\n  roles", 1), "Order is left open"},
		"a value that cannot be":     {strings.Replace(job("big", "big"), "gpus = 8", "gpus = 8, memory = \"64\"", 1), "memory"},
		"two resources of one job":   {job("a", "twice") + job("b", "twice"), "Two resources for one object"},
	}
	for name, blocker := range blockers {
		t.Run(name, func(t *testing.T) {
			const kept = "resource \"terraform_data\" \"kept\" {\n}\n"
			config := kept + blocker.config
			if strings.Contains(blocker.says, "Two") {
				config = "provider \"gpuplan\" {\n  placement_check = \"off\"\n}\n" + config
			}
			terraform := newCLI(t, kept)
			terraform.Must(t, "apply", "-auto-approve")
			terraform.Write(t, config)
			output, err := terraform.Run("plan")
			require.Error(t, err, output)
			assert.Contains(t, acctest.Unwrapped(output), blocker.says)
			assert.Contains(t, terraform.Must(t, "plan", "-destroy"), "1 to destroy")
			assert.Contains(t, terraform.Must(t, "destroy", "-auto-approve"), "1 destroyed")
		})
	}
}

// Two resources for one object fail at plan, whichever Terraform visits first.
func TestTwoResourcesForOneObject(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	job := func(address string) string {
		return "resource \"gpuplan_training_job\" \"" + address + "\" {\n  name = \"j\"\n  framework = \"pytorch\"\n  image = \"x\"\n  roles = { worker = { gpus = 1 } }\n}\n"
	}
	block := func(kind, address, body string) string {
		return "resource \"" + kind + "\" \"" + address + "\" {\n" + body + "\n}\n"
	}
	policy := func(address string) string {
		return block("gpuplan_propagation_policy", address, "name = \"p\"\nresource_selectors = [{ api_version = \"v1\", kind = \"ConfigMap\" }]")
	}
	for name, config := range map[string]string{
		"jobs":        job("a") + job("b"),
		"in order":    job("a") + strings.Replace(job("b"), "name = \"j\"", "name = \"j\"\n  depends_on = [gpuplan_training_job.a]", 1),
		"trees":       block("gpuplan_quota_tree", "a", "total = { cpu = \"1\" }\nquotas = { a = {} }") + block("gpuplan_quota_tree", "b", "total = { cpu = \"1\" }\nquotas = { b = {} }"),
		"policies":    policy("a") + policy("b"),
		"schedulers":  block("gpuplan_scheduler", "a", "image = \"x\"") + block("gpuplan_scheduler", "b", "image = \"x\""),
		"node agents": block("gpuplan_node_agent", "a", "image = \"x\"") + block("gpuplan_node_agent", "b", "image = \"x\""),
		"instances":   block("gpuplan_node_agent", "a", "count = 2\nimage = \"x\""),
		"pools":       block("gpuplan_node_pool", "a", pool) + block("gpuplan_node_pool", "b", pool),
	} {
		t.Run(name, func(t *testing.T) {
			output, err := newCLI(t, config).Run("plan")
			require.Error(t, err, output)
			if name == "pools" {
				assert.Contains(t, acctest.Unwrapped(output), "Two node pools with one name")
				return
			}
			assert.Contains(t, acctest.Unwrapped(output), "Two resources for one object")
		})
	}
}
