package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
)

// The suite makes clusters, and gangs for each of them, from a seed.
var (
	agreementSeed     = flag.Uint64("agreement.seed", 1, "seed of the agreement suite")
	agreementClusters = flag.Int("agreement.clusters", 20, "number of clusters in the agreement suite")
)

// Contended clusters get more gangs than the others, and keep them, until they are full; so
// do those that give out parts of GPUs.
const gangsPerCluster, gangsPerContended = 3, 8

// TestAgreement holds the scheduler to the plan: for every gang, what the planner says
// of a snapshot of the cluster before the gang is submitted is what the scheduler does,
// member by member, GPU by GPU, and word by word when the gang must wait. When the plan
// preempts others, these and nobody else are evicted. In half of the clusters nodes are
// chosen by a record of the requests that arrive. In a third of them another gang comes
// between the plan and its gang, which carries its planned placement. Some have pods of others
// that hold GPUs, or parts of them, without a record. Some gangs come while the quota tree is invalid:
// they wait for it, and then have what was planned before.
func TestAgreement(t *testing.T) {
	connect(t)
	a := agreement{watched: startWatching(t), scheduler: startAnswering(t, nil), token: newTestCluster(t).reader("prometheus", "gpuplan-metrics")}
	for range 3 {
		namespace, err := api().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		a.namespaces = append(a.namespaces, namespace.Name)
	}
	for _, r := range ranks[1:] {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: r.class}, Value: r.value, PreemptionPolicy: &r.policy}
		localtest.CreatePriorityClass(t, api(), class)
	}
	for i := range *agreementClusters {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			random := rand.New(rand.NewPCG(*agreementSeed, uint64(i)))
			w := newWorld(random, fmt.Sprintf("c%d", i), a.namespaces)
			a.follow(t, i%2 == 0, w.workload(rand.New(rand.NewPCG(*agreementSeed, 1<<32+uint64(i)))))
			a.hold(t, w, i%3 == 0)
		})
	}
	t.Logf("seed %d, %d clusters: %d gangs placed as planned, %d of them after others were evicted as planned (%d gangs shrank for them), %d waited for the planned reason; %d were placed otherwise than by the tightest fit; %d kept to a plan after the cluster had changed, %d could not; %d pods of others held GPUs, %d gangs had members without any, %d came while the quota tree was invalid",
		*agreementSeed, *agreementClusters, a.fits, a.nominations, a.shrunk, a.waits, a.followed, a.kept, a.moved, a.strangers, a.served, a.heldBack)
	require.Greater(t, a.followed, *agreementClusters/30)
	require.Greater(t, a.kept, *agreementClusters/30)
	require.Greater(t, a.moved, *agreementClusters/60)
	require.Greater(t, a.fits, *agreementClusters/2)
	require.Greater(t, a.waits, *agreementClusters/2)
	require.Greater(t, a.nominations, *agreementClusters/30)
	require.GreaterOrEqual(t, a.shrunk, *agreementClusters/150)
	require.Greater(t, a.strangers, *agreementClusters/30)
	require.Greater(t, a.served, *agreementClusters/30)
	require.GreaterOrEqual(t, a.heldBack, *agreementClusters/30)
}

// agreement counts what has been compared.
type agreement struct {
	*watched
	scheduler  answering
	token      string
	namespaces []string
	// nominations are those of the gangs that fit for which others were evicted, shrunk counts
	// those that lost only members that they do not need.
	fits, nominations, shrunk, waits int
	// followed are the gangs whose place would be another by the tightest fit. kept are those
	// that got the place they carry although the cluster had changed, moved those that did not.
	followed, kept, moved int
	// strangers are pods that others have bound, served gangs with members without GPUs, heldBack gangs that came while
	// the quota tree was invalid.
	strangers, served, heldBack int
}

// follow has the scheduler choose nodes by a workload, or by the tightest fit.
func (a *agreement) follow(t *testing.T, by bool, w placement.Workload) {
	t.Helper()
	if !by {
		w = nil
	}
	recordWorkloadUntil(t, w, time.Now().Add(time.Hour)) // the scheduler adds nothing of its own
	scheduler := a.scheduler
	scheduler.t = t
	scheduler.awaitWorkload(a.token, w.Members())
}

// hold compares plan and scheduler on one cluster, which changes between the two or does not.
func (a *agreement) hold(t *testing.T, w *world, changes bool) {
	remove := w.create(t)
	defer remove()
	a.awaitReady(t, w.nodes)
	a.probe(t, worldGang{namespace: "default", name: w.id + "-nodes"})
	if w.tree != nil {
		a.probe(t, worldGang{namespace: "default", name: w.id + "-tree"}, func(pod *corev1.Pod) { pod.Labels[contract.QuotaLabel] = w.id })
	}
	there := a.strange(t, w)
	defer func() { a.removeGang(t, there...) }()
	gangs := gangsPerCluster
	if w.contended || w.shared {
		gangs = gangsPerContended
	}
	for n := range gangs {
		gang := w.gang(n)
		predicted := predict(t, gang)
		if predicted.Placement == nil && gang.podGroup == nil && predict(t, gang.withoutLate()).Placement != nil {
			continue // of its late pods the scheduler knows when they appear, and it may be placed by then
		}
		if changes && predicted.Placement != nil && len(predicted.Victims) == 0 {
			carry(t, gang, predicted)
			between := w.gang(gangs + n)
			there = a.run(t, between, predict(t, between), there)
			if there = append(there, between); !a.settled(t, between) {
				there = there[:len(there)-1]
				a.removeGang(t, between)
			}
			predicted = a.requireKept(t, predicted, predict(t, gang))
		}
		if breaks := w.breaks(t, gang); breaks != nil && predicted.Placement != nil {
			a.requireHeldBack(t, w, gang, breaks)
			there = a.decided(t, gang, predicted, there)
		} else {
			there = a.run(t, gang, predicted, there)
		}
		if slices.ContainsFunc(gang.pods, serves) {
			a.served++
		}
		if predicted.Placement != nil && predicted.tightest != nil && fmt.Sprint(*predicted.tightest) != fmt.Sprint(*predicted.Placement) {
			a.followed++
		}
		switch {
		case predicted.Placement == nil:
			a.waits++
		case len(predicted.Victims)+len(predicted.growth.Victims) > 0:
			a.nominations++
			fallthrough
		default:
			a.fits++
		}
		// Members that wait would take what others leave, at any time.
		if !a.settled(t, gang) || !w.contended && w.chance(3) {
			a.removeGang(t, gang)
			continue
		}
		there = append(there, gang)
	}
}

// run submits a gang, and returns who is left of those that were there.
func (a *agreement) run(t *testing.T, g worldGang, predicted prediction, there []worldGang) (left []worldGang) {
	t.Helper()
	a.submit(t, g)
	return a.decided(t, g, predicted, there)
}

// decided waits for what comes of a gang that has been submitted, and returns who is left of those that were there.
func (a *agreement) decided(t *testing.T, g worldGang, predicted prediction, there []worldGang) (left []worldGang) {
	t.Helper()
	a.requireAgrees(t, g, predicted)
	return a.requireEvicted(t, there, slices.Concat(predicted.Victims, predicted.growth.Victims))
}

// strange makes pods in some worlds that hold GPUs, of which nobody knows which, and returns them as gangs.
func (a *agreement) strange(t *testing.T, w *world) (there []worldGang) {
	t.Helper()
	for n := range pick(w, 0, 0, 1, 2) {
		s := w.newStrange(pick(w, w.namespaces...), fmt.Sprintf("%s-stranger-%d", w.id, n), pick(w, w.nodes...).object)
		require.NoError(t, s.create(t.Context()))
		a.strangers++
		there = append(there, worldGang{namespace: s.pod.Namespace, name: s.pod.Name, pods: []*corev1.Pod{s.pod}})
	}
	return there
}

// requireHeldBack submits a gang while the quota tree is invalid: all its members wait for that, until it is valid again.
func (a *agreement) requireHeldBack(t *testing.T, w *world, g worldGang, broken *unstructured.Unstructured) {
	t.Helper()
	_, _, why := inventory.ReadQuotaTree(broken)
	require.Error(t, why)
	_, err := cluster.client.Apply(t.Context(), broken)
	require.NoError(t, err)
	a.probeFor(t, worldGang{namespace: g.namespace, name: g.name + "-broken"}, why.Error(), func(pod *corev1.Pod) {
		pod.Labels[contract.QuotaLabel] = "any"
	})
	a.submit(t, g)
	a.await(t, g.key(), func() error {
		for _, p := range g.pods[:g.late] {
			if err := a.saysWhy(g, p, why.Error()); err != nil {
				return err
			}
		}
		return nil
	})
	_, err = cluster.client.Apply(t.Context(), w.tree)
	require.NoError(t, err)
	a.heldBack++
}

// carry writes the planned placement on the gang's pods.
func carry(t *testing.T, g worldGang, predicted prediction) {
	t.Helper()
	var record contract.PlannedPlacement
	for _, a := range predicted.Placement.Assignments {
		node, _ := predicted.view.Node(a.Node)
		record.Nodes = append(record.Nodes, contract.PlannedNode{Node: a.Node, Members: map[string][]int{a.Member: inventory.Indexes(gpusOf(a), node.GPUs)}})
	}
	text, err := record.Text()
	require.NoError(t, err)
	for _, p := range g.pods {
		p.Annotations = map[string]string{contract.PlannedPlacementAnnotation: text}
	}
}

// gpusOf are the GPUs of which a member has the whole or a part.
func gpusOf(a placement.Assignment) gpu.Set {
	set := a.Own
	for _, share := range a.Shares {
		set |= gpu.SetOf(share.GPU)
	}
	return set
}

// requireKept checks that the planner keeps to an earlier plan, or says why not.
func (a *agreement) requireKept(t *testing.T, before, now prediction) prediction {
	t.Helper()
	if now.Placement == nil || now.Verdict.NotAsPlanned != "" {
		a.moved++
		return now
	}
	places := func(p placement.Placement) map[string]string {
		at := map[string]string{}
		for _, assignment := range p.Assignments {
			at[assignment.Member] = fmt.Sprint(assignment.Node, " ", gpusOf(assignment))
		}
		return at
	}
	require.Equal(t, places(*before.Placement), places(*now.Placement))
	a.kept++
	return now
}

// requireEvicted waits until the victims have gone, checks that nobody else has, and
// returns the gangs that are left.
func (a *agreement) requireEvicted(t *testing.T, there []worldGang, victims []placement.Victim) (left []worldGang) {
	t.Helper()
	evicted := map[string]bool{}
	for _, victim := range victims {
		for _, uid := range victim.Pods {
			evicted[uid] = true
		}
	}
	for _, g := range there {
		a.await(t, g.key(), func() error {
			for _, p := range g.pods {
				if gone := a.pod(p) == nil; gone != evicted[string(p.UID)] {
					return fmt.Errorf("%s: evicted is %v, planned %v", p.Name, gone, !gone)
				}
			}
			return nil
		})
		all := len(g.pods)
		g.pods = slices.DeleteFunc(slices.Clone(g.pods), func(p *corev1.Pod) bool { return evicted[string(p.UID)] })
		switch {
		case len(g.pods) == all:
		case len(g.pods) > 0:
			a.shrunk++
		default:
			a.removeGang(t, g)
			continue
		}
		left = append(left, g)
	}
	return left
}

// settled waits until the scheduler has decided about late pods, too, and reports
// whether all pods of a gang run.
func (a *agreement) settled(t *testing.T, g worldGang) (all bool) {
	t.Helper()
	placed := false
	for _, p := range g.pods[:g.late] {
		placed = placed || a.pod(p).Spec.NodeName != ""
	}
	if !placed {
		return false
	}
	all = true
	a.await(t, "late pods of "+g.key(), func() error {
		all = true
		for i, p := range g.pods {
			pod := a.pod(p)
			if i >= g.late && (pod == nil || pod.Spec.NodeName == "" && reason([]corev1.Pod{*pod}) == "") {
				return fmt.Errorf("nothing is known of %s", p.Name)
			}
			all = all && pod.Spec.NodeName != ""
		}
		return nil
	})
	return all
}

// probe waits until the scheduler has seen what there is: a pod that no node can take
// waits for a reason that counts all nodes, and one with an unknown quota leaf for that
// reason once there is a tree.
func (a *agreement) probe(t *testing.T, g worldGang, changes ...func(*corev1.Pod)) {
	t.Helper()
	g.add(contract.ReplicaWorker, 1, append(changes, askMuch)...)
	a.awaitProbe(t, g, predict(t, g).Verdict.String())
}

// probeFor waits until the scheduler has seen what makes a pod wait for a reason.
func (a *agreement) probeFor(t *testing.T, g worldGang, why string, change func(*corev1.Pod)) {
	t.Helper()
	g.add(contract.ReplicaWorker, 1, askMuch, change)
	a.awaitProbe(t, g, why)
}

// askMuch makes a pod one that no node can take.
func askMuch(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Requests[contract.ResourceTopologyGPU] = quantity(64)
	pod.Spec.Containers[0].Resources.Limits[contract.ResourceTopologyGPU] = quantity(64)
}

func (a *agreement) awaitProbe(t *testing.T, g worldGang, why string) {
	t.Helper()
	begin := time.Now()
	for said := ""; said != why; { // new numbers are told to new pods at once
		require.Less(t, time.Since(begin), settled, "probe %s says %q; planned reason %q", g.name, said, why)
		a.submit(t, g)
		a.await(t, g.key(), func() error {
			pod := a.pod(g.pods[0])
			if pod == nil || reason([]corev1.Pod{*pod}) == "" {
				return fmt.Errorf("it says nothing; planned reason %q", why)
			}
			said = reason([]corev1.Pod{*pod})
			return nil
		})
		a.removeGang(t, g)
	}
}

// removeGang deletes gangs with their PodGroups and waits until the pods are gone.
func (a *agreement) removeGang(t *testing.T, gangs ...worldGang) {
	t.Helper()
	var pods []*corev1.Pod
	for _, g := range gangs {
		pods = append(pods, g.pods...)
		if g.podGroup != nil {
			require.NoError(t, cluster.client.Dynamic.Resource(podGroups).Namespace(g.namespace).Delete(context.Background(), g.name, metav1.DeleteOptions{}))
		}
	}
	a.remove(t, pods)
}

// prediction is what the planner says, with the view of which it says it, and what the gang
// takes from others once it runs.
type prediction struct {
	placement.Result
	growth placement.Result
	view   *snapshot.View
	// tightest is the placement by the tightest fit, nil when that was asked for.
	tightest *placement.Placement
}

// predict plans a gang on a snapshot of the cluster, as the provider does, and the
// places that it takes from others.
func predict(t *testing.T, g worldGang) prediction {
	t.Helper()
	snapshot, err := clusterlist.Snapshot(t.Context(), cluster.client)
	require.NoError(t, err)
	gang, problems := inventory.Gang(g.pods, g.podGroup, snapshot.View.Quota())
	require.Empty(t, problems)
	result := preemption.Plan(snapshot.View, gang)
	predicted := prediction{Result: result, growth: preemption.Growth(snapshot.View, gang, result), view: snapshot.View}
	if snapshot.View.Workload() != nil {
		tightest := snapshot.View.Clone()
		tightest.SetWorkload(nil)
		predicted.tightest = preemption.Plan(tightest, gang).Placement
	}
	return predicted
}

// submit creates a gang's pods all at once, and those that are late after the others.
// Its PodGroup comes last, once the scheduler has seen the pods: a gang may be planned
// as soon as it has as many members as it needs, and here it is to be planned whole.
func (a *agreement) submit(t *testing.T, g worldGang) {
	t.Helper()
	create := func(p *corev1.Pod) error {
		created, err := api().CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err == nil {
			p.UID = created.UID
		}
		return err
	}
	inParallel(t, g.pods[:g.late], create)
	inParallel(t, g.pods[g.late:], create)
	if g.podGroup == nil {
		return
	}
	a.probe(t, worldGang{namespace: "default", name: g.name + "-probe"})
	_, err := cluster.client.Dynamic.Resource(podGroups).Namespace(g.namespace).Create(t.Context(), g.podGroup, metav1.CreateOptions{})
	require.NoError(t, err)
}

// requireAgrees waits until the scheduler has decided about every pod of a gang, and
// checks each decision.
func (a *agreement) requireAgrees(t *testing.T, g worldGang, predicted prediction) {
	t.Helper()
	planned := map[string]placement.Assignment{}
	for _, places := range []*placement.Placement{predicted.Placement, predicted.growth.Placement} {
		if places != nil {
			for _, assignment := range places.Assignments {
				planned[assignment.Member] = assignment
			}
		}
	}
	names := inventory.MemberNames(g.pods)
	a.await(t, g.key(), func() error {
		running := len(planned)
		if g.late < len(g.pods) { // what spread rules count changes with the launcher's place, which kube-scheduler chooses
			running = max(running, a.bound(g.pods[:g.late]))
		}
		for i, p := range g.pods[:g.late] {
			want, placed := planned[names[i]]
			if predicted.Placement == nil {
				if err := a.saysWhy(g, p, predicted.Verdict.String()); err != nil {
					return fmt.Errorf("%s: %w", names[i], err)
				}
				continue
			}
			if !placed && g.late < len(g.pods) && a.pod(p) != nil && a.pod(p).Spec.NodeName != "" {
				continue
			}
			if err := a.agrees(p, want, placed, running, predicted); err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
		}
		return nil
	})
}

// bound counts the pods that have nodes.
func (a *agreement) bound(pods []*corev1.Pod) (n int) {
	for _, p := range pods {
		if pod := a.pod(p); pod != nil && pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// saysWhy says in what a pod differs from the planned reason to wait. The scheduler may decide
// before a gang's late pods have appeared; of what it says then, only the pod that tells the latest
// numbers says more later.
func (a *agreement) saysWhy(g worldGang, p *corev1.Pod, planned string) error {
	pod := a.pod(p)
	if pod == nil {
		return fmt.Errorf("not seen yet")
	}
	have, _, elsewhere := strings.Cut(reason([]corev1.Pod{*pod}), contract.LatestNumbers)
	same := strings.TrimSuffix(have, ".") == strings.TrimSuffix(planned, ".") // a sentence may follow
	if pod.Spec.NodeName == "" && (same || elsewhere && g.late < len(g.pods)) {
		return nil
	}
	return fmt.Errorf("node %q, reason %q; planned reason %q", pod.Spec.NodeName, have, planned)
}

// agrees says in what the fate of a pod differs from the plan, which has a place for the gang.
func (a *agreement) agrees(p *corev1.Pod, want placement.Assignment, placed bool, running int, predicted prediction) error {
	pod := a.pod(p)
	switch {
	case pod == nil:
		return fmt.Errorf("not seen yet")
	case !placed:
		if pod.Spec.NodeName != "" {
			return fmt.Errorf("on node %q; planned to wait", pod.Spec.NodeName)
		}
		stays := fmt.Sprintf("runs with %s; there is no room for more.", inventory.Members(running))
		if have := reason([]corev1.Pod{*pod}); !strings.Contains(have, stays) {
			return fmt.Errorf("waits with the reason %q; a member that is planned to wait says: %s", have, stays)
		}
		return nil
	}
	record, _, err := contract.AllocationFrom(pod.Annotations)
	if err != nil {
		return err
	}
	node, _ := predicted.view.Node(want.Node)
	indexes := func(set gpu.Set) string { return contract.IndexList(inventory.Indexes(set, node.GPUs)) }
	have := placement.Assignment{Member: want.Member, Node: pod.Spec.NodeName, Ring: want.Ring}
	for _, share := range record.Shares {
		have.Shares = append(have.Shares, placement.GPUShare(share))
	}
	shares := slices.Clone(want.Shares)
	for i := range shares {
		shares[i].GPU = inventory.Indexes(gpu.SetOf(shares[i].GPU), node.GPUs)[0]
	}
	gpus := contract.IndexList(record.GPUs) + " of " + contract.IndexList(record.Visible)
	if planned := indexes(want.Own) + " of " + indexes(want.Visible); gpus != planned || record.NVLinkRings != want.Ring.NVLinkRings ||
		record.RingGBps != want.Ring.GBps || fmt.Sprint(have) != fmt.Sprint(placement.Assignment{Member: want.Member, Node: want.Node, Ring: want.Ring, Shares: shares}) {
		return fmt.Errorf("on node %q with GPUs %s, shares %v, ring %d %g (%s); planned %+v",
			pod.Spec.NodeName, gpus, record.Shares, record.NVLinkRings, record.RingGBps, reason([]corev1.Pod{*pod}), want)
	}
	return nil
}
