package trainingjob_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// startHub is a hub with a policy p and a member cluster m, which cannot be reached.
func startHub(t *testing.T) *acctest.Cloud {
	t.Helper()
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	fromYAML := func(text string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		return object
	}
	for _, crd := range []struct{ kind, plural, group, version, scope string }{
		{contract.KarmadaClusterKind, contract.KarmadaClusterResource, contract.KarmadaClusterGroup, contract.KarmadaClusterVersion, "Cluster"},
		{contract.PropagationPolicyKind, "propagationpolicies", contract.KarmadaPolicyGroup, "v1alpha1", "Namespaced"},
		{contract.ResourceBindingKind, contract.ResourceBindingResource, contract.KarmadaWorkGroup, contract.ResourceBindingVersion, "Namespaced"},
	} {
		cloud.API.Put(fromYAML(fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[3]s},
  spec: {group: %[3]s, scope: %[5]s, names: {kind: %[1]s, plural: %[2]s}, versions: [{name: %[4]s, served: true, storage: true}]}}`, crd.kind, crd.plural, crd.group, crd.version, crd.scope)))
	}
	cloud.API.Put(fromYAML(`{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: p, namespace: default},
  spec: {schedulerName: gpuplan-fleet-scheduler, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}]}}`))
	cloud.API.Put(fromYAML(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m}, spec: {},
  status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: r, message: ""}], apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]}}`))
	return cloud
}

// ofFleet is a job of that fleet, with that attribute and more.
func ofFleet(fleet, more string) string {
	return fmt.Sprintf(`
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "j" {
  name            = "j"
  framework       = "pytorch"
  fleet           = { %s }
  image           = "train:1"
  placement_check = "off"
  wait_for        = "none"
  roles           = { worker = { replicas = 1, gpus = 8 } }
  %s
}
`, fleet, more)
}

const offered = `, clusters = { "m" = { pools = [gpuplan_node_pool.v100.capacity] } }`

// A job of a fleet keeps to its pools, whoever has taken them out.
func TestPoolsOfAFleetThatAreLeftOut(t *testing.T) {
	startHub(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, ofFleet(`policy = "p"`+offered, ""))
	cli.Must(t, "apply", "-auto-approve")
	for _, ignored := range []string{"all", "[fleet]"} {
		cli.Write(t, ofFleet(`policy = "p"`+offered, "lifecycle { ignore_changes = "+ignored+" }"))
		assert.Contains(t, cli.Must(t, "plan"), "No changes", ignored)
	}
	cli.Write(t, ofFleet(`policy = "p"`, ""))
	assert.Contains(t, cli.Must(t, "plan"), "0 to add, 1 to change, 0 to destroy", "it need not leave its pools")
}

// What is unknown in a plan leaves open where the job is placed.
func TestPolicyThatIsUnknown(t *testing.T) {
	startHub(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, ofFleet(`policy = terraform_data.p.output`+offered, "")+`resource "terraform_data" "p" { input = "p" }`)
	cli.Must(t, "apply", "-auto-approve")
}

// A job that goes on is given no policy that the hub does not have.
func TestAnotherPolicyOfAJob(t *testing.T) {
	startHub(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, ofFleet(`policy = "p"`, ""))
	cli.Must(t, "apply", "-auto-approve")
	cli.Refuses(t, ofFleet(`policy = "q"`, ""), acctest.Saying("The hub has no policy default/q"))
}

// A job that leaves its fleet is another one, and the copy that a hub keeps in a member cluster is no job of that cluster.
func TestJobThatLeavesItsFleet(t *testing.T) {
	cloud := startHub(t)
	cli := acctest.StartCLI(t)
	cli.Write(t, ofFleet(`policy = "p"`, ""))
	cli.Must(t, "apply", "-auto-approve")
	without := strings.Replace(ofFleet("", ""), "fleet           = {  }", "", 1)
	cli.Write(t, without)
	assert.Contains(t, cli.Must(t, "plan"), "1 to add, 0 to change, 1 to destroy")

	obj, err := cloud.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	obj.SetLabels(map[string]string{contract.OwnerLabel: obj.GetLabels()[contract.OwnerLabel], contract.KarmadaManagedLabel: "true"})
	cloud.API.Put(obj)
	const refusal = "PyTorchJob default/j was sent to this cluster by the hub of a fleet, which brings it back when it is deleted here"
	for _, command := range [][]string{{"plan"}, {"destroy", "-auto-approve"}, {"destroy", "-auto-approve", "-refresh=false"}} {
		said, err := cli.Run(command...)
		require.Error(t, err, said)
		assert.Contains(t, acctest.Unwrapped(said), refusal)
	}
	cli.Must(t, "state", "rm", "gpuplan_training_job.j")
	said, err := cli.Run("apply", "-auto-approve")
	require.Error(t, err, said)
	assert.Contains(t, acctest.Unwrapped(said), refusal)
}

// startFleet is a hub as startHub makes it, whose member cluster m can be reached.
func startFleet(t *testing.T) (hub, member *acctest.Cloud) {
	t.Helper()
	member = acctest.StartCloud(t)
	serveJobs(member)
	hub = startHub(t) // whose account and kubeconfig count
	put(t, hub, `{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: m}, spec: {apiEndpoint: %q, secretRef: {namespace: default, name: m}},
  status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z", reason: r, message: ""}], apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]}}`,
		member.API.Config().Host)
	put(t, hub, `{apiVersion: v1, kind: Secret, metadata: {name: m, namespace: default}, data: {token: dA==}}`)
	return hub, member
}

// put has an API server have an object.
func put(t *testing.T, on *acctest.Cloud, text string, of ...any) {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, text, of...), &object.Object))
	on.API.Put(object)
}

// uidOnHub is the UID of job j on a hub.
func uidOnHub(t *testing.T, hub *acctest.Cloud) string {
	t.Helper()
	live, err := hub.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
	require.NoError(t, err)
	require.NotEmpty(t, live.GetUID())
	return string(live.GetUID())
}

// bring has a member cluster have job j from the object of a hub, with a status, whether the Karmada there looks after it or not.
func bring(t *testing.T, member *acctest.Cloud, managed bool, from, status string) {
	t.Helper()
	put(t, member, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, namespace: default, labels: {%s: "%t"}, annotations: {%s: %q}}, spec: {pytorchReplicaSpecs: {Worker: {replicas: 1, template: {}}}}, status: {%s}}`,
		contract.KarmadaManagedLabel, managed, contract.KarmadaTemplateAnnotation, from, status)
}

// What a cluster says of another job of the name, an earlier one or that of another fleet, says nothing of the job.
func TestStatusOfAnotherJobOfTheName(t *testing.T) {
	for name, test := range map[string]struct {
		managed bool
		from    string // "" for the object of the hub
		status  string
	}{
		"it itself":                        {managed: true, status: "Succeeded"},
		"of another fleet, or before":      {managed: true, from: "elsewhere", status: "Pending"},
		"of someone in the member cluster": {status: "Pending"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, member := startFleet(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, ofFleet(`policy = "p"`, ""))
			cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_training_job.j")
			put(t, hub, `{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: j-pytorchjob, namespace: default},
  spec: {clusters: [{name: m}], resource: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: default, name: j}}}`)
			from := test.from
			if from == "" {
				from = uidOnHub(t, hub)
			}
			bring(t, member, test.managed, from, `conditions: [{type: Succeeded, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]`)
			cli.Must(t, "refresh")
			assert.Contains(t, cli.Must(t, "state", "show", "gpuplan_training_job.j"), `"`+test.status+`"`)
		})
	}
}

// A fleet takes jobs of all frameworks but TrainJobs, of which the plan says what to make instead.
func TestFrameworksOfAFleet(t *testing.T) {
	hub := startHub(t)
	put(t, hub, `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: all, namespace: default},
  spec: {schedulerName: gpuplan-fleet-scheduler, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}, {apiVersion: kubeflow.org/v1, kind: MPIJob}, {apiVersion: batch/v1, kind: Job},
    {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet}, {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob}]}}`)
	cli := acctest.StartCLI(t)
	for framework, refused := range map[job.Framework]string{
		job.PyTorch: "", job.MPI: "", job.Batch: "", job.JobSet: "",
		job.TrainJob: `framework is not for jobs with fleet: a TrainJob has its pods in a TrainingRuntime, which no policy sends along; with framework = "jobset" the same roles run in a fleet.`,
	} {
		t.Run(string(framework), func(t *testing.T) {
			config := strings.Replace(ofFleet(`policy = "all"`, ""), `"pytorch"`, fmt.Sprintf("%q", framework), 1)
			if framework == job.MPI {
				config = strings.Replace(config, "roles           = {", "roles           = { launcher = {},", 1)
			}
			if refused != "" {
				cli.Refuses(t, config, acctest.Saying(refused))
				return
			}
			cli.Write(t, config)
			assert.Contains(t, cli.Must(t, "plan"), "2 to add")
		})
	}
}

// A plan looks in the clusters to which a job may go for what its pods name, unless that comes along with the job.
func TestWhatMemberClustersLack(t *testing.T) {
	const (
		account = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: trainer, namespace: default}}`
		claim   = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default}, spec: {accessModes: [ReadWriteMany]}, status: {phase: Bound}}`
		class   = `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1}`
		secret  = `{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: default}, type: kubernetes.io/dockerconfigjson}`
		all     = `
  service_account    = "trainer"
  priority_class     = "high"
  image_pull_secrets = ["registry"]
  volumes            = { data = { claim = "data", mount_path = "/data" } }`
		policyOf = `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: p, namespace: default},
  spec: {schedulerName: gpuplan-fleet-scheduler, propagateDeps: %t, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}], placement: {clusterAffinity: {clusterNames: [%s]}}}}`
	)
	missing := func(kind, name string) string {
		return fmt.Sprintf("Job default/j needs the %s %s, which these member clusters do not have now: m. The job does not run there before it is there.", kind, name)
	}
	four := []string{missing("PriorityClass", "high"), missing("ServiceAccount", "default/trainer"), missing("Secret", "default/registry"), missing("PersistentVolumeClaim", "default/data")}
	for name, test := range map[string]struct {
		onHub, there []string
		dependencies bool
		policy       string
		says, silent []string
	}{
		"nothing is there":          {policy: "m", says: append(four, "Create it there, or have the policy keep the job from there.")},
		"all is there":              {policy: "m", there: []string{account, claim, class, secret}, silent: four},
		"what comes along":          {policy: "m", onHub: []string{account, claim, class, secret}, dependencies: true, says: four[:1], silent: four[1:]},
		"what could come along":     {policy: "m", onHub: []string{account, claim, class, secret}, says: append(four, "The hub has it: with propagate_deps = true policy p sends it along.")},
		"the job does not go there": {policy: "other", silent: four},
	} {
		t.Run(name, func(t *testing.T) {
			hub, member := startFleet(t)
			put(t, hub, policyOf, test.dependencies, test.policy)
			for _, text := range test.onHub {
				put(t, hub, "%s", text)
			}
			for _, text := range test.there {
				put(t, member, "%s", text)
			}
			cli := acctest.StartCLI(t)
			config := strings.Replace(ofFleet(`policy = "p"`, all), `"off"`, `"warn"`, 1)
			cli.Write(t, config)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			for _, text := range test.says {
				assert.Contains(t, said, text)
			}
			for _, text := range test.silent {
				assert.NotContains(t, said, text)
			}
		})
	}
}

// What the hub shows of a job that has left a cluster, that it has failed there, say, says nothing of what becomes of it.
func TestStatusOfAJobThatGoesOn(t *testing.T) {
	const of = `conditions: [{type: %s, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]`
	failed, succeeded, running := fmt.Sprintf(of, "Failed"), fmt.Sprintf(of, "Succeeded"), fmt.Sprintf(of, "Running")+", replicaStatuses: {Worker: {active: 1}}"
	for name, test := range map[string]struct {
		shown, spec, told, status string
	}{
		"it has failed in its cluster":           {failed, "clusters: [{name: m}]", "{clusterName: m, status: {" + failed + "}}", "Failed"},
		"it has failed elsewhere":                {failed, "clusters: [{name: m}]", "{clusterName: other, status: {" + failed + "}}", "Pending"},
		"it has failed, and waits for a cluster": {failed, "", "", "Pending"},
		"it ran, and waits for a cluster":        {running, "", "", "Pending"},
		"it has succeeded":                       {succeeded, "", "", "Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, _ := startFleet(t)
			cli := acctest.StartCLI(t)
			const course = `
data "gpuplan_training_job" "j" {
  id         = gpuplan_training_job.j.id
  depends_on = [gpuplan_training_job.j]
}
`
			cli.Write(t, ofFleet(`policy = "p"`, "")+course)
			cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_training_job.j")
			put(t, hub, `{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: j-pytorchjob, namespace: default},
  spec: {%s, resource: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: default, name: j}}, status: {aggregatedStatus: [%s]}}`, cmp.Or(test.spec, "clusters: []"), test.told)
			live, err := hub.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
			require.NoError(t, err)
			status := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte("{"+test.shown+"}"), &status))
			live.Object["status"] = status
			hub.API.Put(live)
			cli.Must(t, "refresh")
			for _, of := range []string{"gpuplan_training_job.j", "data.gpuplan_training_job.j"} {
				assert.Regexp(t, `status +(=|: ) *"`+test.status+`"`, cli.Must(t, "state", "show", of), of)
			}
		})
	}
}

// A destroy waits until a job is gone from the cluster that it is in, or has left, where the hub deletes it; what a policy leaves there,
// or is someone else's, it does not wait for.
func TestDestroyOfAJobOfAFleet(t *testing.T) {
	for name, test := range map[string]struct {
		cluster, sent string
		managed       bool
		from          string // "" for the object of the hub
		says          string // "" for nothing
	}{
		"left by the policy":     {cluster: "m", says: "Job default/j is deleted on the hub, and stays in cluster m"},
		"gone elsewhere":         {sent: "m"},
		"it may run still":       {sent: "lost", says: `The fleet has no cluster "lost". Job default/j is deleted on the hub`},
		"the hub has it deleted": {cluster: "m", managed: true},
		"on its way from there":  {sent: "m", managed: true},
		"of another fleet":       {cluster: "m", managed: true, from: "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, member := startFleet(t)
			cli := acctest.StartCLI(t)
			cli.Write(t, ofFleet(`policy = "p"`, ""))
			cli.Must(t, "apply", "-auto-approve", "-target=gpuplan_training_job.j")

			clusters := "[]"
			if test.cluster != "" {
				clusters = "[{name: " + test.cluster + "}]"
			}
			put(t, hub, `{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: j-pytorchjob, namespace: default, annotations: {%s: %q}},
  spec: {clusters: %s, resource: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: default, name: j}}}`, contract.SentAnnotation, test.sent, clusters)
			if test.from == "" {
				test.from = uidOnHub(t, hub)
			}
			bring(t, member, test.managed, test.from, "")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for test.managed && test.from != "elsewhere" { // the hub has it deleted once its own is
					if _, err := hub.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j"); err != nil {
						time.Sleep(2 * time.Second)
						member.API.Remove(job.PyTorch.GVK(), "default", "j")
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
			said := acctest.Unwrapped(cli.Must(t, "destroy", "-auto-approve"))
			<-gone
			_, err := member.Kube.Get(t.Context(), job.PyTorch.GVK(), "default", "j")
			assert.Equal(t, test.managed && test.from != "elsewhere", err != nil, "%v", err)
			if test.says == "" {
				assert.Empty(t, warnings(said))
			} else {
				assert.Contains(t, said, test.says)
			}
		})
	}
}
