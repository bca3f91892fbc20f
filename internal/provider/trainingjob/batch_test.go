package trainingjob_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

const (
	sweep  = "gpuplan_training_job.sweep"
	sample = "gpuplan_training_job.sample"
)

// A gang of a Job of Kubernetes is placed as planned, changes as far as Kubernetes lets it, is imported,
// suspended and resumed, survives a lost pod, and leaves nothing behind. Jobs of the same name that are nobody's
// gang are in nobody's way, and none of ours.
func TestBatchJobsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	jobs := client.Typed.BatchV1().Jobs("default")
	at := func(variables config.Variables) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/batch/main.tf"), ConfigVariables: variables}
	}

	create := at(nil)
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(sweep, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(1)),
	}
	create.ConfigStateChecks = append(create.ConfigStateChecks,
		value(sweep, "status", knownvalue.StringExact("Running")),
		value(sweep, "placement_as_planned", knownvalue.Bool(true)),
		value(sample, "status", knownvalue.StringExact("Succeeded")),
		value(sample, "placement_as_planned", knownvalue.Bool(true)),
	)
	create.Check = func(*terraform.State) error {
		acctest.AssertPredicted(t, client, job.Batch.GVK(), "sweep")
		return nil
	}

	again := at(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	imported := at(nil)
	imported.ResourceName, imported.ImportState, imported.ImportStateVerify = sweep, true, true
	imported.ImportStateVerifyIgnore = []string{"pools", "timeouts", "roles"}

	change := at(config.Variables{"team": config.StringVariable("speech"), "deadline": config.IntegerVariable(3600)})
	change.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(sweep, plancheck.ResourceActionUpdate)}
	change.Check = func(*terraform.State) error {
		live, err := jobs.Get(t.Context(), "sweep", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "speech", live.Labels["team"])
		assert.Equal(t, "vision", live.Spec.Template.Labels["team"])
		assert.EqualValues(t, 3600, ptr.Deref(live.Spec.ActiveDeadlineSeconds, 0))
		return nil
	}

	held := config.Variables{"team": config.StringVariable("speech"), "suspend": config.BoolVariable(true)}
	suspend := at(held)
	suspend.ConfigPlanChecks.PreApply = change.ConfigPlanChecks.PreApply
	suspend.ConfigStateChecks = append(suspend.ConfigStateChecks, value(sweep, "status", knownvalue.StringExact("Suspended")))

	resume := at(config.Variables{"team": config.StringVariable("speech")})
	resume.ConfigPlanChecks.PreApply = change.ConfigPlanChecks.PreApply
	resume.ConfigStateChecks = append(resume.ConfigStateChecks,
		value(sweep, "status", knownvalue.StringExact("Running")),
		value(sweep, "placement_as_planned", knownvalue.Bool(true)),
	)
	resume.Check = func(*terraform.State) error {
		live, err := jobs.Get(t.Context(), "sweep", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "speech", live.Spec.Template.Labels["team"], "a suspended Job has no pods that keep it")
		return nil
	}

	replace := at(config.Variables{"image": config.StringVariable("train:2")})
	replace.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(sweep, plancheck.ResourceActionDestroyBeforeCreate)}
	replace.ConfigStateChecks = append(replace.ConfigStateChecks, value(sweep, "placement_as_planned", knownvalue.Bool(true)))

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, imported, change, suspend, resume, replace},
		CheckDestroy: func(*terraform.State) error {
			list, err := jobs.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Empty(t, list.Items)
			pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Empty(t, pods.Items)
			return nil
		},
	})

	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sweep"}, Spec: batchv1.JobSpec{
		Suspend: ptr.To(true),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox"}},
		}},
	}}
	_, err := jobs.Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		background := metav1.DeletePropagationBackground
		assert.NoError(t, jobs.Delete(context.Background(), other.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
	})
	taken := at(nil)
	taken.ExpectError = regexp.MustCompile(`(?s)Job exists already.*Job default/sweep exists already`)
	strange := at(nil)
	strange.ResourceName, strange.ImportState, strange.ImportStateId = sweep, true, "default/sweep"
	strange.ExpectError = regexp.MustCompile(`(?s)none\s+that\s+this\s+resource\s+can\s+describe.*NonIndexed`)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{taken, strange, {Config: `
resource "gpuplan_training_job" "beside" {
  name            = "sweep"
  framework       = "pytorch"
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 1 } }
}`}},
	})
}
