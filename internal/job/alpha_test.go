package job

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// What a version of MPIJob is said to be able to say is read back from it as it was written,
// and the planner is told the same by all versions; what it is said not to be able to say is
// lost.
func TestVersionsSayTheSame(t *testing.T) {
	for version, unmade := range map[string][]string{ // which the operator makes nothing of, written as they are
		contract.MPIAlphaVersion:    {"name", "gang", "restart_policy"},
		contract.MPIOperatorVersion: {"restart_policy", "ttl_seconds_after_finished", "host_network"},
		"":                          nil,
	} {
		t.Run(cmp.Or(version, contract.KubeflowVersion), func(t *testing.T) {
			said := 0
			for seed := range uint64(2000) {
				spec := randomMPI(rand.New(rand.NewPCG(seed, 7)))
				if len(spec.Check()) > 0 {
					continue
				}
				spec.Version = version
				obj, err := spec.Render()
				require.NoError(t, err)
				require.Equal(t, version, VersionOf(obj))
				back, err := Parse(obj)
				require.NoError(t, err)
				faults := spec.VersionFaults()
				if slices.ContainsFunc(faults, func(f Problem) bool { return !slices.Contains(unmade, f.Field) }) {
					assert.False(t, same(spec, back), "seed %d: %v is no fault", seed, faults)
				}
				if len(faults) > 0 {
					continue
				}
				said++
				require.True(t, same(spec, back), "seed %d", seed)
				assert.Equal(t, spec.Suspend || spec.Queue, Held(obj), "seed %d", seed)

				planned, err := back.PlannerGang(nil)
				require.NoError(t, err)
				spec.Version = ""
				want, err := spec.PlannerGang(nil)
				require.NoError(t, err)
				late := want.Roles[0]
				require.True(t, late.Late)
				planned.Roles, want.Roles = planned.Roles[1:], want.Roles[1:]
				for _, roles := range [][]string{planned.Roles[0].Members, want.Roles[0].Members} {
					assert.Equal(t, "worker-0", roles[0], "seed %d", seed)
				}
				assert.Equal(t, want, planned, "seed %d", seed)
			}
			assert.Greater(t, said, 200)
		})
	}
}

// randomMPI is an MPI job of which each property is often what some version cannot say.
func randomMPI(random *rand.Rand) Spec {
	rarely := func() bool { return random.IntN(10) == 0 }
	half := func() bool { return random.IntN(2) == 0 }
	s := vgg16()
	s.Mode, s.Arena, s.Queue = []Mode{Default, Topology, Shared}[random.IntN(3)], half(), half()
	s.Suspend = !s.Queue && half()
	launcher := Role{Replicas: 1, Image: "train:1", Command: []string{"mpirun"}, Args: []string{"train"}}
	worker := Role{Replicas: int32(1 + random.IntN(12)), Image: "train:1", GPUs: int64(1 + random.IntN(2)), RDMA: half()}
	if s.Mode == Shared {
		worker.MemoryGiB, worker.GPUs = 8, int64(2*random.IntN(2))
	}
	if half() {
		worker.CPU, worker.Memory = resource.MustParse("2"), resource.MustParse("8Gi")
	}
	if half() {
		launcher.Env = map[string]string{"A": "1"}
		worker.Env = map[string]string{"A": "1"}
	}
	for _, change := range []func(){
		func() { worker.Image = "train:2" },
		func() { launcher.Env = map[string]string{"B": "1"} },
		func() { worker.WorkingDir = "/src" },
		func() { worker.Command = []string{"sshd"} },
		func() { launcher.CPU = resource.MustParse("1") },
		func() { s.TTLSecondsAfterFinished = ptr.To[int32](60) },
		func() { s.RestartPolicy = []string{"Never", "OnFailure", "ExitCode", "Always"}[random.IntN(4)] },
		func() { s.Minimum = 1 },
		func() { s.Name = "a" + strings.Repeat("b", 48) },
		func() { s.BackoffLimit, s.CleanPodPolicy = ptr.To[int32](2), "Running" },
		func() { s.HostNetwork, s.Quota, s.NonPreemptible = true, "vision", true },
		func() { s.Volumes = map[string]Volume{"data": {Claim: "c", MountPath: "/data"}} },
		func() { s.MPIImplementation, s.SSHAuthMountPath = "MPICH", "/home/mpi/.ssh" },
		func() { s.Pools, s.NodeSelector = nil, map[string]string{"zone": "b"} },
	} {
		if rarely() {
			change()
		}
	}
	s.Roles = map[string]Role{"launcher": launcher, "worker": worker}
	return s.Complete()
}

func TestVersionFaults(t *testing.T) {
	const alpha, operator = contract.MPIAlphaVersion, contract.MPIOperatorVersion
	intel, ssh := func(s *Spec) { s.MPIImplementation = "Intel" }, func(s *Spec) { s.SSHAuthMountPath = "/keys" }
	for name, c := range map[string]struct {
		version string
		change  func(*Spec)
		want    Problem
	}{
		"images":                 {alpha, func(s *Spec) { set(s, "worker", func(r *Role) { r.Image = "b" }) }, Problem{"", "launcher", "launcher and workers have one template, so image, env and working_dir are the same"}},
		"launcher requests":      {alpha, func(s *Spec) { set(s, "launcher", func(r *Role) { r.CPU = resource.MustParse("1") }) }, Problem{"", "launcher", "the launcher is one pod without requests"}},
		"worker's command":       {alpha, func(s *Spec) { set(s, "worker", func(r *Role) { r.Command = []string{"sshd"} }) }, Problem{"command", "worker", "the workers wait for the launcher, and run nothing else"}},
		"minimum":                {alpha, func(s *Spec) { s.Minimum = 2 }, Problem{"gang", "", "the launcher starts when all workers run, so the minimum is 4"}},
		"time to live":           {alpha, func(s *Spec) { s.TTLSecondsAfterFinished = ptr.To[int32](1) }, Problem{"ttl_seconds_after_finished", "", "nothing cleans up after it"}},
		"restarts":               {alpha, func(s *Spec) { s.RestartPolicy = "ExitCode" }, Problem{"restart_policy", "", `"ExitCode" is not possible: use "Never" or "OnFailure"`}},
		"name":                   {alpha, func(s *Spec) { s.Name = strings.Repeat("a", 46) }, Problem{"name", "", "the name has 46 characters, and 45 are possible"}},
		"implementation":         {alpha, intel, Problem{"mpi_implementation", "", "its operator knows OpenMPI alone"}},
		"implementation, v1":     {"", intel, Problem{"mpi_implementation", "", "its operator knows OpenMPI alone"}},
		"keys, v1":               {"", ssh, Problem{"ssh_auth_mount_path", "", "its launcher reaches the workers by kubectl, without keys"}},
		"restarts, MPI operator": {operator, func(s *Spec) { s.RestartPolicy = "Always" }, Problem{"restart_policy", "", `"Always" is not possible: use "Never" or "OnFailure"`}},
		"to live, MPI operator":  {operator, func(s *Spec) { s.TTLSecondsAfterFinished = ptr.To[int32](1) }, Problem{"ttl_seconds_after_finished", "", "its operator deletes the launcher after it, and leaves the job and the workers"}},
		"on the host's network":  {operator, func(s *Spec) { s.HostNetwork = true }, Problem{"host_network", "", "its workers run sshd on port 22, which is the node's own on the host's network: set host_network = false, or give the workers a command that runs it on another port"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := vgg16()
			spec.Version = c.version
			assert.Empty(t, spec.VersionFaults())
			c.change(&spec)
			assert.Equal(t, []Problem{c.want}, spec.VersionFaults())
		})
	}
	for name, change := range map[string]func(*Spec){"implementation": intel, "keys": ssh, "an elastic gang": func(s *Spec) { s.Minimum = 2 },
		"sshd elsewhere": func(s *Spec) {
			s.HostNetwork = true
			set(s, "worker", func(r *Role) { r.Command = []string{"sshd", "-De", "-p", "2222"} })
		}} {
		t.Run(name+", MPI operator", func(t *testing.T) {
			spec := byOperator()
			change(&spec)
			assert.Empty(t, spec.VersionFaults())
		})
	}
}

func TestAlphaStatus(t *testing.T) {
	for name, c := range map[string]struct {
		status     map[string]any
		held       bool
		phase      Phase
		allRunning bool
	}{
		"new":             {nil, false, Pending, false},
		"some workers":    {map[string]any{"workerReplicas": int64(3)}, false, Created, false},
		"the workers":     {map[string]any{"workerReplicas": int64(4)}, false, Created, false},
		"running":         {map[string]any{"workerReplicas": int64(4), "launcherStatus": "Active"}, false, Running, true},
		"a worker is off": {map[string]any{"workerReplicas": int64(3), "launcherStatus": "Active"}, false, Running, false},
		"suspended":       {nil, true, Suspended, false},
		"succeeded":       {map[string]any{"launcherStatus": "Succeeded"}, false, Succeeded, false},
		"failed":          {map[string]any{"launcherStatus": "Failed", "workerReplicas": int64(4)}, false, Failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := alpha().Render()
			require.NoError(t, err)
			require.NoError(t, Hold(obj, c.held))
			assert.Equal(t, fmt.Sprint(c.held), obj.GetAnnotations()[contract.SuspendAnnotation])
			if c.status != nil {
				obj.Object["status"] = c.status
			}
			status, err := StatusOf(obj)
			require.NoError(t, err)
			assert.Equal(t, c.phase, status.Phase)
			assert.Equal(t, c.allRunning, status.Runs(0))
			assert.Equal(t, int32(5), status.Wanted)
		})
	}
}
