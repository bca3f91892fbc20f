package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A variable that says what a job has anyway is no difference between two jobs; any other is.
func TestRDMADefaults(t *testing.T) {
	env := func(env map[string]string) func(*Spec) {
		return func(s *Spec) { set(s, "worker", func(r *Role) { r.Env = env }) }
	}
	for name, test := range map[string]struct {
		change func(*Spec)
		same   bool
		algo   string // what NCCL is told in the pods
	}{
		"as it is":          {func(*Spec) {}, true, "Ring"},
		"said once more":    {env(map[string]string{"NCCL_ALGO": "Ring"}), true, "Ring"},
		"another algorithm": {env(map[string]string{"NCCL_ALGO": "Tree"}), false, "Tree"},
		"none of them":      {env(map[string]string{"NCCL_ALGO": ""}), false, ""},
		"not wanted":        {func(s *Spec) { s.RDMADefaults = false }, false, "-"},
		"no RDMA":           {func(s *Spec) { set(s, "master", func(r *Role) { r.RDMA = false }) }, false, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := shared()
			test.change(&spec)
			assert.Equal(t, test.same, same(shared(), spec))
			obj, err := spec.Render()
			require.NoError(t, err)
			parsed, err := Parse(obj)
			require.NoError(t, err)
			assert.True(t, same(spec, parsed))

			pods, err := Pods(obj)
			require.NoError(t, err)
			for _, pod := range pods {
				container, algo := pod.Spec.Containers[0], "-"
				for _, variable := range container.Env {
					if variable.Name == "NCCL_ALGO" {
						algo = variable.Value
					}
				}
				locks := container.SecurityContext != nil
				if RoleOf(pod) == "master" {
					assert.Equal(t, test.algo != "-", locks)
					continue
				}
				assert.Equal(t, test.algo, algo)
				assert.False(t, locks, "only who asks for a device may lock memory")
			}
		})
	}
}

// What one role has lost is a difference, whatever the others still have.
func TestRDMADefaultsMissingInOneRole(t *testing.T) {
	spec := func(master, worker bool) Spec {
		s := shared()
		set(&s, "master", func(r *Role) { r.RDMA = master })
		set(&s, "worker", func(r *Role) { r.RDMA = worker })
		return s
	}
	container := func(t *testing.T, obj *unstructured.Unstructured, role string) map[string]any {
		containers, found, err := unstructured.NestedSlice(obj.Object, "spec", "pytorchReplicaSpecs", role, "template", "spec", "containers")
		require.NoError(t, err)
		require.True(t, found)
		c, ok := containers[0].(map[string]any)
		require.True(t, ok)
		return c
	}
	for name, test := range map[string]struct {
		spec         Spec
		role, loses  string
		stillDefault bool
	}{
		"nothing is lost":            {spec(true, true), "Worker", "", true},
		"the right to lock memory":   {spec(true, true), "Worker", "securityContext", false},
		"that of the first role":     {spec(true, true), "Master", "securityContext", false},
		"variables":                  {spec(true, true), "Worker", "env", false},
		"variables of one without":   {spec(true, false), "Worker", "env", false},
		"nobody asks for any device": {spec(false, false), "Worker", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := test.spec.Render()
			require.NoError(t, err)
			c := container(t, obj, test.role)
			delete(c, test.loses)
			require.NoError(t, unstructured.SetNestedSlice(obj.Object, []any{c}, "spec", "pytorchReplicaSpecs", test.role, "template", "spec", "containers"))
			parsed, err := Parse(obj)
			require.NoError(t, err)
			assert.Equal(t, test.stillDefault, parsed.RDMADefaults)
			assert.Equal(t, test.loses == "", same(test.spec, parsed))
		})
	}
}

// What has NCCL tell what it uses is a variable, or stands in a command, as in those of ACK's documents on MPI jobs.
func TestTellsNCCL(t *testing.T) {
	for name, test := range map[string]struct {
		role Role
		want bool
	}{
		"nothing":            {Role{}, false},
		"a variable":         {Role{Env: map[string]string{"NCCL_DEBUG": "info"}}, true},
		"too little":         {Role{Env: map[string]string{"NCCL_DEBUG": "WARN"}}, false},
		"mpirun in a shell":  {Role{Command: []string{"sh", "-c", "mpirun -np 4 -x NCCL_DEBUG=INFO -x PATH python train.py"}}, true},
		"mpirun":             {Role{Command: []string{"mpirun"}, Args: []string{"-x", "NCCL_DEBUG=INFO", "python"}}, true},
		"a shell's variable": {Role{Command: []string{"sh", "-c", `export NCCL_DEBUG="TRACE"; python train.py`}}, true},
		"another variable":   {Role{Command: []string{"mpirun", "-x", "NCCL_DEBUG_SUBSYS=INFO", "-x", "NCCL_DEBUG=WARN"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, Spec{Framework: MPI, Roles: map[string]Role{"launcher": test.role, "worker": {}}}.TellsNCCL("launcher"))
		})
	}
}
