package trainingjob_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// A Job that someone has made with kubectl is imported without a change. What can change does, and leaves alone what
// the configuration cannot say of it; what cannot makes a new one.
func TestJobOfKubectlIsImported(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	jobs := client.Typed.BatchV1().Jobs("default")
	limits := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	made, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: batchv1.JobSpec{
		CompletionMode: ptr.To(batchv1.IndexedCompletion), Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train"}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Image: "train:1", Command: []string{"train"}, Resources: corev1.ResourceRequirements{Limits: limits},
				Env: []corev1.EnvVar{{Name: "EPOCHS", Value: "1"}, {Name: "EPOCHS", Value: "2"}},
			}}},
		},
	}}, metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(t, err)
	require.Contains(t, made.Labels, batchv1.ControllerUidLabel, "what Kubernetes writes")
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		_ = jobs.Delete(context.Background(), "theirs", metav1.DeleteOptions{PropagationPolicy: &background})
	})
	live := func() *batchv1.Job {
		found, err := jobs.Get(t.Context(), "theirs", metav1.GetOptions{})
		require.NoError(t, err)
		return found
	}

	cli := acctest.StartCLI(t)
	config := `
resource "gpuplan_training_job" "theirs" {
  name           = "theirs"
  framework      = "batch"
  mode           = "default"
  gang           = { enabled = false }
  scheduler_name = "default-scheduler"
  image          = "train:1"
  command        = ["train"]
  env            = { EPOCHS = "2" }
  labels         = { app = "train" }
  roles          = { worker = { replicas = 2, gpus = 1, memory = "1Gi" } }
}
`
	written := func(changes ...string) string {
		config = strings.NewReplacer(changes...).Replace(config)
		cli.Write(t, config)
		said := acctest.Unwrapped(cli.Must(t, "apply", "-auto-approve"))
		assert.Contains(t, cli.Must(t, "plan"), "No changes.")
		return said
	}
	cli.Write(t, config)
	cli.Must(t, "import", "gpuplan_training_job.theirs", "default/theirs")
	require.Contains(t, cli.Must(t, "plan"), "No changes.")

	const inPlace = "0 added, 1 changed, 0 destroyed"
	assert.Contains(t, written(`labels         = { app = "train" }`, `labels = { app = "train", team = "vision" }`+"\nactive_deadline_seconds = 3600"), inPlace)
	assert.Equal(t, made.Spec.Template, live().Spec.Template)
	assert.Nil(t, live().Spec.PodFailurePolicy)
	assert.EqualValues(t, 3600, ptr.Deref(live().Spec.ActiveDeadlineSeconds, 0))
	assert.Equal(t, "vision", live().Labels["team"])

	assert.Contains(t, written("roles  ", "suspend = true\nroles  "), inPlace)
	assert.True(t, ptr.Deref(live().Spec.Suspend, false))
	assert.Equal(t, made.UID, live().UID)

	assert.Contains(t, written(`team = "vision"`, `team = "speech"`), inPlace)
	assert.Equal(t, "speech", live().Spec.Template.Labels["team"], "a suspended Job has no pods that keep it")
	assert.Equal(t, made.Spec.Template.Spec, live().Spec.Template.Spec)

	said := written("train:1", "train:2")
	assert.Contains(t, said, `image = "train:1" -> "train:2" # forces replacement`)
	assert.NotEqual(t, made.UID, live().UID)
	cli.Must(t, "destroy", "-auto-approve")
}
