package fleet

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/kubetest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	providercluster "github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/gangreservation"
)

var (
	fleets = flag.Int("agreement.fleets", 15, "generated fleets for which plan and scheduler are compared")
	seed   = flag.Uint64("agreement.seed", 1, "seed of the first of them")
)

// world is a generated fleet, of which the plan reads the objects from API servers and the scheduler has pictures.
type world struct {
	*rand.Rand
	*controller
	plan  *fleetplan.Fleet
	given map[string]fleetplan.Given
	views map[string]*snapshot.View
	// described says what there is, for who reads a failure.
	described []string
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func (w *world) pick(from ...string) string { return from[w.IntN(len(from))] }

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), given: map[string]fleetplan.Given{}, views: map[string]*snapshot.View{}}
	hub := kubetest.Start(t)
	hub.Put(object(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: clusters.cluster.karmada.io},
  spec: {group: cluster.karmada.io, scope: Cluster, names: {kind: Cluster, plural: clusters}, versions: [{name: v1alpha1, served: true, storage: true}]}}`))
	client, err := kube.New(hub.Config())
	require.NoError(t, err)
	w.plan = fleetplan.New(client, func() bool { return false }, func(map[string]string) bool { return false })
	w.controller = newController(t.Context(), &kube.Client{Typed: client.Typed, Dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{bindings: "ResourceBindingList"})})
	for i := range 2 + w.IntN(4) {
		w.addMember(t, hub, fmt.Sprintf("m%d", i))
	}
	return w
}

// addMember adds a cluster, which may not be ready, with a taint, labels and a region, of one to three nodes.
func (w *world) addMember(t *testing.T, hub *kubetest.Server, name string) {
	t.Helper()
	server := kubetest.Start(t)
	m := &member{name: name, state: clustercache.New(), held: map[string]toCome{}, reservations: map[string]*contract.GangReservation{}}
	var err error
	m.client, err = kube.New(server.Config())
	require.NoError(t, err)
	m.client.Dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gangreservation.Resource: "GangReservationList"})
	m.synced.Store(true)
	ready, taints := "True", ""
	if w.chance(8) {
		ready = "False"
	}
	if w.chance(12) {
		taints = `{key: away, effect: NoSchedule}`
	}
	cluster := object(t, fmt.Sprintf(`{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: %s, labels: {tier: %s}},
  spec: {apiEndpoint: "%s", secretRef: {namespace: fleet, name: %[1]s}, region: %[4]s, taints: [%[5]s]},
  status: {conditions: [{type: Ready, status: "%[6]s", lastTransitionTime: "2026-01-01T00:00:00Z", reason: r, message: ""}], apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]}}`,
		name, w.pick("fast", "slow"), server.Config().Host, w.pick("cn-hangzhou", "cn-shanghai"), taints, ready))
	hub.Put(object(t, `{apiVersion: v1, kind: Secret, metadata: {name: `+name+`, namespace: fleet}, data: {token: eA==}}`))
	hub.Put(cluster)
	w.described = append(w.described, fmt.Sprintf("%s: ready %s, taints [%s], labels %v, region %v", name, ready, taints, cluster.GetLabels(), cluster.Object["spec"].(map[string]any)["region"]))
	put := func(o runtime.Object) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		require.NoError(t, err)
		server.Put(&unstructured.Unstructured{Object: content})
	}
	for i := range 1 + w.IntN(3) {
		node := fmt.Sprintf("%s-n%d", name, i)
		if w.chance(40) {
			node = fmt.Sprintf("n%d", i) // as in other clusters
		}
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{contract.NodePoolNameLabel: "v100", contract.NodeModeLabel: "topology", contract.InstanceTypeLabel: "ecs.gn6v-c10g1.20xlarge"}},
			Spec:       corev1.NodeSpec{Unschedulable: w.chance(8)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, Capacity: corev1.ResourceList{
				contract.ResourceTopologyGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("80"), corev1.ResourceMemory: resource.MustParse("300Gi"), corev1.ResourcePods: resource.MustParse("100")}},
		}
		if w.chance(8) {
			n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
		}
		n.Status.Allocatable = n.Status.Capacity
		put(n)
		_, err = m.state.SetNode(n)
		require.NoError(t, err)
		taken := w.Perm(8)[:w.IntN(7)]
		for _, index := range taken {
			record, err := contract.Allocation{Node: node, GPUs: []int{index}}.Annotations()
			require.NoError(t, err)
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", node, index), UID: types.UID(fmt.Sprintf("%s-%d", node, index)), Annotations: record},
				Spec: corev1.PodSpec{NodeName: node, SchedulerName: contract.SchedulerName, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("1")}, Requests: corev1.ResourceList{contract.ResourceTopologyGPU: resource.MustParse("1")}}}}},
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			}
			put(pod)
			m.state.SetPod(pod)
		}
		w.described = append(w.described, fmt.Sprintf("  %s: cordoned %t, taints %v, GPUs %v taken", node, n.Spec.Unschedulable, n.Spec.Taints, taken))
	}
	if w.chance(25) {
		most := w.IntN(9)
		server.Put(object(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[1]s},
  spec: {group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[2]s}, versions: [{name: %[4]s, served: true, storage: true}]}}`, contract.QuotaTreeGroup, contract.QuotaTreeResource, contract.QuotaTreeKind, contract.QuotaTreeVersion)))
		tree := object(t, fmt.Sprintf(`{apiVersion: %s/%s, kind: %s, metadata: {namespace: %s, name: %s, creationTimestamp: "2026-01-01T00:00:00Z"},
  spec: {root: {name: root, min: {aliyun.com/gpu: 100}, max: {aliyun.com/gpu: 100}, children: [{name: jobs, max: {aliyun.com/gpu: %d}, namespaces: [jobs]}]}}}`,
			contract.QuotaTreeGroup, contract.QuotaTreeVersion, contract.QuotaTreeKind, contract.QuotaTreeNamespace, contract.QuotaTreeName, most))
		server.Put(tree)
		_, err := m.state.SetQuotaTree(tree)
		require.NoError(t, err)
		w.described = append(w.described, fmt.Sprintf("  quota of at most %d GPUs", most))
	}
	w.mu.Lock()
	w.members[name] = m
	w.mu.Unlock()
	w.setCluster(t.Context(), cluster)
	client, err := kube.New(server.Config())
	require.NoError(t, err)
	seen, err := providercluster.New(client, func() bool { return false }).Snapshot(t.Context())
	require.NoError(t, err)
	view := seen.View()
	w.views[name] = view
	if w.chance(85) { // of others nobody knows before apply what they offer
		var given fleetplan.Given
		for _, node := range view.Nodes() {
			n, _ := view.Node(node)
			given.Nodes, given.Occupants = append(given.Nodes, n), append(given.Occupants, view.Pods(node)...)
		}
		w.given[name] = given
	}
}

// rules are those of a policy.
func (w *world) rules() string {
	affinity := func() string {
		return w.pick(`{}`, `{clusterNames: [m0, m2]}`, `{exclude: [m1]}`, `{labelSelector: {matchLabels: {tier: fast}}}`, `{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [cn-shanghai]}]}}`)
	}
	var parts []string
	switch w.IntN(4) {
	case 0:
		parts = append(parts, "clusterAffinity: "+affinity())
	case 1:
		parts = append(parts, fmt.Sprintf("clusterAffinities: [%s, %s]", strings.Replace(affinity(), "{", "{affinityName: a, ", 1), strings.Replace(affinity(), "{", "{affinityName: b, ", 1)))
	}
	if w.chance(30) {
		parts = append(parts, fmt.Sprintf("replicaScheduling: {weightPreference: {staticWeightList: [{targetCluster: %s, weight: %d}, {targetCluster: %s, weight: %d}]}}", affinity(), 1+w.IntN(3), affinity(), 1+w.IntN(3)))
	}
	if w.chance(30) {
		parts = append(parts, "clusterTolerations: [{key: away, operator: Exists}]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// spec is a gang.
func (w *world) spec(name string) job.Spec {
	s := job.Spec{Namespace: "jobs", Name: name, Framework: job.PyTorch, Mode: job.Topology, Gang: true, SchedulerName: contract.SchedulerName, Roles: map[string]job.Role{
		"master": {Replicas: 1, Image: "i", GPUs: int64(w.IntN(3))},
		"worker": {Replicas: int32(1 + w.IntN(4)), Image: "i", GPUs: int64(1 + w.IntN(4))},
	}}
	if w.chance(20) {
		s.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	}
	return s.Complete()
}

// What a plan says of jobs that come one after the other is what the scheduler of the fleet does: to which cluster they go, and on which GPUs.
func TestAgreement(t *testing.T) {
	sent, refused, promised, elsewhere := 0, 0, 0, 0
	for i := range *fleets {
		t.Run(fmt.Sprint(*seed+uint64(i)), func(t *testing.T) {
			w := newWorld(t, *seed+uint64(i))
			rules := w.rules()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("policy %s\n%s", rules, strings.Join(w.described, "\n"))
				}
			})
			w.plan.PlanPolicy("jobs", "p", object(t, `{apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: p, namespace: jobs},
  spec: {schedulerName: gpuplan-fleet-scheduler, resourceSelectors: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob}], placement: `+rules+`}}`))
			policy, err := w.plan.Policy(t.Context(), "jobs", "p")
			require.NoError(t, err)
			var before []string
			var specs []job.Spec
			var answers []fleetplan.Answer
			for k := range 1 + w.IntN(4) {
				spec := w.spec(fmt.Sprintf("j%d", k))
				o, err := spec.Render()
				require.NoError(t, err)
				pods, err := job.Expected(o)
				require.NoError(t, err)
				gang, err := spec.PlannerGang(nil)
				require.NoError(t, err)
				answer, err := w.plan.Plan(t.Context(), fleetplan.Job{ID: spec.ID(), Kind: o.GroupVersionKind(), Gang: gang, Pods: pods, Policy: policy, Given: w.given, After: before})
				require.NoError(t, err)
				before, specs, answers = append(before, spec.ID()), append(specs, spec), append(answers, answer)
			}
			for k, answer := range answers {
				spec := specs[k]
				if answer.Promised {
					record := assignment.Record(answer.Place.Members)
					record.Cluster = answer.Place.Cluster
					var err error
					spec.Planned, err = record.Text()
					require.NoError(t, err)
					promised++
				}
				cluster, members := w.schedule(t, spec, rules)
				want := ""
				if answer.Actual != nil {
					want = answer.Actual.Cluster
				}
				require.Equal(t, want, cluster, "job %s %+v; findings %+v", spec.Name, spec.Roles, answer.Findings)
				if cluster == "" {
					refused++
					require.NotEmpty(t, answer.Findings, "the plan says so")
					continue
				}
				sent++
				assert.Equal(t, answer.Actual.Members, members)
				if answer.Promised {
					assert.Equal(t, answer.Place.Cluster, cluster)
					assert.Equal(t, answer.Place.Members, members)
				} else if answer.Place != nil {
					elsewhere++
				}
			}
		})
	}
	t.Logf("%d jobs sent, %d of them as promised, %d elsewhere than by the capacity of their pools; %d refused", sent, promised, elsewhere, refused)
	if *fleets >= 100 {
		assert.Greater(t, promised, sent/4)
		assert.Positive(t, elsewhere)
		assert.Positive(t, refused)
	}
}

// schedule has the scheduler decide about a job, and returns the cluster that it asks to keep the place, "" for none, and the place.
func (w *world) schedule(t *testing.T, spec job.Spec, rules string) (cluster string, members []assignment.Model) {
	t.Helper()
	o, err := spec.Render()
	require.NoError(t, err)
	o.SetUID(types.UID(spec.Name))
	pods, err := job.Expected(o)
	require.NoError(t, err)
	binding := object(t, fmt.Sprintf(`{apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding, metadata: {name: %s, namespace: jobs, resourceVersion: "1"},
  spec: {schedulerName: gpuplan-fleet-scheduler, resource: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, namespace: jobs, name: %[1]s}, placement: %s}}`, spec.Name, rules))
	created, err := w.hub.Dynamic.Resource(bindings).Namespace("jobs").Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	w.setBinding(t.Context(), created)
	gangs := newToCome(pods)
	places := map[string]placement.Placement{}
	for name, m := range w.members {
		if offer, why := m.offer(gangs); why == "" {
			places[name] = offer.Placements[0]
		}
	}
	key := "jobs/" + spec.Name
	require.NoError(t, w.place(t.Context(), w.controller.bindings[key], o, pods))
	asked, ok := w.asked[key]
	if !ok {
		return "", nil
	}
	members = assignment.Planned(places[asked.cluster].Assignments, func(node string) *gpu.Table {
		n, _ := w.views[asked.cluster].Node(node)
		return n.GPUs
	})
	slices.SortFunc(members, func(a, b assignment.Model) int { return strings.Compare(a.Member, b.Member) })
	return asked.cluster, members
}
