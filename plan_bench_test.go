package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// Variables for the providers of [BenchmarkPlan].
const (
	// usageVariable names the folder into which a provider writes what it has used.
	usageVariable = "GPUPLAN_TEST_PROVIDER_USAGE"
	// profileVariable names the folder into which a provider writes its CPU profile.
	profileVariable = "GPUPLAN_TEST_PROVIDER_PROFILE"
)

// usage is what a process has used.
type usage struct {
	CPU time.Duration
	// PeakKiB is the most memory that it had at a time.
	PeakKiB int64
}

// recorded runs the provider, and writes down what it has used.
func recorded(folder string) {
	name := fmt.Sprintf("%d-%d", time.Now().UnixNano(), os.Getpid())
	if profiles := os.Getenv(profileVariable); profiles != "" {
		file, err := os.Create(filepath.Join(profiles, name+".pprof"))
		if err != nil || pprof.StartCPUProfile(file) != nil {
			os.Exit(1)
		}
	}
	main()
	pprof.StopCPUProfile()
	text, err := json.Marshal(used())
	if err != nil || os.WriteFile(filepath.Join(folder, name), text, 0o600) != nil {
		os.Exit(1)
	}
}

// used reads what this process has used. The peak of getrusage is no good: a process that
// was started by a larger one begins with the larger one's.
func used() (u usage) {
	var of syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &of); err != nil {
		return u
	}
	u.CPU = time.Duration(of.Utime.Nano() + of.Stime.Nano())
	status, _ := os.ReadFile("/proc/self/status") // without it the peak is 0
	if _, after, found := strings.Cut(string(status), "VmHWM:"); found {
		_, _ = fmt.Sscan(after, &u.PeakKiB)
	}
	return u
}

// BenchmarkPlan is a plan through the real terraform: CPU time and peak memory of the
// provider, all its processes together, and of terraform itself, and the calls for the
// kind that is listed most, and for the one of which most objects are asked for by name; and how many lines of the plan are about
// the job that has most. "first" plans everything on an empty cluster; "running" plans the jobs on pools that exist, with ten nodes
// each, and charges them to 300 leaves of the quota tree; "wide" plans jobs that each list every pool.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ pools, jobs int }{{20, 50}, {200, 500}} {
		name := fmt.Sprintf("pools=%d/jobs=%d", size.pools, size.jobs)
		b.Run("first/"+name, func(b *testing.B) {
			cloud := acctest.StartCloud(b)
			serveJobs(b, cloud)
			measure(b, cloud, newCLI(b, fleet{pools: size.pools, nodes: 3, jobs: size.jobs}.config()), size.jobs)
		})
		b.Run("running/"+name, func(b *testing.B) {
			cloud := acctest.StartCloud(b)
			serveJobs(b, cloud)
			f := fleet{pools: size.pools, nodes: 10, leaves: 300}
			terraform := newCLI(b, f.config())
			terraform.Must(b, "apply", "-auto-approve", "-parallelism=50")
			f.jobs = size.jobs
			terraform.Write(b, f.config())
			measure(b, cloud, terraform, size.jobs)
		})
	}
	b.Run("wide/pools=50/jobs=20", func(b *testing.B) {
		cloud := acctest.StartCloud(b)
		serveJobs(b, cloud)
		measure(b, cloud, newCLI(b, fleet{pools: 50, nodes: 3, jobs: 20, wide: true}.config()), 20)
	})
}

// measure plans as often as the benchmark wants.
func measure(b *testing.B, cloud *acctest.Cloud, terraform *acctest.CLI, jobs int) {
	b.Helper()
	var provider, all time.Duration
	var peak int64
	lists, gets, lines := 0, 0, 0
	b.ResetTimer()
	for range b.N {
		folder := b.TempDir()
		listed, asked := cloud.API.Lists(), cloud.API.Gets()
		plan := terraform.Command("plan", "-out=saved")
		plan.Env = append(plan.Env, usageVariable+"="+folder)
		output, err := plan.CombinedOutput()
		require.NoError(b, err, string(output))
		for j := range jobs {
			lines = max(lines, acctest.Lines(string(output), fmt.Sprintf("gpuplan_training_job.j%d", j)))
		}
		all += plan.ProcessState.UserTime() + plan.ProcessState.SystemTime() // its children's as well
		files, err := os.ReadDir(folder)
		require.NoError(b, err)
		require.NotEmpty(b, files, "no provider says what it has used")
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(folder, file.Name()))
			require.NoError(b, err)
			var u usage
			require.NoError(b, json.Unmarshal(text, &u))
			provider, peak = provider+u.CPU, max(peak, u.PeakKiB)
		}
		for kind, count := range cloud.API.Lists() {
			lists = max(lists, count-listed[kind])
		}
		for kind, count := range cloud.API.Gets() {
			gets = max(gets, count-asked[kind])
		}
	}
	plans := float64(b.N)
	b.ReportMetric(provider.Seconds()/plans, "provider-cpu-s/op")
	b.ReportMetric((all-provider).Seconds()/plans, "terraform-cpu-s/op")
	b.ReportMetric(float64(peak)/1024, "provider-MiB")
	b.ReportMetric(float64(lists), "lists/kind")
	b.ReportMetric(float64(gets), "gets/kind")
	b.ReportMetric(float64(lines), "lines/job")
}

// fleet is a configuration of pools, a quota tree, and jobs of eight members that follow
// each other on their pool, or list them all.
type fleet struct {
	pools, nodes, jobs, leaves int
	wide                       bool
}

func (f fleet) config() string {
	var config strings.Builder
	for p := range f.pools {
		fmt.Fprintf(&config, `
resource "gpuplan_node_pool" "p%[1]d" {
  name          = "p%[1]d"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = %[2]d
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}
`, p, f.nodes)
	}
	if f.leaves > 0 {
		fmt.Fprintf(&config, `
resource "gpuplan_quota_tree" "main" {
  total  = { "aliyun.com/gpu" = 100000 }
  quotas = { for i in range(%d) : "team-${i}" => { max = { "aliyun.com/gpu" = 80 } } }
}
`, f.leaves)
	}
	var every []string
	for p := range f.pools {
		every = append(every, fmt.Sprintf("gpuplan_node_pool.p%d.capacity", p))
	}
	for i := range f.jobs {
		more, pools := "", every[i%f.pools]
		if f.wide {
			pools = strings.Join(every, ", ")
		}
		if i >= f.pools {
			more = fmt.Sprintf("after     = [gpuplan_training_job.j%d.placed]\n", i-f.pools)
		}
		if f.leaves > 0 {
			more += fmt.Sprintf("  quota     = gpuplan_quota_tree.main.leaves[\"team-%d\"]\n", i%f.leaves)
		}
		fmt.Fprintf(&config, `
resource "gpuplan_training_job" "j%[1]d" {
  name      = "j%[1]d"
  framework = "mpi"
  image     = "train:1"
  command   = ["sh", "-c", "train"]
  pools     = [%[2]s]
  roles     = { worker = { replicas = 8, gpus = 1 } }
  wait_for  = "none"
  %[3]s
}
`, i, pools, more)
	}
	return config.String()
}

// serveJobs makes the API server serve jobs and the quota tree.
func serveJobs(b testing.TB, cloud *acctest.Cloud) {
	b.Helper()
	objects, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(b, err)
	for _, obj := range objects {
		if obj.GetKind() == "CustomResourceDefinition" {
			cloud.API.Put(obj)
		}
	}
	for framework, plural := range map[job.Framework]string{job.MPI: contract.MPIJobResource, job.PyTorch: contract.PyTorchJobResource} {
		kind := framework.GVK()
		cloud.API.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + kind.Group},
			"spec": map[string]any{
				"group": kind.Group, "scope": "Namespaced", "names": map[string]any{"kind": kind.Kind, "plural": plural},
				"versions": []any{map[string]any{"name": kind.Version, "served": true}},
			},
		}})
	}
}
