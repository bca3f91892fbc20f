package scheduler_test

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

const (
	this   = "gpuplan_scheduler.this"
	config = `resource "gpuplan_scheduler" "this" {
  image = "gpuplan-scheduler:1"
}`
	changed = `resource "gpuplan_scheduler" "this" {
  image     = "gpuplan-scheduler:2"
  replicas  = 3
  log_level = 4
  port      = 10259
  unreachable_grace = "2m0s"
  reserve_after     = "10m0s"
  stale_after       = "1h0m0s"
}`
)

var (
	deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	configMap  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

func get(t *testing.T, cloud *acctest.Cloud, kind schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	obj, err := cloud.Kube.Get(t.Context(), kind, contract.SystemNamespace, contract.SchedulerName)
	require.NoError(t, err)
	return obj
}

func update(checks ...plancheck.PlanCheck) []plancheck.PlanCheck {
	return append(checks, plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate))
}

func TestScheduler(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)

	create := resource.TestStep{Config: config}
	create.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(this, tfjsonpath.New("scheduler_name"), knownvalue.StringExact("gpuplan-scheduler")),
		plancheck.ExpectKnownValue(this, tfjsonpath.New("id"), knownvalue.StringExact("gpuplan-system/gpuplan-scheduler")),
	}
	same := resource.TestStep{Config: config}
	same.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}

	options := resource.TestStep{Config: changed}
	options.ConfigPlanChecks.PreApply = update()
	options.Check = func(*terraform.State) error {
		replicas, _, _ := unstructured.NestedInt64(get(t, cloud, deployment).Object, "spec", "replicas")
		assert.Equal(t, int64(3), replicas)
		return nil
	}

	respelled := resource.TestStep{Config: strings.NewReplacer("2m0s", "120s", "10m0s", "600s", "1h0m0s", "60m").Replace(changed)}
	respelled.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
	scaled := resource.TestStep{Config: changed, PreConfig: func() { // by someone else, who then owns the field
		obj := get(t, cloud, deployment)
		require.NoError(t, unstructured.SetNestedField(obj.Object, int64(5), "spec", "replicas"))
		cloud.API.Put(obj)
	}}
	scaled.ConfigPlanChecks.PreApply = update()
	scaled.Check = options.Check

	missing := resource.TestStep{Config: changed, PreConfig: func() {
		cloud.API.Remove(configMap, contract.SystemNamespace, contract.SchedulerName)
	}}
	missing.ConfigPlanChecks.PreApply = update(
		plancheck.ExpectKnownValue(this, tfjsonpath.New("drifted_objects"), knownvalue.ListExact(nil)))
	missing.Check = func(*terraform.State) error {
		get(t, cloud, configMap)
		return nil
	}

	gone := resource.TestStep{Config: changed, PreConfig: func() {
		cloud.API.Remove(deployment, contract.SystemNamespace, contract.SchedulerName)
	}}
	gone.ConfigPlanChecks.PreApply = update() // the rest of it is still there

	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{create, same, options, respelled, scaled, missing, gone,
			{ResourceName: this, ImportState: true, ImportStateVerify: true},
			{ResourceName: this, ImportState: true, ImportStateId: "default", ExpectError: acctest.Saying("its import ID is gpuplan-system/gpuplan-scheduler")},
		},
		CheckDestroy: func(*terraform.State) error {
			objs, err := deploy.Objects(deploy.Options{Image: "x"})
			require.NoError(t, err)
			for _, obj := range objs {
				_, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
				assert.True(t, kube.IsNotFound(err), "%s %s: %v", obj.GetKind(), obj.GetName(), err)
			}
			return nil
		},
	})
}

var policy = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}

// A scheduler that could never be ready is refused at plan; one that is there is left alone.
func TestClusterThatIsTooOld(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	cloud.API.BeOld("33")
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: config, PlanOnly: true, ExpectError: regexp.MustCompile(`Scheduler needs Kubernetes 1\.34 or newer, and the API server behaves like\s+1\.33`)},
			{PreConfig: func() { cloud.API.BeOld("34") }, Config: config},
			{PreConfig: func() { cloud.API.BeOld("33") }, Config: config, PlanOnly: true},
		},
	})
}

// The policy that routes pods comes with the scheduler unless it is declined, in the
// version that the API server serves; where there is none, the plan says what is missed.
func TestRoutePods(t *testing.T) {
	const declined = `resource "gpuplan_scheduler" "this" {
  image      = "gpuplan-scheduler:1"
  route_pods = false
}`
	routed := func(cloud *acctest.Cloud, version string, want bool) resource.TestCheckFunc {
		return func(*terraform.State) error {
			kind := policy
			kind.Version = version
			_, err := cloud.Kube.Get(t.Context(), kind, "", contract.RoutePolicyName)
			if want {
				return err
			}
			assert.True(t, kube.IsNotFound(err), "%v", err)
			return nil
		}
	}
	const read = `
data "gpuplan_scheduler" "this" { depends_on = [gpuplan_scheduler.this] }
output "routes" {
  value = data.gpuplan_scheduler.this.route_pods
}`
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			cloud.RunWorkloads(t)
			cloud.API.ServeAs(version, policy.Kind, policy.Kind+"Binding")
			same := resource.TestStep{Config: config}
			same.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
			lost := resource.TestStep{Config: config, Check: routed(cloud, version, true), PreConfig: func() {
				kind := policy
				kind.Version = version
				cloud.API.Remove(kind, "", contract.RoutePolicyName)
			}}
			lost.ConfigPlanChecks.PreApply = update()
			resource.UnitTest(t, resource.TestCase{
				ProtoV6ProviderFactories: acctest.Providers(),
				Steps: []resource.TestStep{
					{Config: config, Check: routed(cloud, version, true)}, same, lost,
					{Config: declined, Check: routed(cloud, version, false)},
					{ResourceName: this, ImportState: true, ImportStateVerify: true},
					{Config: config, Check: routed(cloud, version, true)},
					{ResourceName: this, ImportState: true, ImportStateVerify: true},
				},
				CheckDestroy: routed(cloud, version, false),
			})
		})
	}
	t.Run("not served", func(t *testing.T) {
		cloud := acctest.StartCloud(t)
		cloud.RunWorkloads(t)
		cloud.API.ServeAs("", policy.Kind, policy.Kind+"Binding")
		cli := acctest.StartCLI(t)
		cli.Write(t, config)
		assert.Contains(t, cli.Must(t, "plan"), "MutatingAdmissionPolicy", "the first plan says so already")
		cli.Apply(t, 1, 0, 0)
		cli.Unchanged(t)
		cli.Write(t, config+read)
		assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "routes = false")
		cli.Must(t, "destroy", "-auto-approve")
	})
}

// stamped are the objects of the configuration as another one with an owner installs them.
func stamped(t *testing.T, owner string) []*unstructured.Unstructured {
	t.Helper()
	objs, err := deploy.Objects(deploy.Options{Image: "gpuplan-scheduler:1"})
	require.NoError(t, err)
	for _, obj := range objs {
		labels := obj.GetLabels()
		labels[contract.OwnerLabel] = owner
		obj.SetLabels(labels)
	}
	return objs
}

// assertGone says which of the objects are there still.
func assertGone(t *testing.T, cloud *acctest.Cloud, objs []*unstructured.Unstructured) {
	t.Helper()
	for _, obj := range objs {
		_, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		assert.True(t, kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed), "%s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
}

// Whatever an install left that was killed is continued; another configuration's never is.
func TestInstallThatWasKilled(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs := stamped(t, "a")
	installed := func() (n int) {
		for _, obj := range objs {
			_, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
			if err == nil {
				n++
			}
		}
		return n
	}
	for _, n := range []int{1, len(objs) / 2, len(objs)} {
		require.NoError(t, cloud.Kube.ApplyAll(t.Context(), objs[:n], nil))
		steps := []resource.TestStep{
			{Config: acctest.Owner("a") + config, Check: func(*terraform.State) error {
				assert.Equal(t, len(objs), installed())
				return nil
			}},
			{Config: acctest.Owner("a") + config, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}},
		}
		if n > 1 { // a namespace alone is everybody's
			steps = slices.Insert(steps, 0, resource.TestStep{Config: acctest.Owner("b") + config,
				ExpectError: acctest.Saying(`another Terraform configuration manages it, with the owner "a" (this one is "b")`)})
		}
		resource.UnitTest(t, resource.TestCase{ProtoV6ProviderFactories: acctest.Providers(), Steps: steps})
		assert.Zero(t, installed())
	}
}

// A removal that was killed is finished, whatever it left.
func TestRemovalThatWasKilled(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: config, Check: func(*terraform.State) error {
			for _, obj := range objs[len(objs)/2:] {
				cloud.API.Remove(obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
			}
			return nil
		}, ExpectNonEmptyPlan: true}},
		CheckDestroy: func(*terraform.State) error {
			assertGone(t, cloud, objs)
			return nil
		},
	})
}

// A kind stays with the objects of others, and the next install takes it over.
func TestKindsOfOthersStay(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	podGroups := "podgroups.scheduling.x-k8s.io"
	stamps := func() (of map[string]string) {
		of = map[string]string{}
		for _, obj := range objs {
			if live, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName()); err == nil {
				of[obj.GetName()] = live.GetLabels()[contract.OwnerLabel]
			}
		}
		return of
	}
	kind := schema.GroupVersionKind{Group: contract.PodGroupGroup, Version: contract.PodGroupVersion, Kind: contract.PodGroupKind}
	group := func(name string, labels map[string]string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		obj.SetNamespace("default")
		obj.SetName(name)
		obj.SetLabels(labels)
		return obj
	}
	cli := map[string]*acctest.CLI{}
	for _, owner := range []string{"a", "b"} {
		cli[owner] = acctest.StartCLI(t)
		cli[owner].Write(t, acctest.Owner(owner)+config)
	}

	cli["a"].Must(t, "apply", "-auto-approve")
	for _, name := range []string{"p", "q", "r", "s"} {
		cloud.API.Put(group(name, nil))
	}
	output := acctest.Unwrapped(cli["a"].Must(t, "destroy", "-auto-approve"))
	assert.Contains(t, output, "Warning: CustomResourceDefinition "+podGroups+" was not deleted With it would go what others have made: "+
		"PodGroup default/p, PodGroup default/q, PodGroup default/r, 1 more. `kubectl get "+podGroups+" -A` lists them.")
	assert.Contains(t, output, "`kubectl delete crd "+podGroups+"`")
	assert.Equal(t, map[string]string{podGroups: "a"}, stamps(), "nothing else stays")

	cli["b"].Must(t, "apply", "-auto-approve")
	assert.Equal(t, "b", stamps()[podGroups])
	assert.Contains(t, cli["b"].Must(t, "plan"), "No changes.")
	for _, name := range []string{"p", "q", "r"} {
		cloud.API.Remove(kind, "default", name)
	}
	assert.Contains(t, acctest.Unwrapped(cli["b"].Must(t, "destroy", "-auto-approve")), "what others have made: PodGroup default/s. `kubectl")
	cli["a"].Must(t, "apply", "-auto-approve")
	cloud.API.Remove(kind, "default", "s")
	cloud.API.Put(group("published", map[string]string{contract.PartOfLabel: contract.PartOfValue}))
	assert.NotContains(t, cli["a"].Must(t, "destroy", "-auto-approve"), "Warning")
	assert.Empty(t, stamps())
}

// A namespace stays with the objects of others, as long as there are some.
func TestNamespacesOfOthersStay(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve")
	theirs := map[string]*unstructured.Unstructured{}
	for namespace, kind := range map[string]schema.GroupVersionKind{
		contract.SystemNamespace: {Version: "v1", Kind: "PersistentVolumeClaim"},
		contract.QueueNamespace:  {Group: contract.QueueGroup, Version: contract.QueueVersion, Kind: contract.QueueKind},
	} {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		obj.SetNamespace(namespace)
		obj.SetName("theirs")
		theirs[namespace] = obj
		cloud.API.Put(obj)
	}
	stays := func(obj *unstructured.Unstructured) bool {
		_, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		require.True(t, err == nil || kube.IsNotFound(err) || errors.Is(err, kube.ErrNotServed), "%v", err)
		return err == nil
	}
	said := acctest.Unwrapped(cli.Must(t, "destroy", "-auto-approve"))
	for name, obj := range theirs {
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
		namespace.SetName(name)
		assert.Contains(t, said, "Warning: Namespace "+name+" was not deleted With it would go what others have made: "+obj.GetKind()+" "+name+"/theirs. The next install takes the namespace over")
		assert.True(t, stays(obj) && stays(namespace), name)
		defer func() { assert.False(t, stays(namespace), name) }()
	}
	for name, obj := range theirs {
		cloud.API.Remove(obj.GroupVersionKind(), name, obj.GetName())
	}
	cli.Must(t, "apply", "-auto-approve")
	assert.NotContains(t, cli.Must(t, "destroy", "-auto-approve"), "Warning")
}

// A scheduler that someone else has installed in the place of ours is theirs: no plan takes it for ours, and neither a
// change nor a destroy touches it. One with our stamp is ours, installed again.
func TestSchedulerInThePlaceOfOurs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs, err := deploy.Objects(deploy.Options{Image: "x", RoutePods: true})
	require.NoError(t, err)
	slices.Reverse(objs)
	ours, theirs := acctest.StartCLI(t), acctest.StartCLI(t)
	ours.Write(t, acctest.Owner("a")+config)
	ours.Must(t, "apply", "-auto-approve")

	again := get(t, cloud, deployment)
	cloud.API.Remove(deployment, contract.SystemNamespace, contract.SchedulerName)
	again.SetUID("")
	cloud.API.Put(again)
	ours.Must(t, "apply", "-auto-approve")
	ours.Unchanged(t)

	ours.Write(t, acctest.Owner("a")+changed)
	ours.Must(t, "plan", "-out=before")
	for _, obj := range objs {
		cloud.API.Remove(obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	}
	theirs.Write(t, acctest.Owner("b")+config)
	theirs.Must(t, "apply", "-auto-approve")

	for _, command := range [][]string{{"plan"}, {"apply", "-auto-approve"}} {
		said, err := ours.Run(command...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), `Scheduler is installed already`)
		assert.Contains(t, acctest.Unwrapped(said), `another Terraform configuration manages it, with the owner "b" (this one is "a"). Change it there;`)
	}
	said, err := ours.Run("apply", "before")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), "Deployment gpuplan-system/gpuplan-scheduler is another one since the plan was made: plan again.")
	ours.Must(t, "destroy", "-auto-approve", "-refresh=false")
	theirs.Unchanged(t)
}

// What another configuration's install has left that was killed before its Deployment is theirs as well, once ours has gone.
func TestHalfASchedulerInThePlaceOfOurs(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs := stamped(t, "b")
	ours, theirs := acctest.StartCLI(t), acctest.StartCLI(t)
	ours.Write(t, acctest.Owner("a")+config)
	ours.Must(t, "apply", "-auto-approve")
	for _, obj := range slices.Backward(objs) {
		cloud.API.Remove(obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
	}
	left := slices.DeleteFunc(objs, func(obj *unstructured.Unstructured) bool { return obj.GetKind() == "Deployment" })
	require.NoError(t, cloud.Kube.ApplyAll(t.Context(), left, nil))

	said, err := ours.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), `another Terraform configuration manages it, with the owner "b" (this one is "a")`)
	assert.Contains(t, ours.Must(t, "destroy", "-auto-approve"), "Objects of another configuration were not deleted")
	left = slices.DeleteFunc(left, func(obj *unstructured.Unstructured) bool { return obj.GetKind() == "CustomResourceDefinition" }) // of which there are no objects
	for _, obj := range left {
		live, err := cloud.Kube.Get(t.Context(), obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName())
		if assert.NoError(t, err, obj.GetName()) {
			assert.Equal(t, "b", live.GetLabels()[contract.OwnerLabel])
		}
	}
	theirs.Write(t, acctest.Owner("b")+config)
	theirs.Must(t, "apply", "-auto-approve")
	theirs.Must(t, "destroy", "-auto-approve")
}

// What carries an owner of before is ours still, also when the Deployment has gone: nothing of it stays.
func TestRemovalUnderAnotherOwner(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	cli := acctest.StartCLI(t)
	cli.Write(t, acctest.Owner("a")+config)
	cli.Must(t, "apply", "-auto-approve")
	cloud.API.Remove(deployment, contract.SystemNamespace, contract.SchedulerName)
	cli.Write(t, acctest.Owner("moved")+config)
	cli.Must(t, "apply", "-auto-approve")
	cli.Write(t, acctest.Owner("again")+config)
	cloud.API.Remove(deployment, contract.SystemNamespace, contract.SchedulerName)
	assert.NotContains(t, cli.Must(t, "destroy", "-auto-approve"), "Warning")
	assertGone(t, cloud, objs)
}

// An object of someone else that a change of the options would add stays theirs.
func TestObjectOfOthersThatAnOptionAdds(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	plain, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	routing, err := deploy.Objects(deploy.Options{Image: "x", RoutePods: true})
	require.NoError(t, err)
	cli := acctest.StartCLI(t)
	routes := func(on string) string { return strings.Replace(config, "\n}", "\n  route_pods = "+on+"\n}", 1) }
	cli.Write(t, acctest.Owner("a")+routes("false"))
	cli.Must(t, "apply", "-auto-approve")
	added := routing[slices.IndexFunc(routing, func(o *unstructured.Unstructured) bool {
		return !slices.ContainsFunc(plain, func(p *unstructured.Unstructured) bool {
			return p.GetKind() == o.GetKind() && p.GetName() == o.GetName()
		})
	})]
	theirs := added.DeepCopy()
	theirs.SetLabels(map[string]string{"app": "other"})
	cloud.API.Put(theirs)
	cli.Write(t, acctest.Owner("a")+routes("true"))
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), added.GetName()+" exists")
}

func TestSchedulerThatDoesNotStart(t *testing.T) {
	cloud := acctest.StartCloud(t) // no controller makes pods
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: `resource "gpuplan_scheduler" "this" {
  image    = "gpuplan-scheduler:1"
  timeouts = { create = "15s" }
}`, ExpectError: acctest.Saying("0 of 2 pods up to date, 0 ready. `kubectl -n gpuplan-system describe Deployment gpuplan-scheduler` shows what it waits for")},
			{Config: config, PreConfig: func() { cloud.RunWorkloads(t) }}, // what exists of it is known and replaced
		},
	})
}

// An apply that is interrupted while the scheduler does not run yet leaves it to the next one, which waits for it.
func TestSchedulerWhoseApplyIsInterrupted(t *testing.T) {
	cloud := acctest.StartCloud(t) // no controller makes pods
	cli := acctest.StartCLI(t)
	cli.Write(t, strings.TrimSuffix(config, "}")+"  route_pods = false\n}") // what routes pods comes once it runs
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	last := objs[len(objs)-1]
	cmd := cli.Command("apply", "-auto-approve")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		_, err := cloud.Kube.Get(t.Context(), last.GroupVersionKind(), last.GetNamespace(), last.GetName())
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // whether the interruption is an error is Terraform's to say
	assert.Contains(t, cli.Must(t, "plan", "-refresh=false"), "0 to add, 1 to change, 0 to destroy")
	said := cli.Must(t, "plan", "-out=on")
	assert.Contains(t, said, "0 to add, 1 to change, 0 to destroy", output.String())
	assert.Contains(t, said, "Deployment gpuplan-system/gpuplan-scheduler: .status: 0 of 2 pods up to date, 0 ready")
	cloud.RunWorkloads(t)
	assert.Contains(t, cli.Must(t, "apply", "on"), "0 added, 1 changed, 0 destroyed")
	cli.Unchanged(t)
}

// An update whose pods do not start is not done: the next plan goes on with it.
func TestUpdateThatDoesNotStart(t *testing.T) {
	cloud := acctest.StartCloud(t)
	stop := cloud.RunWorkloads(t)
	short := strings.TrimSuffix(changed, "}") + "  timeouts = { update = \"15s\" }\n}"
	again := resource.TestStep{Config: changed, PreConfig: func() { cloud.RunWorkloads(t) }}
	again.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(this, plancheck.ResourceActionUpdate)}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			{Config: config},
			{Config: short, PreConfig: stop, ExpectError: acctest.Saying("2 of 3 pods up to date, 2 ready")},
			{Config: short, PlanOnly: true, ExpectNonEmptyPlan: true},
			again,
		},
	})
}

func TestSecondSchedulerIsRefused(t *testing.T) {
	cloud := acctest.StartCloud(t)
	objs, err := deploy.Objects(deploy.Options{Image: "x"})
	require.NoError(t, err)
	require.NoError(t, cloud.Kube.ApplyAll(t.Context(), objs, nil))
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{{Config: config, PlanOnly: true,
			ExpectError: acctest.Saying("it carries no stamp of this provider. Delete it first, or take it over with `terraform import gpuplan_scheduler.NAME gpuplan-system/gpuplan-scheduler`")}},
	})
}

func TestBadInput(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	cli := acctest.StartCLI(t)
	for attribute, says := range map[string]string{
		`image = ""`:                 "must be the name of an image",
		`image = " x"`:               "must be the name of an image",
		`replicas = 0`:               "must be between 1 and 10",
		`log_level = 11`:             "must be between 0 and 10",
		`port = 65535`:               "must be between 0 and 65534",
		`unreachable_grace = "soon"`: "must be a positive duration",
		`reserve_after = "-5m"`:      "must be a positive duration",
		`reserve_after = "5"`:        "must be a positive duration",
		`stale_after = "-1s"`:        "must be a positive duration",
	} {
		t.Run(attribute, func(t *testing.T) {
			cli.Refuses(t, "resource \"gpuplan_scheduler\" \"this\" {\n"+attribute+"\n"+other(attribute)+"}", acctest.Saying(says))
		})
	}
}

// other adds the required attribute where the case is about another one.
func other(attribute string) string {
	if strings.HasPrefix(attribute, "image") {
		return ""
	}
	return "image = \"x\"\n"
}

// A plan that removes the scheduler names who runs by it or waits for it.
func TestSchedulerThatIsInUse(t *testing.T) {
	cloud := acctest.StartCloud(t)
	cloud.RunWorkloads(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, config)
	cli.Must(t, "apply", "-auto-approve")
	of := func(name, scheduler string) *corev1.Pod {
		pod := acctest.GangPod(name, name+"-0", "gpu-1", 0)
		pod.Spec.SchedulerName = scheduler
		return pod
	}
	waits, ended := of("waits", contract.SchedulerName), of("ended", contract.SchedulerName)
	waits.Spec.NodeName, waits.Annotations, waits.Status.Phase = "", nil, corev1.PodPending
	ended.Status.Phase = corev1.PodSucceeded
	for _, pod := range []*corev1.Pod{ended, of("other", "default-scheduler")} {
		cloud.Put(t, pod)
	}
	cli.Write(t, "")
	assert.NotContains(t, cli.Must(t, "plan"), "Warning")
	for _, pod := range []*corev1.Pod{waits, of("runs", contract.SchedulerName)} {
		cloud.Put(t, pod)
	}
	assert.Contains(t, acctest.Unwrapped(cli.Must(t, "plan")), "The plan removes the scheduler, by which these run or wait: default/runs, default/waits.")
	cli.Write(t, config)
	assert.NotContains(t, cli.Must(t, "plan"), "Warning")
}
