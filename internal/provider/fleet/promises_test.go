package fleet_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

var (
	fleets     = flag.Int("promises.fleets", 2, "generated fleets on the local platform")
	fleetsSeed = flag.Uint64("promises.seed", 1, "seed of the first of them")
)

var (
	members  = []string{"member-1", "member-2"}
	bindings = schema.GroupVersionResource{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion, Resource: contract.ResourceBindingResource}
)

// live is a generated fleet on the local platform: pools, gangs of others that run there, a policy, and jobs, each after the ones before it.
type live struct {
	*rand.Rand
	sizes  map[string]int
	policy string
	jobs   []liveJob
}

type liveJob struct {
	name             string
	workers, perEach int
}

func generate(seed uint64) live {
	g := live{Rand: rand.New(rand.NewPCG(seed, 1)), sizes: map[string]int{}}
	for _, name := range members {
		g.sizes[name] = 1 + g.IntN(2)
	}
	affinities := []string{
		``, `cluster_affinity = { cluster_names = ["member-2"] }`, `cluster_affinity = { exclude = ["member-1"] }`,
		`cluster_affinities = [{ affinity_name = "a", cluster_names = ["member-2"] }, { affinity_name = "b", cluster_names = ["member-1"] }]`,
	}
	weights := []string{``, `weight_preference = { static_weight_list = [{ target_cluster = { cluster_names = ["member-2"] }, weight = 2 }, { target_cluster = { cluster_names = ["member-1"] }, weight = 1 }] }`}
	g.policy = fmt.Sprintf("placement = {\n replica_scheduling = { replica_scheduling_type = \"Divided\", custom_scheduling_type = \"Gang\"\n%s }\n%s\n}", weights[g.IntN(len(weights))], affinities[g.IntN(len(affinities))])
	for i := range 1 + g.IntN(4) {
		g.jobs = append(g.jobs, liveJob{fmt.Sprintf("j%d", i), 1 + g.IntN(4), 1 + g.IntN(3)})
	}
	return g
}

// config is the fleet in Terraform. Jobs that are refused, or wait, are made all the same, without a check and without waiting for them.
func (g live) config(t *testing.T, jobs []liveJob, left map[string]bool) string {
	var b strings.Builder
	for _, name := range members {
		b.WriteString(strings.Replace(alias(t, name), "size          = 1", fmt.Sprintf("size          = %d", g.sizes[name]), 1))
	}
	b.WriteString(strings.Replace(gangs, `placement          = { replica_scheduling = { replica_scheduling_type = "Divided", custom_scheduling_type = "Gang" } }`, g.policy, 1))
	var before []string
	for _, j := range jobs {
		after, check := "", ""
		if len(before) > 0 {
			after = fmt.Sprintf("after = [%s]", strings.Join(before, ", "))
		}
		if left[j.name] {
			check = "placement_check = \"off\"\n  wait_for = \"none\""
		} else {
			before = append(before, fmt.Sprintf("gpuplan_training_job.%s.placed", j.name))
		}
		fmt.Fprintf(&b, "resource \"gpuplan_training_job\" %[1]q {\n  name = %[1]q\n  framework = \"pytorch\"\n  image = \"train:1\"\n  fleet = local.fleet\n  roles = { worker = { replicas = %[2]d, gpus = %[3]d } }\n  %[4]s\n  %[5]s\n}\n", j.name, j.workers, j.perEach, after, check)
	}
	return b.String()
}

// planned is what a plan says of a job.
type planned struct {
	Cluster string            `json:"planned_cluster"`
	Place   map[string]string `json:"planned_placement"`
}

// read reads the attributes of jobs from a plan or a state.
func read(t *testing.T, cli *acctest.CLI, args ...string) map[string]planned {
	t.Helper()
	var shown struct {
		Changes []struct {
			Type   string `json:"type"`
			Name   string `json:"name"`
			Change struct {
				After planned `json:"after"`
			} `json:"change"`
		} `json:"resource_changes"`
	}
	require.NoError(t, json.Unmarshal([]byte(cli.Must(t, append([]string{"show", "-json"}, args...)...)), &shown))
	jobs := map[string]planned{}
	for _, c := range shown.Changes {
		if c.Type == "gpuplan_training_job" {
			jobs[c.Name] = c.Change.After
		}
	}
	return jobs
}

// gangPods says how many pods of a job have a node in each cluster.
func gangPods(t *testing.T, clients map[string]*kube.Client, name string) map[string]int {
	t.Helper()
	bound := map[string]int{}
	for cluster, client := range clients {
		pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
		require.NoError(t, err)
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				bound[cluster]++
			}
		}
	}
	return bound
}

// rest is long enough for gangs that have room to be bound, which takes less than a second: a gang that waits has no last sign of it.
func rest() { time.Sleep(5 * time.Second) }

// until waits until something is true.
func until(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	require.NoError(t, err, what)
}

// TestPromisesOfAFleet plans and applies generated fleets through Terraform: each job of which the plan names the cluster and the GPUs runs there, and one that is refused has no place. Then
// Karmada's own scheduler gets the same jobs, and what becomes of them there is counted.
func TestPromisesOfAFleet(t *testing.T) {
	hub, cli := onFleet(t)
	clients := map[string]*kube.Client{}
	for _, name := range members {
		clients[name] = member(t, name)
	}
	var promised, refused, split, waiting int
	for i := range *fleets {
		g := generate(*fleetsSeed + uint64(i))
		cli.Write(t, g.config(t, nil, nil))
		cli.Must(t, "apply", "-auto-approve")
		var others []*unstructured.Unstructured
		for n := range g.IntN(4) { // gangs of others, of which not all need fit
			in := members[g.IntN(len(members))]
			workers := 1 + g.IntN(3)
			other := rawJob(t, fmt.Sprintf("other-%d-%d", i, n), workers, 1+g.IntN(3))
			made, err := clients[in].Create(t.Context(), other)
			require.NoError(t, err)
			others = append(others, made)
			until(t, "the others have all their pods", func() error {
				pods, err := clients[in].Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + other.GetName()})
				if err == nil && len(pods.Items) < workers {
					err = fmt.Errorf("%d pods", len(pods.Items))
				}
				return err
			})
			defer func() { _ = clients[in].DeleteObject(t.Context(), made) }()
		}
		rest() // those that have room are bound by then
		no := map[string]bool{}
		for { // jobs that do not fit are refused, or told to wait, one after the other
			cli.Write(t, g.config(t, g.jobs, no))
			said, err := cli.Run("plan", "-no-color", "-out", "fleet.plan")
			before := len(no)
			for _, j := range g.jobs {
				for _, text := range []string{"has a place in no cluster of the fleet", "has room in the fleet, but not beside"} {
					no[j.name] = no[j.name] || strings.Contains(acctest.Unwrapped(said), "Job default/"+j.name+" "+text)
				}
				if !no[j.name] {
					delete(no, j.name)
				}
			}
			if err == nil && len(no) == before {
				break
			}
			require.Greater(t, len(no), before, said)
		}
		says := read(t, cli, "fleet.plan")
		if said, err := cli.Run("apply", "-auto-approve", "fleet.plan"); err != nil {
			t.Logf("the plan: %+v", says)
			for name, client := range clients {
				pods, _ := client.Typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
				for _, pod := range pods.Items {
					t.Logf("%s: pod %s on %q: %s", name, pod.Name, pod.Spec.NodeName, pod.Annotations[contract.AllocationAnnotation])
				}
			}
			require.NoError(t, err, said)
		}
		for _, j := range g.jobs {
			at := fmt.Sprintf("fleet %d, job %s of %d members with %d GPUs, policy %s, sizes %v", *fleetsSeed+uint64(i), j.name, j.workers, j.perEach, g.policy, g.sizes)
			if no[j.name] {
				refused++
				assert.Empty(t, gangPods(t, clients, j.name), "it has room: %s", at)
				continue
			}
			require.NotEmpty(t, says[j.name].Cluster, "the plan promises: %s", at)
			promised++
			state := cli.Must(t, "state", "show", "-no-color", "gpuplan_training_job."+j.name)
			fields := strings.Join(strings.Fields(state), " ")
			assert.Contains(t, fields, fmt.Sprintf("cluster = %q", says[j.name].Cluster), at)
			assert.Contains(t, fields, "placement_as_planned = true", at)
			assert.Equal(t, map[string]int{says[j.name].Cluster: j.workers}, gangPods(t, clients, j.name), at)
		}
		cli.Write(t, g.config(t, nil, nil))
		cli.Must(t, "apply", "-auto-approve")
		s, l := g.beside(t, hub, clients, no)
		split, waiting = split+s, waiting+l
		for k := range others {
			for _, client := range clients {
				_ = client.DeleteObject(t.Context(), others[k])
			}
		}
		until(t, "the others are gone", func() error {
			for name, client := range clients {
				pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
				if err != nil || len(pods.Items) > 0 {
					return fmt.Errorf("%s has %d pods: %w", name, len(pods.Items), err)
				}
			}
			return nil
		})
	}
	cli.Must(t, "destroy", "-auto-approve")
	t.Logf("%d fleets: %d jobs run as the plan has promised, %d were refused or told to wait, and have no room; of the jobs that run Karmada's scheduler splits %d among clusters, and %d wait in theirs", *fleets, promised, refused, split, waiting)
	assert.Positive(t, promised)
}

// beside gives the jobs that ran to Karmada's scheduler, and counts those that it sends to several clusters, and those that it sends to one in
// which they do not run.
func (g live) beside(t *testing.T, hub *kube.Client, clients map[string]*kube.Client, no map[string]bool) (split, waiting int) {
	t.Helper()
	policy := object(t, `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: beside, namespace: default},
  spec: {schedulerName: default-scheduler, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}], placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}}}`)
	made, err := hub.Create(t.Context(), policy)
	require.NoError(t, err)
	var jobs []*unstructured.Unstructured
	for _, j := range g.jobs {
		if no[j.name] {
			continue
		}
		o, err := hub.Create(t.Context(), rawJob(t, j.name, j.workers, j.perEach))
		require.NoError(t, err)
		jobs = append(jobs, o)
		until(t, "Karmada's scheduler sends "+j.name, func() error {
			binding, err := hub.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), j.name+"-pytorchjob", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if to, _, _ := unstructured.NestedSlice(binding.Object, "spec", "clusters"); len(to) == 0 {
				return fmt.Errorf("%v", binding.Object["status"])
			}
			return nil
		})
	}
	rest()
	for _, j := range g.jobs {
		if no[j.name] {
			continue
		}
		binding, err := hub.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), j.name+"-pytorchjob", metav1.GetOptions{})
		require.NoError(t, err)
		to, _, _ := unstructured.NestedSlice(binding.Object, "spec", "clusters")
		bound := gangPods(t, clients, j.name)
		switch {
		case len(to) > 1 || len(bound) > 1:
			split++
		case len(bound) == 0:
			waiting++
		}
	}
	for _, o := range append(jobs, made) {
		require.NoError(t, hub.DeleteObject(t.Context(), o))
	}
	until(t, "the jobs are gone", func() error {
		for name, client := range clients {
			for _, j := range jobs {
				if _, err := client.Get(t.Context(), pyTorchJob, "default", j.GetName()); !kube.IsNotFound(err) {
					return fmt.Errorf("%s has %s: %w", name, j.GetName(), err)
				}
			}
		}
		return nil
	})
	return split, waiting
}

// rawJob is a gang of workers as kubectl would make it.
func rawJob(t *testing.T, name string, workers, gpus int) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: %s, namespace: default}, spec: {pytorchReplicaSpecs: {Worker: {replicas: %d, template: {
  metadata: {labels: {gpu-topology: %[1]s, gpu-topology-replica: "%[2]d"}}, spec: {schedulerName: gpuplan-scheduler, containers: [{name: pytorch, image: "train:1", resources: {limits: {aliyun.com/gpu: "%[3]d"}}}]}}}}}}`, name, workers, gpus))
}
