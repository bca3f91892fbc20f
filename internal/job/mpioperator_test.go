package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestLauncherOfTheMPIOperatorWaits(t *testing.T) {
	elastic, alone := byOperator(), byOperator()
	elastic.Minimum = 2
	alone.Gang, alone.Mode = false, Default
	for name, c := range map[string]struct {
		spec Spec
		want string
	}{
		"for all members":                    {byOperator(), launcherAfterWorkers},
		"for the workers of no gang":         {alone, launcherAfterWorkers},
		"not where a part of them is enough": {elastic, launcherAtStartup},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := c.spec.Render()
			require.NoError(t, err)
			policy, _, err := unstructured.NestedString(obj.Object, "spec", "launcherCreationPolicy")
			require.NoError(t, err)
			assert.Equal(t, c.want, policy)
		})
	}
}

func TestMPIOperatorsSettingsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*Spec)
		field, says string
	}{
		"implementation":         {func(s *Spec) { s.MPIImplementation = "LAM" }, "mpi_implementation", "use one of OpenMPI, Intel, MPICH"},
		"relative path":          {func(s *Spec) { s.SSHAuthMountPath = ".ssh" }, "ssh_auth_mount_path", "start it with a slash"},
		"another framework":      {func(s *Spec) { *s = plain(); s.MPIImplementation = "OpenMPI" }, "mpi_implementation", `only jobs of framework "mpi" have it`},
		"keys of another's pods": {func(s *Spec) { *s = plain(); s.SSHAuthMountPath = "/keys" }, "ssh_auth_mount_path", `only jobs of framework "mpi" have it`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := byOperator()
			assert.Empty(t, spec.Check())
			c.change(&spec)
			problems := spec.Check()
			require.Len(t, problems, 1)
			assert.Equal(t, c.field, problems[0].Field)
			assert.Contains(t, problems[0].Text, c.says)
		})
	}
}

// An MPIJob keeps what it says of its launcher, and those of its roles that someone else has written.
func TestKeepOfAnMPIJobOfTheMPIOperator(t *testing.T) {
	live, err := byOperator().Render()
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(live.Object, launcherAtStartup, "spec", "launcherCreationPolicy"))
	worker := []string{"spec", "mpiReplicaSpecs", "Worker"}
	unstructured.RemoveNestedField(live.Object, append(worker, "template", "metadata")...)

	spec := byOperator()
	spec.CleanPodPolicy = "All"
	rendered, err := spec.Render()
	require.NoError(t, err)
	require.NoError(t, Keep(rendered, live))
	_, found, _ := unstructured.NestedMap(rendered.Object, worker...)
	assert.False(t, found)
	_, found, _ = unstructured.NestedMap(rendered.Object, "spec", "mpiReplicaSpecs", "Launcher")
	assert.True(t, found)
	policy, _, _ := unstructured.NestedString(rendered.Object, "spec", "launcherCreationPolicy")
	assert.Equal(t, launcherAtStartup, policy)
	clean, _, _ := unstructured.NestedString(rendered.Object, "spec", "runPolicy", "cleanPodPolicy")
	assert.Equal(t, "All", clean)
}
