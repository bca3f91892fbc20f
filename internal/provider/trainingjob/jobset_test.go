package trainingjob_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

const (
	rl    = "gpuplan_training_job.rl"
	short = "gpuplan_training_job.short"
)

// A gang of a JobSet is placed as planned whatever its roles are, changes as far as JobSet lets it, is imported,
// suspended and resumed, and leaves nothing behind.
func TestJobSetsOnTheLocalPlatform(t *testing.T) {
	client := acctest.OnPlatform(t)
	at := func(variables config.Variables) resource.TestStep {
		return resource.TestStep{ConfigFile: config.StaticFile("testdata/jobset/main.tf"), ConfigVariables: variables}
	}
	live := func() *unstructured.Unstructured {
		obj, err := client.Get(t.Context(), job.JobSet.GVK(), "default", "rl")
		require.NoError(t, err)
		return obj
	}
	team := func() []string {
		var teams []string
		roles, _, err := unstructured.NestedSlice(live().Object, "spec", "replicatedJobs")
		require.NoError(t, err)
		for _, role := range roles {
			label, _, err := unstructured.NestedString(role.(map[string]any), "template", "spec", "template", "metadata", "labels", "team")
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
		return nil
	}

	again := at(nil)
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	evicted := again
	evicted.PreConfig = func() {
		own := metav1.ListOptions{LabelSelector: contract.JobSetRoleLabel + "=learner"}
		before, err := client.Typed.CoreV1().Pods("default").List(t.Context(), own)
		require.NoError(t, err)
		for _, pod := range before.Items {
			require.NoError(t, client.Typed.CoreV1().Pods("default").EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod.Name}}))
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			after, err := client.Typed.CoreV1().Pods("default").List(t.Context(), own)
			require.NoError(c, err)
			require.Len(c, after.Items, len(before.Items))
			for _, pod := range after.Items {
				assert.False(c, slices.ContainsFunc(before.Items, func(p corev1.Pod) bool { return p.UID == pod.UID }), pod.Name)
			}
			status, err := job.StatusOf(live())
			require.NoError(c, err)
			assert.True(c, status.Runs(7), status)
		}, time.Minute, 100*time.Millisecond)
		restarts, _, _ := unstructured.NestedInt64(live().Object, "status", "restarts")
		assert.Zero(t, restarts, "an eviction is no failure")
	}

	imported := at(nil)
	imported.ResourceName, imported.ImportState, imported.ImportStateVerify = rl, true, true
	imported.ImportStateVerifyIgnore = []string{"pools", "timeouts", "roles"}

	change := at(config.Variables{"team": config.StringVariable("speech")})
	change.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(rl, plancheck.ResourceActionUpdate)}
	change.Check = func(*terraform.State) error {
		assert.Equal(t, "speech", live().GetLabels()["team"])
		assert.Equal(t, []string{"vision", "vision", "vision"}, team())
		return nil
	}

	suspend := at(config.Variables{"team": config.StringVariable("speech"), "suspend": config.BoolVariable(true)})
	suspend.ConfigPlanChecks.PreApply = change.ConfigPlanChecks.PreApply
	suspend.ConfigStateChecks = append(suspend.ConfigStateChecks, value(rl, "status", knownvalue.StringExact("Suspended")))

	resume := at(config.Variables{"team": config.StringVariable("speech")})
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
		Steps:                    []resource.TestStep{create, again, evicted, imported, change, suspend, resume, limit},
		CheckDestroy: func(*terraform.State) error {
			list, err := client.List(t.Context(), job.JobSet.GVK(), "default", "")
			require.NoError(t, err)
			assert.Empty(t, list)
			jobs, err := client.Typed.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Empty(t, jobs.Items)
			pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Empty(t, pods.Items)
			return nil
		},
	})
}

// theirs is a JobSet as people write it.
const theirs = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: theirs, labels: {app: train}}
spec:
  successPolicy: {operator: All}
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        completionMode: Indexed
        parallelism: 2
        completions: 2
        backoffLimit: 1
        template:
          metadata: {labels: {app: train}}
          spec:
            restartPolicy: Never
            containers:
            - name: trainer
              image: train:1
              command: [train]
              env: [{name: EPOCHS, value: "1"}]
              resources: {limits: {nvidia.com/gpu: 1, memory: 1Gi}}
`

// A JobSet that someone has made with kubectl is imported without a change. What can change does, and leaves alone
// what the configuration cannot say of it; what cannot makes a new one. One whose roles are several Jobs is not imported.
func TestJobSetOfKubectlIsImported(t *testing.T) {
	client := acctest.OnPlatform(t)
	t.Setenv("GPUPLAN_PLACEMENT_CHECK", "off")
	sets := client.Dynamic.Resource(schema.GroupVersionResource{Group: contract.JobSetGroup, Version: contract.JobSetVersion, Resource: contract.JobSetResource}).Namespace("default")
	create := func(text string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), obj))
		made, err := sets.Create(t.Context(), obj, metav1.CreateOptions{FieldManager: "kubectl-create"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sets.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{}) })
		return made
	}
	made := create(theirs)
	create(strings.NewReplacer("name: theirs", "name: parts", "replicas: 1", "replicas: 2").Replace(theirs))
	live := func() *unstructured.Unstructured {
		found, err := sets.Get(t.Context(), "theirs", metav1.GetOptions{})
		require.NoError(t, err)
		return found
	}
	roles := func(of *unstructured.Unstructured) any {
		found, _, err := unstructured.NestedSlice(of.Object, "spec", "replicatedJobs")
		require.NoError(t, err)
		return found
	}

	cli := acctest.StartCLI(t)
	config := `
resource "gpuplan_training_job" "theirs" {
  name           = "theirs"
  framework      = "jobset"
  mode           = "default"
  gang           = { enabled = false }
  scheduler_name = "default-scheduler"
  image          = "train:1"
  command        = ["train"]
  env            = { EPOCHS = "1" }
  backoff_limit  = 3
  labels         = { app = "train" }
  roles          = { workers = { replicas = 2, gpus = 1, memory = "1Gi" } }
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
	said, err := cli.Run("import", "gpuplan_training_job.theirs", "default/parts")
	require.Error(t, err)
	assert.Contains(t, acctest.Unwrapped(said), "none that this resource can describe: its replicatedJob workers is 2 Jobs")
	cli.Must(t, "import", "gpuplan_training_job.theirs", "default/theirs")
	require.Contains(t, cli.Must(t, "plan"), "No changes.")

	const inPlace = "0 added, 1 changed, 0 destroyed"
	assert.Contains(t, written(`labels         = { app = "train" }`, `labels = { app = "train", team = "vision" }`+"\nttl_seconds_after_finished = 3600"), inPlace)
	assert.Equal(t, roles(made), roles(live()))
	assert.Equal(t, "vision", live().GetLabels()["team"])

	assert.Contains(t, written("roles  ", "suspend = true\nroles  "), inPlace)
	assert.True(t, job.Held(live()))
	assert.Equal(t, made.GetUID(), live().GetUID())

	said = written("train:1", "train:2")
	assert.Contains(t, said, `image = "train:1" -> "train:2" # forces replacement`)
	assert.NotEqual(t, made.GetUID(), live().GetUID())
	cli.Must(t, "destroy", "-auto-approve")
	pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobSetNameLabel + "=theirs"})
	require.NoError(t, err)
	assert.Empty(t, pods.Items)
}

// What the operator could not make of a JobSet, and pods that the cluster refuses, are said.
func TestJobSetThatCannotStart(t *testing.T) {
	client := acctest.OnPlatform(t)
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "refusing-sets", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := `resource "gpuplan_training_job" "j" {
  name            = "refused"
  namespace       = "refusing-sets"
  framework       = "jobset"
  image           = "x"
  mode            = "default"
  scheduler_name  = "default-scheduler"
  host_network    = true
  placement_check = "off"
  roles           = { worker = { gpus = 1 } }
  timeouts        = { create = "20s" }
}`
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: strings.Replace(config, `"off"`, `"error"`, 1), PlanOnly: true, ExpectError: acctest.Saying(`violates PodSecurity "baseline:latest"`)},
		{Config: config, ExpectError: acctest.Saying(`is forbidden: violates PodSecurity "baseline:latest"`)},
	}})
}

// Jobs that the cluster would not let a JobSet have are said at plan, and where nobody looked, at apply.
func TestJobSetWhoseJobsAreRefused(t *testing.T) {
	client := acctest.OnPlatform(t)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": "no-jobs"},
		"spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{"batch"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"jobs"},
			}}},
			"validations": []any{map[string]any{"expression": "object.spec.completions < 2", "message": "Jobs have one pod here"}},
		},
	}}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": "no-jobs"},
		"spec": map[string]any{
			"policyName": "no-jobs", "validationActions": []any{"Deny"},
			"matchResources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "single"}}},
		},
	}}
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "single"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, obj := range []*unstructured.Unstructured{policy, binding} {
		_, err := client.Create(t.Context(), obj)
		require.NoError(t, err)
	}
	spec := job.Spec{
		Name: "j", Namespace: "single", Framework: job.JobSet,
		Roles: map[string]job.Role{"worker": {Replicas: 2, Image: "x"}},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // until the API server has the policy
		assert.ErrorContains(c, preflight.Jobs(t.Context(), client, spec), "Jobs have one pod here")
	}, time.Minute, 100*time.Millisecond)
	config := `resource "gpuplan_training_job" "j" {
  name            = "j"
  namespace       = "single"
  framework       = "jobset"
  image           = "x"
  mode            = "default"
  scheduler_name  = "default-scheduler"
  placement_check = "off"
  roles           = { worker = { gpus = 1, replicas = 2 } }
  timeouts        = { create = "20s" }
}`
	resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: []resource.TestStep{
		{Config: strings.Replace(config, `"off"`, `"error"`, 1), PlanOnly: true, ExpectError: acctest.Saying(`would not create the Jobs of JobSet single/j`)},
		{Config: config, ExpectError: acctest.Saying(`none of its pods can be created; the job's operator says: its Jobs cannot be created`)},
	}})
}
