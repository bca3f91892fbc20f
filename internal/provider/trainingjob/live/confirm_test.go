package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// occupy has a pod of someone else take GPUs, and waits until it has them.
func occupy(t *testing.T, client *kube.Client, name string, gpus int64) {
	t.Helper()
	amounts := corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	_, err := client.Typed.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{
			Name: "main", Image: "train:1", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pod, err := client.Typed.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName != ""
	}, time.Minute, 50*time.Millisecond)
}

// asPlanned reads from the state whether a job runs where it was planned, "null" for no answer.
func asPlanned(t *testing.T, cli *acctest.CLI, job string) string {
	t.Helper()
	var state struct {
		Values struct {
			RootModule struct {
				Resources []struct {
					Address string
					Values  map[string]any
				}
			} `json:"root_module"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(cli.Must(t, "show", "-json")), &state))
	for _, r := range state.Values.RootModule.Resources {
		if r.Address == address(job) {
			if v := r.Values["placement_as_planned"]; v != nil {
				return fmt.Sprint(v)
			}
			return "null"
		}
	}
	return "no such job"
}

// A plan that the cluster has overtaken is told before the job exists, and nothing is
// created that cannot run.
func TestPlanThatTheClusterOvertook(t *testing.T) {
	client := acctest.OnPlatform(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 2}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() {
		cli.Write(t, setting{size: 2}.config()) // the provider is no child of terraform here, and cannot tell a destroy
		cli.Must(t, "destroy", "-auto-approve")
	})

	a := setting{size: 2, gangs: gangs{"a": {8, ""}}}
	cli.Write(t, a.config())
	cli.Must(t, "plan", "-out=saved")
	occupy(t, client, "first", 1) // of the node on which the job was planned
	t.Cleanup(func() {
		for _, name := range []string{"first", "second"} {
			_ = client.Typed.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}
	})
	said := acctest.Unwrapped(cli.Must(t, "apply", "saved"))
	assert.Contains(t, said, "Job will not start where it was planned")
	assert.Contains(t, said, "cannot be had. It is placed on other nodes or GPUs")
	assert.Equal(t, "false", asPlanned(t, cli, "a"))

	b := setting{size: 2, gangs: gangs{"a": {8, ""}, "b": {6, ""}}}
	cli.Write(t, b.config())
	cli.Must(t, "plan", "-out=saved")
	occupy(t, client, "second", 4)
	output, err := cli.Run("apply", "saved")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(output), "It does not fit any more. 3 of 6 members fit")
	assert.Equal(t, 0, runningPods(t, client, "b"))
	assert.Equal(t, "no such job", asPlanned(t, cli, "b"))
}

// What a job's pods name may go between the plan and the apply, which says so before it writes the job.
func TestPriorityClassThatIsGoneByTheApply(t *testing.T) {
	client := acctest.OnPlatform(t)
	localtest.CreatePriorityClass(t, client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "fleeting"}, Value: 10})
	cli := acctest.StartCLI(t)
	cli.Write(t, setting{size: 1}.config())
	cli.Must(t, "apply", "-auto-approve")
	t.Cleanup(func() { cli.Must(t, "destroy", "-auto-approve") })
	const gone = "Job default/a needs the PriorityClass fleeting, which the cluster does not have now."
	cli.Write(t, setting{size: 1, gangs: gangs{"a": {2, "priority_class = \"fleeting\"\nwait_for = \"none\"\n"}}}.config())
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan", "-out=saved")), gone)
	require.NoError(t, client.Typed.SchedulingV1().PriorityClasses().Delete(t.Context(), "fleeting", metav1.DeleteOptions{}))
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "apply", "saved")), gone)
}

// What an apply takes from running jobs of its own configuration, because of what was changed after
// the plan, it says before it does, however strict the check is. Others lose nothing without consent.
func TestEvictionsThatThePlanCouldNotKnow(t *testing.T) {
	client := acctest.OnPlatform(t)
	for name, priority := range map[string]int32{"urgent": 1000, "meek": -10} {
		localtest.CreatePriorityClass(t, client.Typed, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: priority})
	}
	cli := acctest.StartCLI(t)
	const low, high, anywhere = "priority_class = \"meek\"\n", "priority_class = \"urgent\"\nwait_for = \"none\"\n", "pools = null\n"
	t.Cleanup(func() {
		cli.Write(t, setting{size: 2}.config())
		cli.Must(t, "destroy", "-auto-approve")
	})
	for _, test := range []struct{ name, high string }{
		{"planned", high},
		{"placed by the apply", high + anywhere},
		{"not checked", high + "placement_check = \"off\"\n"},
		{"not checked, placed by the apply", high + anywhere + "placement_check = \"off\"\n"},
		{"agreed to, placed by the apply", high + anywhere + "allow_preemption = true\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cli.Write(t, setting{size: 2, gangs: gangs{"low": {8, low}}}.config())
			cli.Must(t, "apply", "-auto-approve")
			require.Eventually(t, func() bool { return runningPods(t, client, "low") == 8 }, time.Minute, 50*time.Millisecond,
				"the job that the round before evicted is back")
			cli.Write(t, setting{size: 2, gangs: gangs{"low": {8, low}, "high": {8, test.high}}}.config())
			assert.NotContains(t, cli.Must(t, "plan", "-out=saved"), "Warning")
			occupy(t, client, "first", 1)
			defer func() {
				_ = client.Typed.CoreV1().Pods("default").Delete(context.Background(), "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			}()
			said := acctest.Unwrapped(cli.Must(t, "apply", "saved"))
			assert.Contains(t, said, "Running jobs would be evicted")
			assert.Regexp(t, "The scheduler evicts for it(, as allow_preemption agrees)?: default/low.", said)
		})
	}
	t.Run("agreed to, and seen", func(t *testing.T) {
		cli.Write(t, setting{size: 2, gangs: gangs{"low": {8, low}}}.config())
		cli.Must(t, "apply", "-auto-approve")
		require.Eventually(t, func() bool { return runningPods(t, client, "low") == 8 }, time.Minute, 50*time.Millisecond,
			"the job that the round before evicted is back")
		cli.Write(t, setting{size: 2, gangs: gangs{"low": {8, low}, "high": {16, high + "allow_preemption = true\n"}}}.config())
		assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan", "-out=saved")), "the scheduler would evict for it: default/low")
		said := acctest.Unwrapped(cli.Must(t, "apply", "saved"))
		assert.Contains(t, said, "The scheduler evicts for it, as allow_preemption agrees: default/low.")
		assert.NotContains(t, said, "did not see")
	})
	t.Run("another's", func(t *testing.T) {
		cli.Write(t, setting{size: 1}.config())
		cli.Must(t, "apply", "-auto-approve")
		for check, fails := range map[string]bool{"error": true, "warn": false, "off": false} {
			cli.Write(t, setting{size: 1, gangs: gangs{"high": {8, high + anywhere + fmt.Sprintf("placement_check = %q\n", check)}}}.config())
			assert.NotContains(t, cli.Must(t, "plan", "-out=saved"), "Warning")
			occupy(t, client, "second", 1)
			output, err := cli.Run("apply", "saved")
			_ = client.Typed.CoreV1().Pods("default").Delete(t.Context(), "second", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			assert.Equal(t, fails, err != nil, check)
			assert.Contains(t, acctest.Unwrapped(output), "for it: default/second", check)
			cli.Write(t, setting{size: 1}.config())
			cli.Must(t, "apply", "-auto-approve")
			_ = client.Typed.CoreV1().Pods("default").Delete(t.Context(), "second", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		}
	})
	t.Run("in no state", func(t *testing.T) {
		cli.Write(t, setting{size: 1, gangs: gangs{"low": {8, low}}}.config())
		cli.Must(t, "apply", "-auto-approve")
		require.Eventually(t, func() bool { return runningPods(t, client, "low") == 8 }, time.Minute, 50*time.Millisecond)
		cli.Must(t, "state", "rm", "gpuplan_training_job.low")
		cli.Write(t, setting{size: 1, gangs: gangs{"high": {8, high}}}.config())
		said := acctest.Unwrapped(cli.Must(t, "plan"))
		assert.Contains(t, said, "Job fits only if others leave")
		assert.Contains(t, said, "As long as it runs, the scheduler evicts for the job: default/low (9 pods")
		cli.Write(t, setting{size: 1, gangs: gangs{"low": {8, low}}}.config())
		cli.Must(t, "import", "gpuplan_training_job.low", "default/low")
		cli.Must(t, "apply", "-auto-approve") // with what the job depends on in the state
	})
}
