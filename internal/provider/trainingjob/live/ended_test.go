package live_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A Job that is resumed needs room for those of its pods alone that have not succeeded, also when the others have gone:
// the plan places these, and the scheduler starts them there.
func TestJobIsResumedOfWhichHalfHasSucceeded(t *testing.T) {
	client := acctest.OnPlatform(t)
	jobs, pods := client.Typed.BatchV1().Jobs("default"), client.Typed.CoreV1().Pods("default")
	cli := acctest.StartCLI(t)
	write := func(suspend bool, others gangs) {
		cli.Write(t, setting{size: 2, gangs: others, more: fmt.Sprintf(`
resource "gpuplan_training_job" "part" {
  name       = "part"
  framework  = "batch"
  image      = "train:1"
  command    = ["train"]
  suspend    = %t
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { worker = { replicas = 4, gpus = 4 } }
  host_ipc     = true
  host_network = true
  host_pid     = true
  timeouts   = { create = "10m", update = "10m" }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}`, suspend)}.config())
	}
	t.Cleanup(func() {
		cli.Write(t, setting{size: 2}.config())
		cli.Must(t, "destroy", "-auto-approve")
	})
	write(false, nil)
	cli.Must(t, "apply", "-auto-approve")
	of := func() []corev1.Pod {
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=part"})
		require.NoError(t, err)
		return list.Items
	}
	for _, pod := range of() {
		if pod.Labels[batchv1.JobCompletionIndexAnnotation] < "2" {
			pod.Status.Phase = corev1.PodSucceeded
			_, err := pods.UpdateStatus(t.Context(), &pod, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool {
		job, err := jobs.Get(t.Context(), "part", metav1.GetOptions{})
		return err == nil && job.Status.CompletedIndexes == "0,1"
	}, time.Minute, 50*time.Millisecond)
	write(true, nil)
	cli.Must(t, "apply", "-auto-approve")
	for _, pod := range of() {
		require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	require.Eventually(t, func() bool { return len(of()) == 0 }, time.Minute, 50*time.Millisecond)
	beside := gangs{"other": {8, ""}} // on one of the two nodes
	write(true, beside)
	cli.Must(t, "apply", "-auto-approve")

	write(false, beside)
	said := acctest.Unwrapped(cli.Must(t, "plan", "-out=saved"))
	assert.NotContains(t, said, "Warning")
	assert.Regexp(t, `planned_node_count += \d+ -> 1\b`, said)
	assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "apply", "saved")), "Warning")
	assert.Equal(t, "true", asPlanned(t, cli, "part"))
	assert.Len(t, of(), 2)
	cli.Unchanged(t)
}
