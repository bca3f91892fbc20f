// Package trainer_test drives TrainJobs on a platform on which Kubeflow Trainer runs them.
package trainer_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m, "--trainer")) }

const (
	rl    = "gpuplan_training_job.rl"
	short = "gpuplan_training_job.short"
)

func value(address, attribute string, check knownvalue.Check) statecheck.StateCheck {
	return statecheck.ExpectKnownValue(address, tfjsonpath.New(attribute), check)
}

// read is an object of a job in the namespace default.
func read(t *testing.T, client *kube.Client, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := client.Get(t.Context(), kind, "default", name)
	require.NoError(t, err)
	return obj
}

// assertNothing checks that nothing is left of jobs.
func assertNothing(t *testing.T, client *kube.Client) {
	t.Helper()
	for _, kind := range []schema.GroupVersionKind{job.TrainJob.GVK(), job.RuntimeGVK(), job.JobSet.GVK(), {Group: "batch", Version: "v1", Kind: "Job"}, {Version: "v1", Kind: "Pod"}} {
		list, err := client.List(t.Context(), kind, "default", "")
		require.NoError(t, err)
		assert.Empty(t, list, kind.Kind)
	}
}

// The course of a job: it is placed as planned, imported, changes as far as its JobSet lets it, is suspended, resumed, ends,
// and leaves nothing behind.
func TestTrainJobsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	at := func(variables config.Variables) resource.TestStep {
		all := config.Variables{"framework": config.StringVariable(string(job.TrainJob))}
		maps.Copy(all, variables)
		return resource.TestStep{ConfigFile: config.StaticFile("../testdata/jobset/main.tf"), ConfigVariables: all}
	}
	team := func() (teams []string) {
		roles, _, err := unstructured.NestedSlice(read(t, client, job.JobSet.GVK(), "rl").Object, "spec", "replicatedJobs")
		require.NoError(t, err)
		for _, role := range roles {
			label, _, err := unstructured.NestedString(role.(map[string]any), "template", "spec", "template", "metadata", "labels", "team") //nolint:forcetypeassert // as the API server has it
			require.NoError(t, err)
			teams = append(teams, label)
		}
		return teams
	}

	create := at(nil)
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(rl, tfjsonpath.New("planned_node_count"), knownvalue.Int64Exact(2)),
	}
	create.ConfigStateChecks = append(create.ConfigStateChecks,
		value(rl, "status", knownvalue.StringExact("Running")),
		value(rl, "placement_as_planned", knownvalue.Bool(true)),
		value(short, "status", knownvalue.StringExact("Succeeded")),
		value(short, "placement_as_planned", knownvalue.Bool(true)),
	)
	create.Check = func(*terraform.State) error {
		acctest.AssertPredicted(t, client, job.JobSet.GVK(), "rl")
		owner := metav1.GetControllerOf(read(t, client, job.RuntimeGVK(), "rl"))
		require.NotNil(t, owner)
		assert.Equal(t, read(t, client, job.TrainJob.GVK(), "rl").GetUID(), owner.UID)
		return nil
	}

	again := at(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	imported := at(nil)
	imported.ResourceName, imported.ImportState, imported.ImportStateVerify = rl, true, true
	imported.ImportStateVerifyIgnore = []string{"pools", "timeouts", "roles"}

	speech := config.Variables{"team": config.StringVariable("speech")}
	change := at(speech)
	change.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(rl, plancheck.ResourceActionUpdate)}
	change.Check = func(*terraform.State) error {
		assert.Equal(t, "speech", read(t, client, job.TrainJob.GVK(), "rl").GetLabels()["team"])
		assert.Equal(t, []string{"vision", "vision", "vision"}, team())
		return nil
	}

	suspend := at(config.Variables{"team": speech["team"], "suspend": config.BoolVariable(true)})
	suspend.ConfigPlanChecks.PreApply = change.ConfigPlanChecks.PreApply
	suspend.ConfigStateChecks = append(suspend.ConfigStateChecks, value(rl, "status", knownvalue.StringExact("Suspended")))

	resume := at(speech)
	resume.ConfigPlanChecks.PreApply = change.ConfigPlanChecks.PreApply
	resume.ConfigStateChecks = append(resume.ConfigStateChecks,
		value(rl, "status", knownvalue.StringExact("Running")),
		value(rl, "placement_as_planned", knownvalue.Bool(true)),
	)
	resume.Check = func(*terraform.State) error {
		assert.Equal(t, []string{"speech", "speech", "speech"}, team(), "a suspended JobSet has no pods that keep it")
		return nil
	}

	limit := at(config.Variables{"limit": config.IntegerVariable(2)})
	limit.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(rl, plancheck.ResourceActionDestroyBeforeCreate)}
	limit.ConfigStateChecks = append(limit.ConfigStateChecks, value(rl, "placement_as_planned", knownvalue.Bool(true)))

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps:                    []resource.TestStep{create, again, imported, change, suspend, resume, limit},
		CheckDestroy: func(*terraform.State) error {
			assertNothing(t, client)
			return nil
		},
	})
}

// theirs is a TrainJob as people write it, with a runtime that others may use.
const theirs = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: common, namespace: default}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers: [{name: node, image: "train:1"}]
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: theirs, namespace: default}
spec:
  runtimeRef: {kind: TrainingRuntime, name: common}
  trainer: {numNodes: 2}
`

// A TrainJob of others, whose runtime may serve other jobs, is not imported, and its name and that of a runtime are theirs.
func TestTrainJobOfOthers(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	for text := range strings.SplitSeq(theirs, "\n---\n") {
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), obj))
		_, err := client.Create(t.Context(), obj)
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Delete(context.Background(), obj.GroupVersionKind(), "default", obj.GetName()) })
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.Get(t.Context(), job.JobSet.GVK(), "default", "theirs")
		require.NoError(c, err)
	}, time.Minute, 100*time.Millisecond)

	cli := acctest.StartCLI(t)
	cli.Write(t, configOf("theirs", "trainjob"))
	for _, id := range []string{"default/theirs", "default/theirs/trainjob"} {
		said, err := cli.Run("import", "gpuplan_training_job.j", id)
		require.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(said), "what it runs is said by the TrainingRuntime common")
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		active, _, _ := unstructured.NestedSlice(read(t, client, job.TrainJob.GVK(), "theirs").Object, "status", "jobsStatus")
		assert.NotEmpty(c, active)
	}, time.Minute, 100*time.Millisecond)
	cli.Write(t, `
data "gpuplan_training_job" "theirs" { id = "default/theirs" }
output "begun" { value = data.gpuplan_training_job.theirs.start_time != null }
`)
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "output", "begun"), "true", "its JobSet says what runs")
	for _, framework := range []string{"trainjob", "jobset"} {
		cli.Write(t, configOf("theirs", framework))
		said, err := cli.Run("plan")
		require.Error(t, err)
		assert.Contains(t, acctest.Unwrapped(said), "TrainJob default/theirs exists already", framework)
	}
	cli.Write(t, configOf("common", "trainjob"))
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "TrainingRuntime default/common is not the job's")
	_, err = client.Get(t.Context(), job.TrainJob.GVK(), "default", "common")
	assert.True(t, kube.IsNotFound(err))
}

// The plan asks about a TrainJob, which Kubeflow Trainer refuses before its runtime is there, and about its JobSet.
func TestTrainJobThatANamespaceHasNoRoomFor(t *testing.T) {
	client := acctest.OnPlatform(t)
	for name, resource := range map[string]string{"jobs": "trainjobs.trainer.kubeflow.org", "sets": "jobsets.jobset.x-k8s.io"} {
		t.Run(name, func(t *testing.T) {
			namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
			quota := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "q", "namespace": name},
				"spec": map[string]any{"hard": map[string]any{"count/" + resource: "0"}},
			}}
			for _, obj := range []*unstructured.Unstructured{namespace, quota} {
				_, err := client.Create(t.Context(), obj)
				require.NoError(t, err)
			}
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				live, err := client.Get(t.Context(), quota.GroupVersionKind(), name, "q")
				require.NoError(c, err)
				_, counted, _ := unstructured.NestedMap(live.Object, "status", "hard")
				assert.True(c, counted)
			}, time.Minute, 100*time.Millisecond)
			cli := acctest.StartCLI(t)
			cli.Write(t, strings.Replace(configOf("j", "trainjob"), "wait_for", fmt.Sprintf("namespace = %q\n  wait_for", name), 1))
			said, err := cli.Run("plan")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "takes 1 of count/"+resource+", and the ResourceQuota "+name+"/q allows 0")
			if name != "sets" {
				return
			}
			t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off") // the plan does not look
			cli.Write(t, strings.NewReplacer(`wait_for       = "none"`, `namespace = "sets"
  timeouts = { create = "10s" }`).Replace(configOf("j", "trainjob")))
			said, err = cli.Run("apply", "-auto-approve")
			require.Error(t, err, said)
			assert.Contains(t, acctest.Unwrapped(said), "none of its pods can be created; the job's operator says: TrainJob resources reconciliation failed")
			cli.Must(t, "destroy", "-auto-approve")
		})
	}
}

// A job becomes a TrainJob in the place of its JobSet, and the other way round. One to whose runtime others refer stays
// until they have gone.
func TestJobBecomesATrainJob(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "warn") // no node has GPUs
	cli := acctest.StartCLI(t)
	for _, framework := range []string{"jobset", "trainjob", "jobset", "trainjob"} {
		cli.Write(t, configOf("turn", framework))
		assert.NotContains(t, cli.Must(t, "apply", "-auto-approve"), "exists already", framework)
		cli.Unchanged(t)
	}
	cli.Write(t, configOf("turn", "trainjob")+strings.NewReplacer(`"j"`, `"other"`).Replace(configOf("other", "trainjob")))
	other := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": map[string]any{"name": "other", "namespace": "default"},
		"spec": map[string]any{"suspend": true, "runtimeRef": map[string]any{"kind": "TrainingRuntime", "name": "turn"}},
	}}
	_, err := client.Create(t.Context(), other)
	require.NoError(t, err)
	said, err := cli.Run("import", "gpuplan_training_job.other", "default/other")
	require.Error(t, err, "its runtime is another job's")
	assert.Contains(t, acctest.Unwrapped(said), "what it runs is said by the TrainingRuntime turn")
	cli.Write(t, configOf("turn", "trainjob"))
	said, err = cli.Run("destroy", "-auto-approve")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "TrainingRuntime default/turn is what other TrainJobs refer to, too, which Kubeflow Trainer keeps it for: default/other")
	read(t, client, job.TrainJob.GVK(), "turn")
	require.NoError(t, client.Delete(t.Context(), other.GroupVersionKind(), "default", "other"))
	cli.Must(t, "destroy", "-auto-approve")
	assertNothing(t, client)
}

// What is left of a job of which an apply was cut off before the TrainJob was there is taken by the next one, and a job
// that someone deletes takes its runtime along.
func TestRuntimeThatIsLeft(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	obj, err := job.Spec{Namespace: "default", Name: "left", Framework: job.TrainJob, Mode: job.Default, Roles: map[string]job.Role{"worker": {Replicas: 1, Image: "old:1", GPUs: 1}}}.Render()
	require.NoError(t, err)
	runtime, _ := job.Split(obj)
	_, err = client.Apply(t.Context(), runtime)
	require.NoError(t, err)

	cli := acctest.StartCLI(t)
	cli.Write(t, configOf("left", "trainjob"))
	cli.Must(t, "apply", "-auto-approve")
	assert.Contains(t, cli.Must(t, "plan"), "No changes.")
	require.NoError(t, client.Delete(t.Context(), job.TrainJob.GVK(), "default", "left"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.Get(t.Context(), job.RuntimeGVK(), "default", "left")
		assert.True(c, kube.IsNotFound(err))
	}, time.Minute, 100*time.Millisecond)
	assert.Contains(t, cli.Must(t, "plan"), "1 to add")
	cli.Must(t, "apply", "-auto-approve")
	cli.Must(t, "destroy", "-auto-approve")
	pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobSetNameLabel + "=left"})
	require.NoError(t, err)
	assert.Empty(t, pods.Items)
	_, err = client.Get(t.Context(), job.RuntimeGVK(), "default", "left")
	assert.True(t, kube.IsNotFound(err))
}

// A runtime that is left is not needed by a job of another framework, unless another TrainJob refers to it.
func TestRuntimeThatIsLeftOfAnotherFramework(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	for name, used := range map[string]bool{"unused": false, "used": true} {
		obj, err := job.Spec{Namespace: "default", Name: name, Framework: job.TrainJob, Mode: job.Default, Roles: map[string]job.Role{"worker": {Replicas: 1, Image: "old:1", GPUs: 1}}}.Render()
		require.NoError(t, err)
		runtime, other := job.Split(obj)
		_, err = client.Apply(t.Context(), runtime)
		require.NoError(t, err)
		if used {
			other.SetName("other")
			require.NoError(t, job.Hold(other, true))
			_, err = client.Create(t.Context(), other)
			require.NoError(t, err)
		}
		cli := acctest.StartCLI(t)
		cli.Write(t, configOf(name, "jobset"))
		cli.Must(t, "apply", "-auto-approve")
		_, err = client.Get(t.Context(), job.RuntimeGVK(), "default", name)
		assert.Equal(t, !used, kube.IsNotFound(err), "%s: %v", name, err)
		cli.Must(t, "destroy", "-auto-approve")
	}
	require.NoError(t, client.Delete(t.Context(), job.TrainJob.GVK(), "default", "other"))
	require.NoError(t, client.Delete(t.Context(), job.RuntimeGVK(), "default", "used"))
}

// A runtime that someone changes or deletes while its job runs changes nothing of what runs: the job goes on, and the
// runtime is written as it was.
func TestRuntimeThatChangesWhileItsJobRuns(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	cli := acctest.StartCLI(t)
	cli.Write(t, configOf("steady", "trainjob"))
	cli.Must(t, "apply", "-auto-approve")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.Get(t.Context(), job.JobSet.GVK(), "default", "steady")
		assert.NoError(c, err)
	}, time.Minute, 100*time.Millisecond)
	set := read(t, client, job.JobSet.GVK(), "steady").GetUID()
	template := func() (of any) {
		spec := read(t, client, job.RuntimeGVK(), "steady").Object["spec"].(map[string]any) //nolint:forcetypeassert // as the API server has it
		assert.NotContains(t, spec, "mlPolicy")
		return spec["template"].(map[string]any)["spec"] //nolint:forcetypeassert // as above
	}
	before := template()
	patch := func(operations string) {
		runtimes := client.Dynamic.Resource(job.RuntimeGVK().GroupVersion().WithResource(contract.TrainingRuntimeResource)).Namespace("default")
		_, err := runtimes.Patch(t.Context(), "steady", types.JSONPatchType, []byte(operations), metav1.PatchOptions{FieldManager: "kubectl-patch"})
		require.NoError(t, err)
	}
	for says, deed := range map[string]func(){
		"was changed by someone else": func() {
			patch(`[{"op": "replace", "path": "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image", "value": "other:2"},
			        {"op": "add", "path": "/spec/mlPolicy", "value": {"numNodes": 3}}]`)
		},
		"is gone": func() {
			require.NoError(t, client.Dynamic.Resource(job.RuntimeGVK().GroupVersion().WithResource(contract.TrainingRuntimeResource)).Namespace("default").
				Delete(t.Context(), "steady", metav1.DeleteOptions{}))
			patch(`[{"op": "remove", "path": "/metadata/finalizers"}]`)
		},
	} {
		deed()
		plan := acctest.Unwrapped(cli.Must(t, "plan"))
		assert.Contains(t, plan, "0 to add, 1 to change, 0 to destroy")
		assert.Contains(t, plan, "TrainingRuntime default/steady, which says what the pods of this job are, "+says)
		cli.Apply(t, 0, 1, 0)
		cli.Unchanged(t)
		assert.Equal(t, set, read(t, client, job.JobSet.GVK(), "steady").GetUID(), says)
		assert.Equal(t, before, template(), says)
	}
	// What is suspended runs what the runtime says.
	cli.Write(t, strings.Replace(configOf("steady", "trainjob"), "wait_for", "suspend = true\n  wait_for", 1))
	cli.Apply(t, 0, 1, 0)
	patch(`[{"op": "replace", "path": "/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image", "value": "other:2"}]`)
	assert.Contains(t, cli.Must(t, "plan"), "1 to add, 0 to change, 1 to destroy")
	cli.Must(t, "destroy", "-auto-approve")
	assertNothing(t, client)
}

func configOf(name, framework string) string {
	return `
resource "gpuplan_training_job" "j" {
  name           = "` + name + `"
  framework      = "` + framework + `"
  mode           = "default"
  gang           = { enabled = false }
  scheduler_name = "default-scheduler"
  wait_for       = "none"
  image          = "train:1"
  roles          = { worker = { gpus = 1 } }
}
`
}
