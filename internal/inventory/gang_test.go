package inventory

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ownedPodGroup is a PodGroup that an operator made for its job.
func ownedPodGroup(minMember int64) *unstructured.Unstructured {
	group, yes := podtest.PodGroup(minMember), true
	group.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: "MPIJob", Name: "job", UID: "uid", Controller: &yes}})
	return group
}

func TestGangKey(t *testing.T) {
	tests := map[string]struct {
		labels map[string]string
		want   string
	}{
		"pod on its own":             {nil, ""},
		"topology labels":            {map[string]string{contract.TopologyGroupLabel: "topo"}, "ns/topo"},
		"gang labels":                {map[string]string{contract.LightGangLabel: "light"}, "ns/light"},
		"PodGroup label":             {map[string]string{contract.PodGroupLabel: "group"}, "ns/group"},
		"gang before topology":       {map[string]string{contract.LightGangLabel: "light", contract.TopologyGroupLabel: "topo"}, "ns/light"},
		"PodGroup before all":        {map[string]string{contract.PodGroupLabel: "group", contract.LightGangLabel: "light", contract.TopologyGroupLabel: "topo"}, "ns/group"},
		"flag, named by the job":     {map[string]string{contract.TopologyGroupLabel: "true", contract.JobNameLabel: "job"}, "ns/job"},
		"flag, named by the release": {map[string]string{contract.TopologyGroupLabel: "true", contract.ArenaReleaseLabel: "release"}, "ns/release"},
		"flag and nothing else":      {map[string]string{contract.TopologyGroupLabel: "true"}, "ns/pod"},
		"flag switched off":          {map[string]string{contract.TopologyGroupLabel: "false"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := podtest.New("pod")
			p.Labels = test.labels
			key, ok := GangKey(p)
			assert.Equal(t, test.want != "", ok)
			if ok {
				assert.Equal(t, test.want, key)
			}
		})
	}
}

func TestGangMinimum(t *testing.T) {
	launcher := func(changes ...podtest.Change) *corev1.Pod {
		return podtest.New("job-launcher", append(changes, podtest.Label(contract.JobReplicaTypeLabel, "launcher"), podtest.Label(contract.JobReplicaIndexLabel, "0"))...)
	}
	topology := func(replicas string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Labels[contract.TopologyGroupLabel] = "job"
			p.Labels[contract.TopologyReplicasLabel] = replicas
		}
	}
	light := func(minimum string) podtest.Change {
		return func(p *corev1.Pod) {
			p.Labels[contract.LightGangLabel] = "job"
			p.Labels[contract.LightGangMinLabel] = minimum
		}
	}
	tests := map[string]struct {
		pods     []*corev1.Pod
		group    *unstructured.Unstructured
		minimum  int
		missing  int
		problems []string
	}{
		"topology replicas":         {pods: podtest.Workers(4, topology("4")), minimum: 4},
		"topology, not all there":   {pods: podtest.Workers(3, topology("4")), minimum: 4, missing: 1},
		"min-available":             {pods: podtest.Workers(4, light("2")), minimum: 2},
		"both, min-available leads": {pods: podtest.Workers(4, topology("4"), light("3")), minimum: 3},
		"PodGroup leads":            {pods: podtest.Workers(4, topology("4")), group: podtest.PodGroup(2), minimum: 2},
		"PodGroup without minimum": {pods: podtest.Workers(4, topology("4")), group: podtest.PodGroup(0), minimum: 4,
			problems: []string{ReasonInvalidReplicaCount}},
		"flag instead of a number": {pods: podtest.Workers(4, topology("true")), minimum: 0, problems: []string{ReasonInvalidReplicaCount}},
		"zero":                     {pods: podtest.Workers(4, topology("0")), minimum: 0, problems: []string{ReasonInvalidReplicaCount}},
		"negative min-available falls back to replicas": {pods: podtest.Workers(4, topology("4"), light("-1")), minimum: 4,
			problems: []string{ReasonInvalidReplicaCount}},
		"pods disagree": {pods: append(podtest.Workers(3, topology("4")), podtest.New("job-worker-3", podtest.Worker(3), topology("8"), podtest.Asks(contract.ResourceTopologyGPU, 1))), minimum: 8, missing: 4,
			problems: []string{ReasonCountsDisagree}},
		"no count at all":                  {pods: podtest.Workers(4, podtest.Label(contract.TopologyGroupLabel, "job")), minimum: 0},
		"launcher not counted":             {pods: append(podtest.Workers(4, light("4")), launcher(light("4"))), minimum: 4},
		"launcher there, a worker missing": {pods: append(podtest.Workers(3, light("4")), launcher(light("4"))), minimum: 4, missing: 1},
		"launcher counted by the operator": {pods: append(podtest.Workers(4), launcher()), group: ownedPodGroup(5), minimum: 4},
		"launcher counted, a worker missing": {pods: append(podtest.Workers(3), launcher()), group: ownedPodGroup(5),
			minimum: 4, missing: 1},
		"launcher counted, not there yet": {pods: podtest.Workers(4), group: ownedPodGroup(5), minimum: 5, missing: 1},
		"succeeded members count": {pods: append(podtest.Workers(3, topology("4")), podtest.New("job-worker-3", podtest.Worker(3), topology("4"),
			podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.InPhase(corev1.PodSucceeded))), minimum: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, problems := Gang(test.pods, test.group, nil)
			assert.Equal(t, test.minimum, g.Minimum)
			var members []Member
			for _, p := range test.pods {
				members = append(members, MemberOf(p))
			}
			found := CountMembers(members, test.group)
			assert.Equal(t, test.missing, max(0, found.Minimum-found.Present))
			var reasons []string
			for _, problem := range problems {
				reasons = append(reasons, problem.Reason)
				assert.NotEmpty(t, problem.Text)
			}
			assert.Equal(t, test.problems, reasons)
		})
	}
}

// Roles can have minima of their own, by a label or on the PodGroup: they must appear, run and
// be missed for themselves.
func TestRoleMinimum(t *testing.T) {
	pod := func(role string, i int, changes ...podtest.Change) *corev1.Pod {
		all := []podtest.Change{podtest.Label(contract.LightGangLabel, "job"), podtest.Label(contract.LightGangMinLabel, "3"), podtest.Asks(contract.ResourceTopologyGPU, 1), podtest.Label(contract.JobReplicaTypeLabel, role), podtest.Label(contract.JobReplicaIndexLabel, strconv.Itoa(i))}
		return podtest.New(fmt.Sprintf("job-%s-%d", role, i), append(all, changes...)...)
	}
	needs := func(n int) podtest.Change { return podtest.Label(contract.RoleMinLabel, strconv.Itoa(n)) }
	given := podtest.PodGroup(3)
	given.SetAnnotations(map[string]string{contract.RoleMinLabel: `{"worker": 2}`})
	odd := podtest.PodGroup(3)
	odd.SetAnnotations(map[string]string{contract.RoleMinLabel: `worker=2`})
	on := podtest.OnNode("a")
	tests := map[string]struct {
		pods     []*corev1.Pod
		group    *unstructured.Unstructured
		minimum  int
		want     []placement.Subgroup
		missing  string
		runs     bool
		problems []string
	}{
		"labels": {
			pods:    []*corev1.Pod{pod("master", 0, needs(1)), pod("worker", 0, needs(2)), pod("worker", 1, needs(2)), pod("worker", 2, needs(2))},
			minimum: 3, want: []placement.Subgroup{{Name: "master", Roles: []string{"master"}, Minimum: 1}, {Name: "worker", Roles: []string{"worker"}, Minimum: 2}},
		},
		"the PodGroup goes before the labels": {
			pods: []*corev1.Pod{pod("master", 0, needs(1)), pod("worker", 0, needs(1)), pod("worker", 1)}, group: given,
			minimum: 3, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 2}},
		},
		"a PodGroup that says nothing usable": {
			pods: []*corev1.Pod{pod("master", 0), pod("worker", 0, needs(1)), pod("worker", 1)}, group: odd,
			minimum: 3, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 1}}, problems: []string{ReasonInvalidRoleMinimum},
		},
		"more than the gang's own minimum": {
			pods:    []*corev1.Pod{pod("worker", 0, needs(4)), pod("worker", 1), pod("worker", 2), pod("worker", 3)},
			minimum: 4, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 4}},
		},
		"not a number": {
			pods:    []*corev1.Pod{pod("worker", 0, podtest.Label(contract.RoleMinLabel, "some")), pod("worker", 1), pod("worker", 2)},
			minimum: 3, problems: []string{ReasonInvalidRoleMinimum},
		},
		"shapes of one role count together": {
			pods:    []*corev1.Pod{pod("worker", 0, needs(3)), pod("worker", 1), pod("worker", 2, podtest.Asks(contract.ResourceTopologyGPU, 2))},
			minimum: 3, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker", "worker.2"}, Minimum: 3}},
		},
		"one that has succeeded": {
			pods:    []*corev1.Pod{pod("worker", 0, needs(2)), pod("worker", 1, needs(2), podtest.InPhase(corev1.PodSucceeded)), pod("master", 0), pod("master", 1)},
			minimum: 2, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 1}},
		},
		"enough, but of the wrong role": {
			pods:    []*corev1.Pod{pod("worker", 0, needs(2), on), pod("master", 0, on), pod("master", 1, on)},
			minimum: 3, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 2}},
			missing: "1 more pod of gang ns/job must appear, 1 of role worker, before it can start",
		},
		"the master, when not all are needed": {
			pods:    []*corev1.Pod{pod("master", 0), pod("worker", 0), pod("worker", 1), pod("worker", 2)},
			minimum: 3, want: []placement.Subgroup{{Name: "master", Roles: []string{"master"}, Minimum: 1}},
		},
		"the chief, beside what workers need": {
			pods:    []*corev1.Pod{pod("chief", 0), pod("worker", 0, needs(3)), pod("worker", 1), pod("worker", 2), pod("worker", 3)},
			minimum: 4, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 3}, {Name: "chief", Roles: []string{"chief"}, Minimum: 1}},
		},
		"nobody above others when all are needed": {
			pods:    []*corev1.Pod{pod("master", 0), pod("worker", 0), pod("worker", 1)},
			minimum: 3,
		},
		"as many of each as it needs": {
			pods:    []*corev1.Pod{pod("worker", 0, needs(2), on), pod("worker", 1, on), pod("master", 0, on), pod("master", 1)},
			minimum: 3, want: []placement.Subgroup{{Name: "worker", Roles: []string{"worker"}, Minimum: 2}}, runs: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, problems := Gang(test.pods, test.group, nil)
			assert.Equal(t, test.minimum, g.Minimum)
			assert.Equal(t, test.want, g.Subgroups)
			var members []Member
			for _, p := range test.pods {
				members = append(members, MemberOf(p))
			}
			found := CountMembers(members, test.group)
			missing, _ := found.missingText("ns/job")
			assert.Equal(t, test.missing, missing)
			assert.Equal(t, test.runs, found.Runs())
			assert.Equal(t, test.runs, g.Missing() == 0)
			var reasons []string
			for _, problem := range problems {
				reasons = append(reasons, problem.Reason)
			}
			assert.Equal(t, test.problems, reasons)
		})
	}
	alone := podtest.New("own", podtest.Label(contract.RoleLabel, "Evaluator"))
	g, _ := Gang([]*corev1.Pod{alone}, nil, nil)
	assert.Equal(t, "evaluator", g.Roles[0].Name, "pods that no operator labels name their role")
}

func TestGangRoles(t *testing.T) {
	pods := []*corev1.Pod{
		podtest.New("job-launcher", podtest.Label(contract.JobReplicaTypeLabel, "Launcher"), podtest.Label(contract.JobReplicaIndexLabel, "0")),
		podtest.New("job-worker-10", podtest.Worker(10), podtest.Asks(contract.ResourceTopologyGPU, 2)),
		podtest.New("job-worker-2", podtest.Worker(2), podtest.Asks(contract.ResourceTopologyGPU, 2)),
		podtest.New("job-worker-3", podtest.Worker(3), podtest.Asks(contract.ResourceTopologyGPU, 4)),
	}
	g, _ := Gang(pods, nil, nil)
	require.Len(t, g.Roles, 3)
	assert.Equal(t, "launcher", g.Roles[0].Name)
	assert.True(t, g.Roles[0].Late)
	assert.Equal(t, []string{"launcher-0"}, g.Roles[0].Members)
	assert.Equal(t, "worker", g.Roles[1].Name)
	assert.Equal(t, []string{"worker-2", "worker-10"}, g.Roles[1].Members)
	assert.Equal(t, placement.ModeTopology, g.Roles[1].Request.Mode)
	assert.Equal(t, 2, g.Roles[1].Request.GPUs)
	assert.Equal(t, "worker.2", g.Roles[2].Name)
	assert.Equal(t, []string{"worker-3"}, g.Roles[2].Members)
}

func TestGangPriority(t *testing.T) {
	for name, test := range map[string]struct {
		priorities []int32
		want       int32
	}{
		"that of its members":        {[]int32{5, 5}, 5},
		"the highest of its members": {[]int32{-3, 7, 2}, 7},
		"below that of other pods":   {[]int32{-10, -20}, -10},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i, priority := range test.priorities {
				pods = append(pods, podtest.New(fmt.Sprint("a-", i), podtest.Asks(contract.ResourceTopologyGPU, 1), func(p *corev1.Pod) {
					p.Labels[contract.TopologyGroupLabel] = "a"
					p.Spec.Priority = &priority
				}))
			}
			g, _ := Gang(pods, nil, nil)
			assert.Equal(t, test.want, g.Priority)
		})
	}
}

func TestGangWithoutGPUsHasNoLateMembers(t *testing.T) {
	g, _ := Gang([]*corev1.Pod{podtest.New("a"), podtest.New("b")}, podtest.PodGroup(2), nil)
	require.Len(t, g.Roles, 1)
	assert.False(t, g.Roles[0].Late)
	assert.Equal(t, 2, g.Minimum)
}

func TestGangRunning(t *testing.T) {
	pods := podtest.Workers(2, podtest.Label(contract.TopologyGroupLabel, "job"), podtest.Label(contract.TopologyReplicasLabel, "2"))
	podtest.OnNode("node")(pods[1])
	podtest.Recorded(contract.Allocation{GPUs: []int{2}, Visible: []int{1, 2}, RingGBps: 25, NVLinkRings: 1})(pods[1])
	g, problems := Gang(pods, nil, nil)
	assert.Empty(t, problems)
	assert.Equal(t, "ns/job", g.ID)
	assert.Equal(t, []placement.Assignment{{
		Member: "worker-1", Node: "node", Own: gpu.SetOf(2), Visible: gpu.SetOf(1, 2), Ring: gpu.Ring{GBps: 25, NVLinkRings: 1},
	}}, g.Running)
}

func TestGangWithAPlanThatCannotBeRead(t *testing.T) {
	long := strings.Repeat("9", 100_000)
	for text, want := range map[string]string{
		"[]": "is not a planned placement", `{"version":9}`: "has version 9; this program reads version 1", `{"version":` + long + `}`: "is not a planned placement",
		`{"version":1,"nodes":[{"node":"n1","members":{"worker-0":[0]}},{"node":"n2","members":{"worker-0":[0]}}]}`: `member "worker-0" has two nodes`,
		`{"version":1,"nodes":[{"members":{"worker-0":[0]}}]}`:                                                      `"" is no node`,
		`{"version":1,"nodes":[{"node":"a b","members":{"worker-0":[0]}}]}`:                                         `"a b" is no node`,
		`{"version":1,"nodes":[{"node":"n1","ringGBps":-1}]}`:                                                       "a ring of -1 GB/s",
		`{"version":1,"nodes":[{"node":"n1","members":{"worker-0":[-1]}}]}`:                                         "has GPUs below 0",
		`{"version":1,"nodes":[{"node":"` + long + `","members":{"worker-0":[0]}}]}`:                                `9" is no node`,
		`{"version":1,"nodes":[{"node":"n1","members":{"` + long + `":[0]}}]}`:                                      `9" is no member`,
		`{"version":1,"nodes":[{"node":"n1","members":{"worker-0":[0` + strings.Repeat(",0", 64) + `]}}]}`:          "has 65 GPUs, more than a machine",
	} {
		pods := podtest.Workers(1)
		pods[0].Annotations = map[string]string{contract.PlannedPlacementAnnotation: text}
		g, problems := Gang(pods, nil, nil)
		assert.Nil(t, g.Planned)
		require.Len(t, problems, 1)
		assert.Equal(t, ReasonInvalidPlan, problems[0].Reason)
		assert.Contains(t, problems[0].Text, want)
		assert.Less(t, len(problems[0].Text), 500, "it is written into events")
	}
}

// What a gang is to follow does not depend on the order in which its pods are looked at.
func TestGangFollowsOnePlan(t *testing.T) {
	on := func(node string) map[string]string {
		return map[string]string{contract.PlannedPlacementAnnotation: `{"version":1,"nodes":[{"node":"` + node + `","members":{"worker-0":[0]}}]}`}
	}
	pods := podtest.Workers(4)
	pods[2].Annotations = on("n1")
	pods[3].Annotations = on("n1")
	g, problems := Gang(pods, nil, nil)
	assert.Empty(t, problems)
	assert.Equal(t, []placement.Planned{{Member: "worker-0", Node: "n1", GPUs: []int{0}}}, g.Planned)

	pods[3].Annotations = on("n2")
	g, problems = Gang(pods, nil, nil)
	assert.Nil(t, g.Planned)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Text, "pods of one gang differ")

	podtest.InPhase(corev1.PodFailed)(pods[3])
	g, problems = Gang(pods, nil, nil)
	assert.Empty(t, problems, "what a pod of an earlier run carries does not count")
	assert.NotEmpty(t, g.Planned)
}

func TestGangLeavesOutPodsThatAreGone(t *testing.T) {
	pods := podtest.Workers(3)
	podtest.InPhase(corev1.PodFailed)(pods[0])
	now := metav1.Now()
	pods[1].DeletionTimestamp = &now
	g, _ := Gang(pods, nil, nil)
	require.Len(t, g.Roles, 1)
	assert.Equal(t, []string{"worker-2"}, g.Roles[0].Members)
}

func TestGangQuota(t *testing.T) {
	tree, err := quota.New(quota.Spec{Name: "root", Children: []quota.Spec{{Name: "team", Namespaces: []string{"ns"}}, {Name: "other"}}})
	require.NoError(t, err)
	tests := map[string]struct {
		changes     []podtest.Change
		tree        *quota.Tree
		leaf        string
		preemptible bool
	}{
		"by namespace":       {tree: tree, leaf: "team", preemptible: true},
		"by label":           {changes: []podtest.Change{podtest.Label(contract.QuotaLabel, "other")}, tree: tree, leaf: "other", preemptible: true},
		"by Koordinator's":   {changes: []podtest.Change{podtest.Label(contract.KoordinatorQuotaLabel, "other")}, tree: tree, leaf: "other", preemptible: true},
		"without a tree":     {preemptible: true},
		"guaranteed only":    {changes: []podtest.Change{podtest.Label(contract.PreemptibleLabel, "false")}, tree: tree, leaf: "team"},
		"guaranteed, Koord.": {changes: []podtest.Change{podtest.Label(contract.KoordinatorPreemptibleLabel, "false")}, tree: tree, leaf: "team"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, _ := Gang(podtest.Workers(1, test.changes...), nil, test.tree)
			assert.Equal(t, test.leaf, g.Leaf)
			assert.Equal(t, test.preemptible, g.Preemptible)
		})
	}
}

func TestMemberNamesAreUnique(t *testing.T) {
	pods := []*corev1.Pod{podtest.New("a-worker-0", podtest.Worker(0)), podtest.New("b-worker-0", podtest.Worker(0)), podtest.New("c", podtest.Worker(1)), podtest.New("d")}
	assert.Equal(t, []string{"a-worker-0", "b-worker-0", "worker-1", "d"}, MemberNames(pods))
	pods[0].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	assert.Equal(t, []string{"a-worker-0", "worker-0", "worker-1", "d"}, MemberNames(pods), "a successor has the name")
	pods[1].DeletionTimestamp = pods[0].DeletionTimestamp
	assert.Equal(t, []string{"a-worker-0", "b-worker-0", "worker-1", "d"}, MemberNames(pods))
}

// Pods of an MPIJob v2beta1 of someone else have the labels of the MPI operator, and of a PyTorchJob's master both that say its role.
func TestReplicaByTheOperatorsLabels(t *testing.T) {
	for name, test := range map[string]struct {
		labels      map[string]string
		role, index string
	}{
		"a worker of the MPI operator":     {map[string]string{contract.JobRoleLabel: "worker", contract.JobReplicaIndexLabel: "3"}, "worker", "3"},
		"a launcher of the MPI operator":   {map[string]string{contract.JobRoleLabel: "launcher"}, "launcher", ""},
		"a worker that leads a PyTorchJob": {map[string]string{contract.JobRoleLabel: "master", contract.JobReplicaTypeLabel: "worker", contract.JobReplicaIndexLabel: "0"}, "worker", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.New("p")
			pod.Labels = test.labels
			role, index := Replica(pod)
			assert.Equal(t, [2]string{test.role, test.index}, [2]string{role, index})
		})
	}
}

func TestAffinity(t *testing.T) {
	self := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "job"}}
	p := podtest.New("pod", podtest.Label("app", "job"))
	p.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}},
		}},
		PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "rack", LabelSelector: self},
				{TopologyKey: corev1.LabelTopologyZone, LabelSelector: self},
				{TopologyKey: "row", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}},
			},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: self}},
			},
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: self},
		}},
	}
	g, _ := Gang([]*corev1.Pod{p}, nil, nil)
	assert.Equal(t, []placement.Domain{
		{Label: corev1.LabelTopologyZone, Required: true},
		{Label: "rack", Required: true},
		{Label: corev1.LabelHostname},
	}, g.Domains)
	assert.Equal(t, "app=job", g.Roles[0].Apart)
	assert.Equal(t, [][]placement.Requirement{{{Key: "zone", Operator: "In", Values: []string{"a"}}}}, g.Roles[0].Affinity)
}

// Nodes of other pools than a job names are said to be that, not to be against its affinity.
func TestPoolsOfAnAffinity(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	named := in(contract.NodePoolNameLabel, "a", "b")
	both := in("zone", "x")
	both.MatchExpressions = append(both.MatchExpressions, named.MatchExpressions...)
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  []string
	}{
		"pools":                {[]corev1.NodeSelectorTerm{named}, []string{"a", "b"}},
		"pools and more":       {[]corev1.NodeSelectorTerm{both}, []string{"a", "b"}},
		"pools or more":        {[]corev1.NodeSelectorTerm{named, in("zone", "x")}, nil},
		"another label":        {[]corev1.NodeSelectorTerm{in("zone", "x")}, nil},
		"no affinity of nodes": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.New("pod")
			if test.terms != nil {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}}
			}
			g, _ := Gang([]*corev1.Pod{p}, nil, nil)
			assert.Equal(t, test.want, g.Roles[0].Pools)
			assert.Len(t, g.Roles[0].Affinity, len(test.terms))
		})
	}
}

func TestPlanKey(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
		ok   bool
	}{
		"gang":                   {podtest.Gang(1)[0], "ns/job", true},
		"one pod with GPUs":      {podtest.New("pod", podtest.Asks(contract.ResourceTopologyGPU, 1)), "pod/ns/pod", true},
		"one pod without GPUs":   {podtest.New("pod"), "", false},
		"one pod with GPU parts": {podtest.New("pod", podtest.Asks(contract.ResourceGPUMemory, 1)), "pod/ns/pod", true},
	}
	for name, test := range tests {
		key, ok := PlanKey(test.pod)
		assert.Equal(t, test.ok, ok, name)
		if ok {
			assert.Equal(t, test.want, key, name)
		}
	}
}

// A pod that is said to be one of several, and in no gang, says which label it lacks; one that is said to be alone does not.
func TestGangWithoutItsName(t *testing.T) {
	for name, test := range map[string]struct {
		count, value, name string
	}{
		"the topology document": {contract.TopologyReplicasLabel, "4", contract.TopologyGroupLabel},
		"light gangs":           {contract.LightGangMinLabel, "2", contract.LightGangLabel},
		"one of one":            {contract.TopologyReplicasLabel, "1", ""},
		"no number":             {contract.TopologyReplicasLabel, "many", ""},
	} {
		t.Run(name, func(t *testing.T) {
			members := []Member{MemberOf(podtest.New("a", podtest.Label(test.count, test.value)))}
			state, ok := StateOf(members, nil, nil, nil, nil)
			require.True(t, ok)
			assert.Equal(t, state.MissingText, StatusOf("pod/ns/a", members, CountMembers(members, nil), nil, nil).MissingText)
			if test.name == "" {
				assert.Empty(t, state.MissingText)
				return
			}
			assert.Equal(t, "pod ns/a is to be one of "+test.value+" by its label "+test.count+", but no label names its gang, so that the others cannot join it: "+
				"give all of them the label "+test.name+" with one name, or take the number off", state.MissingText)
		})
	}
}
