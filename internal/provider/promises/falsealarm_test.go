package promises

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// What a plan says is taken for right when it is, and only then: a suite that takes all for right holds nobody to anything.
func TestFalseAlarms(t *testing.T) {
	says := func(summary, detail string) diagnostic {
		return diagnostic{Severity: "error", Summary: summary, Detail: detail}
	}
	misfit := says("Gang does not fit", "Job default/a does not fit: 0 of 1 members fit.")
	evicts := says("Running jobs would be evicted", "Job default/a has no free place, and the scheduler would evict for it: default/old (2 pods, priority 0).")
	evictsFirst := says("Running jobs would be evicted", "Job default/a finds its place taken by default/waits, waiting now, when it is created, and the scheduler would evict for it: default/waits (1 pod, priority 0).")
	overtaken := says("Gangs that wait come first", "Job default/a does not fit: the scheduler gives what this plan frees or adds to gangs that wait for room already, and that is default/waits.")
	outrun := says("Gangs that wait come first", "Job default/a may have to wait, or not be started: the scheduler gives what this plan frees or adds to gangs that wait for room already, and that is default/waits.")
	contention := says("Jobs fit alone, but not together", "Job default/a fits on its own, but not at the same time as default/b: one of them will wait.")
	reordered := says("Jobs fit together in another order only", "Job default/a has no room when default/b starts first: it will wait.")
	needs := says("Job starts when others have left", "Job default/a does not fit beside what runs now. It starts once this plan has taken default/old away.")
	untouched := says("Job starts when others have left", "Job default/a does not fit beside what runs now. It starts only once default/old, of this configuration, no longer runs.")
	crossing := says("Two jobs are planned on the same GPUs", "Jobs default/a and default/b are each planned on p[0] GPU 0.")
	crowded := says("Two jobs are planned on the same nodes", "Jobs default/a and default/b are each planned on p[0].")
	displacing := says("A job may be placed where another is planned", "Where default/b will run is known after apply, and nothing says that it is placed after default/a.")
	throngs := says("Several jobs are planned on the same nodes", "Jobs default/a, default/b, default/c are each planned on p[0].")
	many := says("A job is planned where many others are", "Job default/a is planned where 2 others are planned, and cannot be there beside any of them: default/b, default/c.")
	launching := says("A launcher may run where a job is planned", "The role launcher of job default/b starts once its members run. That may be a node on which job default/a is planned.")
	shrinking := says("Running jobs would lose their nodes", "The plan shrinks node pool p from 2 to 1 nodes (the cloud chooses which ones go), on which jobs run: default/old (on n0, n1).")
	losing := says("A running job would lose its nodes", "The plan shrinks node pool p from 2 to 1 nodes (the cloud chooses which ones go), on which job default/old runs, and the job stays.")
	startingThere := says("Jobs that wait may start on nodes that go", "The plan shrinks node pool p from 2 to 1 nodes. Jobs that wait may start on its nodes before that: default/waits.")
	besides := says("Gangs that wait come first", "Job default/a may be placed elsewhere than planned: the scheduler gives what this plan frees or adds to gangs that wait for room already, and that is default/waits.")
	lateMisfit := says("Launcher does not fit", "The members of job default/a fit, but what starts once they run does not fit beside them.")
	admitted := says("Job will not start where it is planned", "As the cluster would have it, job default/a fits, but not where it is planned. Job default/a counts with what admission adds.")
	exceeding := says("Job exceeds its quota", "Job default/a fits on its pools, but can never run within its quota.")
	waiting := says("Job waits for its quota", "Job default/a fits on its pools, but not into its quota beside what runs now.")
	inPart := says("Not all members have quota", "2 of 2 members of job default/a have room, but only 1 within its quota.")
	unchecked := says("Placement is not checked", "Whether the job fits is not checked: pools is unknown until apply.")
	meanwhile := says("Running jobs may be evicted", "Gang default/waits waits for room already, and the scheduler may then evict for it: default/old (2 pods).")
	quoted := says("Order is left open", "after names a job by \"default/b\".")
	lowered := says("Quota is in use", "The plan lowers the maximum of aliyun.com/gpu for leaf to 1, but at least 2 stay in use, by default/old.")
	for _, d := range []*diagnostic{&unchecked, &quoted, &inPart, &lateMisfit} {
		d.Address = "gpuplan_training_job.a"
	}

	// Two nodes with two GPUs each, and jobs a and b, of two members with two GPUs each, that the plan starts.
	world := func() *snapshot {
		s := &snapshot{requested: map[string]int64{}, fresh: map[string]room{}, sick: map[string]map[int]bool{}}
		s.next.pools = []pool{{name: "p", mode: "topology", size: 2}}
		s.fresh["p"] = room{pool: s.next.pools[0], free: free{cpu: 16000, pods: 10, gpus: 2, ports: map[int32]bool{}}}
		s.plan.changes = map[string]change{}
		for _, name := range []string{"a", "b"} {
			s.next.jobs = append(s.next.jobs, job{key: name, name: name, namespace: "default", framework: "mpi", mode: "topology", workers: 2, gpus: 2, pools: []string{"p"}})
			s.plan.changes["gpuplan_training_job."+name] = change{Actions: []string{"create"}, After: map[string]any{}}
		}
		return s
	}
	alone := func(s *snapshot) { delete(s.plan.changes, "gpuplan_training_job.b"); s.next.jobs = s.next.jobs[:1] }
	small := func(s *snapshot) {
		for i := range s.next.jobs {
			s.next.jobs[i].workers = 1
		}
	}
	big := func(s *snapshot) { s.next.jobs[0].workers = 3 }
	after := func(s *snapshot) {
		s.next.jobs[0], s.next.jobs[1] = s.next.jobs[1], s.next.jobs[0]
		s.next.jobs[1].after = "b"
	}
	planned := func(name, node, line string) func(*snapshot) {
		return func(s *snapshot) {
			s.plan.changes["gpuplan_training_job."+name].After["planned_placement"] = map[string]any{node: line}
		}
	}
	// third plans three jobs on a node with three GPUs: two with one, and one with more.
	third := func(gpus int) func(*snapshot) {
		return func(s *snapshot) {
			fresh := s.fresh["p"]
			fresh.gpus = 3
			s.fresh["p"] = fresh
			c := s.next.jobs[0]
			c.key, c.name, c.gpus = "c", "c", gpus
			s.next.jobs[0].gpus, s.next.jobs[1].gpus = 1, 1
			s.next.jobs = append(s.next.jobs, c)
			s.plan.changes["gpuplan_training_job.c"] = change{Actions: []string{"create"}, After: map[string]any{}}
			for _, name := range []string{"a", "b", "c"} {
				planned(name, "p[0]", "worker-0")(s)
			}
		}
	}
	together := func(s *snapshot) {
		s.next.jobs[0].gpus, s.next.jobs[1].gpus = 1, 1
		planned("a", "p[0]", "worker-0 GPU 0")(s)
		planned("b", "p[0]", "worker-0 GPU 1")(s)
	}
	cores := func(each int) func(*snapshot) {
		return func(s *snapshot) { s.next.jobs[0].cpu, s.next.jobs[1].cpu, s.next.jobs[1].lateCPU = each, each, each }
	}
	pod := func(s *snapshot, gang, name, node string, gpus int64) *corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{contract.LightGangLabel: gang}}}
		p.Spec.NodeName, p.Spec.Priority = node, new(int32)
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{contract.ResourceTopologyGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}}}}
		if node != "" {
			var of []int
			for g := range int(gpus) {
				of = append(of, g)
			}
			record, err := contract.Allocation{Node: node, GPUs: of}.Annotations()
			require.NoError(t, err)
			p.Annotations = record
		}
		s.pods = append(s.pods, p)
		return &s.pods[len(s.pods)-1]
	}
	// existing makes the nodes those of before.
	existing := func(s *snapshot) {
		s.current = s.next.clone()
		s.current.jobs = nil
		for i := range 2 {
			s.nodes = append(s.nodes, corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{contract.NodePoolNameLabel: "p"}},
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourcePods: resource.MustParse("10"), contract.ResourceTopologyGPU: resource.MustParse("2"),
				}},
			})
		}
	}
	// running has a job of before on both nodes.
	running := func(s *snapshot) {
		existing(s)
		s.current.jobs = []job{{key: "old", name: "old", namespace: "default", framework: "mpi", mode: "topology", workers: 2, gpus: 1, pools: []string{"p"}}}
		s.next.jobs = append(s.next.jobs, s.current.jobs...)
		for i := range 2 {
			pod(s, "old", fmt.Sprintf("old-%d", i), fmt.Sprintf("n%d", i), 1)
		}
	}
	leaves := func(s *snapshot) { running(s); s.next.jobs = s.next.jobs[:len(s.next.jobs)-1] }
	waits := func(gpus int64) func(*snapshot) {
		return func(s *snapshot) { existing(s); pod(s, "waits", "waits-0", "", gpus) }
	}
	quota := func(of int) func(*snapshot) {
		return func(s *snapshot) {
			s.next.leaves = []leaf{{name: "leaf", max: of}}
			s.current.leaves = []leaf{{name: "leaf", max: 8}}
			s.next.jobs[0].leaf = "leaf"
			for i := range s.pods {
				s.pods[i].Labels[contract.QuotaLabel] = "leaf"
			}
		}
	}
	higher := func(s *snapshot) { s.next.jobs[0].priority = highPriority }
	kept := func(s *snapshot) {
		s.kept = map[string]bool{"default": true}
		for i := range s.pods {
			s.pods[i].Labels[foreignLabel] = "true"
		}
	}
	admits := func(s *snapshot) { s.requested["default"] = 2000 }
	elastic := func(s *snapshot) { s.next.jobs[0].minimum = 1 }
	// squat has one GPU of each node with a pod of which nobody has a record, in pools of that mode.
	squat := func(mode string) func(*snapshot) {
		return func(s *snapshot) {
			existing(s)
			for i := range s.next.pools {
				s.next.pools[i].mode, s.next.jobs[0].mode = mode, mode
			}
			for i := range 2 {
				pod(s, "squat", fmt.Sprintf("squat-%d", i), fmt.Sprintf("n%d", i), 1).Annotations = nil
			}
		}
	}
	single := func(s *snapshot) { s.next.jobs[0].gpus = 1 }
	// besideIt has the other job ask for one GPU of the same quota.
	besideIt := func(s *snapshot) { s.next.jobs[1].gpus, s.next.jobs[1].leaf = 1, "leaf" }
	anywhere := func(s *snapshot) { s.next.jobs[0].pools = nil }
	// untainted takes from a pool the taint that its nodes have.
	untainted := func(s *snapshot) {
		existing(s)
		s.current.pools[0].tainted = true
		for i := range s.nodes {
			s.nodes[i].Spec.Taints = []corev1.Taint{{Key: taintKey, Value: ofPool, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	// grown are two nodes of which there is one.
	grown := func(s *snapshot) { s.nodes, s.current.pools[0].size = s.nodes[:1], 1 }
	anywhereAfter := func(s *snapshot) { s.next.jobs[1].pools = nil }
	one := func(s *snapshot) { s.next.pools[0].size = 1 }

	tests := []struct {
		name string
		make []func(*snapshot)
		says diagnostic
		due  bool
	}{
		{"fits", nil, misfit, false},
		{"one node too few", []func(*snapshot){big}, misfit, true},
		{"a GPU of which nobody knows whose it is", []func(*snapshot){alone, squat("default"), single}, misfit, false},
		{"a GPU of which nobody knows which it is", []func(*snapshot){alone, squat("topology"), single}, misfit, true},
		{"its pool loses its taint", []func(*snapshot){alone, untainted}, misfit, false},
		{"a pool loses its taint that it does not name", []func(*snapshot){alone, anywhere, untainted}, misfit, true},
		{"a pool that it does not name gets the node that it needs", []func(*snapshot){existing, grown, anywhere}, misfit, true},
		{"a pool that the job before it names gets the node that it needs", []func(*snapshot){existing, grown, small, after, anywhereAfter, planned("b", "p[1]", "worker-0 GPU 0,1")}, misfit, false},
		{"a pool gets the node that two jobs need of which one does not name it", []func(*snapshot){existing, grown, small, anywhere}, contention, true},
		{"others run there", []func(*snapshot){running}, misfit, true},
		{"others run there, and leave", []func(*snapshot){leaves}, misfit, false},
		{"fits beside the one before it", []func(*snapshot){small, after, planned("b", "p[0]", "worker-0 GPU 0,1")}, misfit, false},
		{"the one before it has both nodes", []func(*snapshot){after}, misfit, true},
		{"the pool loses a node", []func(*snapshot){existing, one}, misfit, true},
		{"the pool loses a node that it does not need", []func(*snapshot){small, existing, one}, misfit, false},
		{"within its quota", []func(*snapshot){quota(4)}, exceeding, false},
		{"more than its quota", []func(*snapshot){quota(3)}, exceeding, true},
		{"the quota has room", []func(*snapshot){alone, running, quota(6)}, waiting, false},
		{"the quota has no room", []func(*snapshot){alone, running, quota(5)}, waiting, true},
		{"those who use the quota leave", []func(*snapshot){alone, leaves, quota(5)}, waiting, false},
		{"all members have quota", []func(*snapshot){alone, elastic, quota(4)}, inPart, false},
		{"one member has no quota", []func(*snapshot){alone, elastic, quota(3)}, inPart, true},
		{"nobody is in the way", []func(*snapshot){alone, existing}, needs, false},
		{"others are in the way, and stay", []func(*snapshot){alone, running}, needs, false},
		{"others are in the way, and leave", []func(*snapshot){alone, leaves}, needs, true},
		{"others are in the way, of which the plan says nothing", []func(*snapshot){alone, running, func(s *snapshot) { s.part = true }}, untouched, true},
		{"nobody is in the way of whom the plan could say something", []func(*snapshot){alone, existing, func(s *snapshot) { s.part = true }}, untouched, false},
		{"nobody waits", []func(*snapshot){alone, existing}, overtaken, false},
		{"both have room", []func(*snapshot){alone, small, waits(2)}, overtaken, false},
		{"who waits needs a node", []func(*snapshot){alone, waits(2)}, overtaken, true},
		{"who waits leaves it a node", []func(*snapshot){alone, small, waits(2)}, outrun, false},
		{"who waits leaves a node for two that start", []func(*snapshot){small, waits(2)}, outrun, true},
		{"who waits leaves quota for one of two that start", []func(*snapshot){small, single, waits(1), quota(2), besideIt}, outrun, true},
		{"who waits leaves quota for both that start", []func(*snapshot){small, single, waits(1), quota(3), besideIt}, outrun, false},
		{"fit together", []func(*snapshot){small}, contention, false},
		{"do not fit together", nil, contention, true},
		{"fit together in every order", []func(*snapshot){small}, reordered, false},
		{"have no room one after the other", nil, reordered, true},
		{"nobody is evicted without need", []func(*snapshot){alone, small, running, higher, func(s *snapshot) { s.next.jobs[0].gpus = 1 }}, evicts, false},
		{"a lower priority makes room", []func(*snapshot){alone, running, higher}, evicts, true},
		{"a lower priority makes room, but for a budget", []func(*snapshot){alone, running, higher, kept}, evicts, false},
		{"a lower priority comes first", []func(*snapshot){alone, waits(2), higher}, evictsFirst, true},
		{"a lower priority comes first elsewhere", []func(*snapshot){alone, small, waits(2), higher}, evictsFirst, false},
		{"nobody comes first", []func(*snapshot){alone, existing, higher}, evictsFirst, false},
		{"another job is spoken of as well", []func(*snapshot){small, running, higher}, says("Running jobs would be evicted",
			"Job default/b has no free place, and the scheduler would evict for it: default/old (2 pods, priority 0). Job default/a counts with what admission adds."), false},
		{"the same priority does not", []func(*snapshot){alone, running}, evicts, false},
		{"apart", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1"), planned("b", "p[1]", "worker-0 GPU 0,1")}, crossing, false},
		{"on the same GPUs", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1"), planned("b", "p[0]", "worker-0 GPU 0,1")}, crossing, true},
		{"room for both", []func(*snapshot){small, planned("a", "p[0]", "worker-0"), planned("b", "p[1]", "worker-0")}, crowded, false},
		{"no room for both", []func(*snapshot){small, planned("a", "p[0]", "worker-0"), planned("b", "p[0]", "worker-0")}, crowded, true},
		{"room for all of them", []func(*snapshot){small, third(1)}, throngs, false},
		{"room for two of them", []func(*snapshot){small, third(2)}, throngs, true},
		{"room for it and many others", []func(*snapshot){small, third(1)}, many, false},
		{"room for it beside one of them", []func(*snapshot){small, third(1), planned("a", "p[0]", "worker-0 GPU 0"), planned("b", "p[0]", "worker-0 GPU 0"), planned("c", "p[0]", "worker-0 GPU 1")}, many, false},
		{"room for it alone", []func(*snapshot){small, third(1), planned("a", "p[0]", "worker-0 GPU 0"), planned("b", "p[0]", "worker-0 GPU 0"), planned("c", "p[0]", "worker-0 GPU 0")}, many, true},
		{"both have places", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1"), planned("b", "p[1]", "worker-0 GPU 0,1")}, displacing, false},
		{"the place of one is open", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1")}, displacing, true},
		{"the place of one is open, and which node the other has", []func(*snapshot){small, existing, one, planned("a", "p[0]", "worker-0 GPU 0,1")}, displacing, true},
		{"launchers take nothing", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1"), planned("b", "p[1]", "worker-0 GPU 0,1")}, launching, false},
		{"a launcher takes all CPU", []func(*snapshot){small, planned("a", "p[0]", "worker-0 GPU 0,1"), func(s *snapshot) { s.next.jobs[0].cpu, s.next.jobs[1].lateCPU = 8, 16 }}, launching, true},
		{"a launcher has room beside both", []func(*snapshot){small, together, cores(5)}, launching, false},
		{"a launcher and its own members leave too little", []func(*snapshot){small, together, cores(6)}, launching, true},
		{"the pool keeps its nodes", []func(*snapshot){running}, shrinking, false},
		{"someone runs on the nodes", []func(*snapshot){running, one}, shrinking, true},
		{"who runs on the nodes leaves", []func(*snapshot){leaves, one}, shrinking, false},
		{"who runs on the nodes is suspended, which is later", []func(*snapshot){running, one, func(s *snapshot) { s.next.jobs[2].suspended = true }}, losing, true},
		{"who runs on the nodes is replaced", []func(*snapshot){running, one, func(s *snapshot) { s.next.jobs[2].image = 1 }}, losing, false},
		{"nobody waits for the nodes", []func(*snapshot){existing, one}, startingThere, false},
		{"a gang waits for the nodes", []func(*snapshot){waits(2), one}, startingThere, true},
		{"who waits has no room", []func(*snapshot){waits(3)}, besides, false},
		{"who waits has room", []func(*snapshot){waits(2)}, besides, true},
		{"the launcher asks for nothing", nil, lateMisfit, false},
		{"the launcher asks for more than a node has", []func(*snapshot){func(s *snapshot) { s.next.jobs[0].lateCPU = 17 }}, lateMisfit, true},
		{"admission adds nothing", nil, admitted, false},
		{"admission adds CPU", []func(*snapshot){admits}, admitted, true},
		{"the nodes are known", []func(*snapshot){existing}, unchecked, false},
		{"nobody knows which node goes", []func(*snapshot){existing, one}, unchecked, true},
		{"nobody waits who could evict", []func(*snapshot){running}, meanwhile, false},
		{"who waits may evict", []func(*snapshot){running, func(s *snapshot) { pod(s, "waits", "waits-0", "", 2) }}, meanwhile, true},
		{"by reference", []func(*snapshot){after}, quoted, false},
		{"in quotes", []func(*snapshot){after, func(s *snapshot) { s.next.jobs[1].literal = true }}, quoted, true},
		{"the maximum holds them", []func(*snapshot){running, quota(2)}, lowered, false},
		{"the maximum holds one of them", []func(*snapshot){running, quota(1)}, lowered, true},
	}
	for _, test := range tests {
		t.Run(test.says.Summary+"/"+test.name, func(t *testing.T) {
			s := world()
			for _, change := range test.make {
				change(s)
			}
			s.plan.diagnostics = diagnostics{{Severity: "warning"}}
			assert.Equal(t, test.due, rules()[test.says.kind()].holds(s, test.says))
		})
	}
	for kind := range rules() {
		tested := false
		for _, test := range tests {
			tested = tested || test.says.kind() == kind && !test.due
		}
		assert.True(t, tested, kind)
	}
}
