package kills

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Jobs that hold all the room they are planned on are taken over by the next apply when the
// state has lost them: their apply was killed while they ran already, or they were removed from it.
func TestKillsOfJobsThatFillTheirPool(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	s := &suite{directory: newDirectory(t, platform), cluster: clusterOf(t, platform)}
	text, err := os.ReadFile("testdata/full.tf")
	require.NoError(t, err)
	s.Write(t, string(text))
	apply := func(at point, variables ...string) (string, int, string) {
		return s.run(t, at, append([]string{"apply", "-auto-approve"}, variables...)...)
	}
	converges := func(variables ...string) {
		t.Helper()
		output, code, _ := apply(point{}, variables...)
		require.Zero(t, code, output)
		output, code, _ = s.run(t, point{}, append([]string{"plan", "-detailed-exitcode"}, variables...)...)
		require.Zero(t, code, output)
	}

	output, code, _ := s.run(t, point{}, "plan")
	require.Zero(t, code, output)
	assert.Contains(t, acctest.Unwrapped(output), "4 of 7 members of job default/elastic have room now; the others start when there is more.")
	for _, name := range []string{"rigid", "elastic"} {
		_, code, died := apply(point{once: func() bool { return s.bound(t, name) == 4 }})
		require.NotZero(t, code)
		require.NotEmpty(t, died)
		s.putStateBack(t, false)
		listed, _, _ := s.list(t)
		require.NotContains(t, listed, "gpuplan_training_job."+name)
	}
	before := s.identities(t)
	require.Len(t, before, 2)
	converges()
	assert.Equal(t, before, s.identities(t), "after the kills")

	forget := func() {
		t.Helper()
		output, code, _ := s.run(t, point{}, "state", "rm", "gpuplan_training_job.rigid", "gpuplan_training_job.elastic")
		require.Zero(t, code, output)
	}
	for _, variables := range [][]string{{"-var=named=true"}, {"-var=named=false", "-var=image=train:2"}} {
		t.Run(fmt.Sprint(variables), func(t *testing.T) {
			converges(variables...)
			before := s.identities(t)
			forget()
			converges(variables...)
			assert.Equal(t, before, s.identities(t))
			assert.Equal(t, 4, s.bound(t, "rigid"))
			assert.Equal(t, 4, s.bound(t, "elastic"))
		})
	}

	before = s.identities(t)
	forget()
	converges("-var=named=false", "-var=image=train:3")
	after := s.identities(t)
	assert.Equal(t, before["rigid"], after["rigid"])
	assert.NotEqual(t, before["elastic"], after["elastic"], "it was left with another image")

	forget()
	_, err = s.client.Dynamic.Resource(job.MPI.GVK().GroupVersion().WithResource("mpijobs")).Namespace("default").Patch(t.Context(), "rigid",
		types.MergePatchType, []byte(`{"metadata":{"labels":{"`+contract.OwnerLabel+`":"another"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	output, code, _ = apply(point{}, "-var=named=false", "-var=image=train:3")
	require.NotZero(t, code)
	assert.Contains(t, acctest.Unwrapped(output), "MPIJob default/rigid exists already")
	assert.Equal(t, after, s.identities(t))
}

// identities are the UIDs of the jobs, by name.
func (s *suite) identities(t *testing.T) map[string]types.UID {
	t.Helper()
	all := map[string]types.UID{}
	for _, j := range acctest.Jobs(t, s.client, "") {
		all[j.GetName()] = j.GetUID()
	}
	return all
}

// bound is how many pods with GPUs of a job have a node.
func (s *suite) bound(t *testing.T, job string) (count int) {
	t.Helper()
	pods, err := s.client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + job})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" && len(pod.Spec.Containers[0].Resources.Limits) > 0 {
			count++
		}
	}
	return count
}
