// Package promises holds `terraform plan` to what it says: generated configurations are
// planned and applied by the real terraform on the local platform, while the cluster
// changes behind its back. What the plan promised must happen, what it refused must
// really not fit, and what breaks a promise must be announced before it breaks.
package promises

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// The suite makes worlds, and configurations one after the other in each, from a seed.
var (
	seed   = flag.Uint64("promises.seed", 3, "seed of the promise suite")
	worlds = flag.Int("promises.worlds", 2, "number of worlds in the promise suite")
	first  = flag.Int("promises.first", 0, "the first of the worlds to run")
	only   = flag.Int("promises.only", -1, "the one world to run")
)

// roundsPerWorld is how many configurations follow each other in one world.
const roundsPerWorld = 5

var gpuNodes = schema.GroupVersionResource{Group: contract.GPUNodeGroup, Version: contract.GPUNodeVersion, Resource: contract.GPUNodeResource}

func TestMain(m *testing.M) { os.Exit(localtest.Main(m, "--trainer")) }

func TestPromises(t *testing.T) {
	acctest.ClearEnv(t)
	platform := localtest.Start(t)
	client, err := kube.New(platform.Config(t))
	require.NoError(t, err)
	l := &live{platform: platform, Client: client}
	install(t, platform)
	prepare(t, client)
	var total tally
	for n := *first; n < *first+*worlds; n++ {
		if *only >= 0 && n != *only {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(*seed, uint64(n))), names: rand.New(rand.NewPCG(*seed, ^uint64(n))), id: fmt.Sprintf("w%d", n)}
			w := &world{live: l, generator: g, workspace: newWorkspace(t, platform), tally: &total}
			w.run(t)
		})
	}
	t.Logf("seed %d: %s", *seed, total)
	if *only < 0 {
		require.NotZero(t, total.kept)
	}
}

// install puts scheduler and node agent into the cluster, as users do.
func install(t *testing.T, platform *localtest.Platform) {
	t.Helper()
	w := newWorkspace(t, platform)
	c := configuration{}.render()
	scheduler := map[string]any{"image": "gpuplan-scheduler:local"}
	if reserves() {
		scheduler["reserve_after"] = "1s"
	}
	c["resource"] = map[string]any{
		"gpuplan_scheduler":  map[string]any{"this": scheduler},
		"gpuplan_node_agent": map[string]any{"this": map[string]any{"image": "gpuplan-node-agent:local"}},
	}
	w.write(t, c)
	require.Empty(t, w.plan(t).errors())
	require.Empty(t, w.apply(t).errors())
}

// reserves reports whether gangs of others that wait have capacity reserved.
func reserves() bool { return *seed%2 == 1 }

func prepare(t *testing.T, client *kube.Client) {
	t.Helper()
	_, err := client.Typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: otherNamespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for name, value := range priorities {
		if name == "" {
			continue
		}
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		localtest.CreatePriorityClass(t, client.Typed, class)
	}
}

// tally counts what has been seen.
type tally struct{ configurations, kept, announced, refused, renamed int }

func (n tally) String() string {
	return fmt.Sprintf("%d configurations: %d jobs placed as planned, %d announced to wait or to be placed otherwise, %d plans refused, %d jobs renamed",
		n.configurations, n.kept, n.announced, n.refused, n.renamed)
}

// world is a cluster with a configuration that changes, and that others change.
type world struct {
	*live
	*generator
	workspace
	*tally
	log []string // what happened, for the message of a failure
}

func (w *world) note(format string, values ...any) {
	w.log = append(w.log, fmt.Sprintf(format, values...))
}

func (w *world) run(t *testing.T) {
	defer func() {
		if t.Failed() {
			t.Logf("what happened:\n%s\nthe configuration:\n%s\nthe pods:\n%s", strings.Join(w.log, "\n"), w.configuration(), strings.Join(w.live.describe(t), "\n"))
		}
		w.end(t)
	}()
	var current configuration
	for round := range roundsPerWorld {
		next := w.first()
		if round > 0 {
			for range w.IntN(3) {
				w.note("%d: live: %s", round, w.live.change(t, w.generator, current))
			}
			next = w.next(current)
		}
		w.configurations++
		current = w.round(t, round, current, next)
	}
}

// end destroys the world's resources, which no check of a plan may hinder.
func (w *world) end(t *testing.T) {
	w.live.clear(t)
	if t.Failed() { // what is written may not be valid
		w.write(t, configuration{}.render())
	}
	require.Empty(t, w.destroy(t).errors(), "destroy")
	w.await(t, "everything is gone", func() bool { return len(w.nodes(t)) == 0 && len(w.pods(t)) == 0 })
}

// round plans and applies a configuration, or what of it the plan does not refuse.
func (w *world) round(t *testing.T, round int, current, next configuration) configuration {
	t.Helper()
	if i, ok := w.one(next); ok && w.chance(20) {
		current = w.target(t, round, current, next, i)
	}
	replaced, _ := w.one(current)
	if !w.chance(25) {
		replaced = instance{}
	}
	for {
		w.write(t, next.render())
		s := w.look(t, current, next)
		if len(next.replacing(replaced)) > 0 {
			s.replaced = replaced.id
		}
		before := s.pods
		s.plan = w.plan(t, next.replacing(replaced)...)
		plan := s.plan
		w.note("%d: planned, -replace=%s:\n%s", round, s.replaced, plan.diagnostics)
		w.requireDue(t, round, s)
		if refused := plan.errors(); len(refused) > 0 {
			w.refused++
			if slices.ContainsFunc(refused, diagnostic.replaces) {
				replaced = instance{}
				continue
			}
			next = s.without(refused[0])
			require.NotEqual(t, s.next, next, "round %d: refused, and nothing can be taken back: %s", round, refused)
			continue
		}
		require.False(t, slices.ContainsFunc(next.jobs, func(j job) bool { return j.literal }), "round %d: a job comes after an ID in quotes", round)
		w.requireNamesToBeNames(t, round, next, plan, next.replacing(replaced)...)
		replaced = instance{}
		changed := len(current.pools) > 0 && w.chance(50)
		if changed {
			for range 1 + w.IntN(3) {
				w.note("%d: live, after the plan: %s", round, w.live.change(t, w.generator, current))
			}
			before = w.pods(t)
		}
		applied := w.apply(t)
		w.note("%d: applied:\n%s", round, applied)
		if failed := applied.errors(); len(failed) > 0 {
			if kept, ok := failed.keepNodes(current, next); ok {
				require.True(t, changed || plan.warnsOf("obs that wait may start on nodes that go"), "round %d: the apply of a plan takes nodes away: %s", round, failed)
				next = kept
				continue
			}
			current = next
			for _, i := range w.failing(t, next, failed) {
				require.True(t, changed || s.excuse(i, plan.diagnostics) == start, "round %d: the apply of a plan fails for %s: %s", round, i.id, failed)
				w.announced++
				next = next.without(i.key)
			}
			continue
		}
		w.settle(t)
		said := slices.Clone(plan.diagnostics)
		if changed { // before an apply, nobody can know better than the plan
			said = append(said, applied...)
		}
		w.requireKept(t, round, s, said)
		if !changed {
			w.requireNoFalseAlarm(t, round, s, applied)
		}
		if changed || slices.ContainsFunc(plan.diagnostics, func(d diagnostic) bool { return strings.Contains(d.Detail, "the apply names them") }) {
			plan.diagnostics = append(plan.diagnostics, applied...)
		}
		w.requireNobodyElseEvicted(t, round, plan, before)
		if again, same := w.unchanged(t); !same {
			require.True(t, changed, "round %d: the second plan is not empty:\n%s", round, again)
			w.note("%d: planned once more:\n%s", round, again)
			current = next
			continue // what was changed after the plan is repaired
		}
		return next
	}
}

// one is one of the jobs of a configuration, if there is any.
func (w *world) one(c configuration) (i instance, ok bool) {
	all := c.instances()
	if len(all) == 0 {
		return i, false
	}
	return pick(w.generator, all...), true
}

// replacing are the options by which a plan replaces a job that may be there no more.
func (c configuration) replacing(i instance) []string {
	if !slices.ContainsFunc(c.instances(), func(other instance) bool { return other.address == i.address && other.id == i.id }) {
		return nil
	}
	return []string{"-replace=" + i.address}
}

// target plans one resource, and applies what is not refused. All others stay as they are: they have
// their places, and none of them is evicted without a word. It returns what is there then.
func (w *world) target(t *testing.T, round int, current, next configuration, i instance) configuration {
	t.Helper()
	part := current.having(next, i.key)
	w.write(t, next.render())
	s := w.look(t, current, part)
	s.part, s.rest = true, next.instances()
	s.plan = w.plan(t, "-target=gpuplan_training_job."+i.key)
	plan := s.plan
	w.note("%d: planned, -target=%s:\n%s", round, i.key, plan.diagnostics)
	w.requireDue(t, round, s)
	if len(plan.errors()) > 0 {
		return current
	}
	applied := w.apply(t)
	w.note("%d: applied:\n%s", round, applied)
	w.settle(t)
	w.requireNobodyElseEvicted(t, round, plan, s.pods)
	if len(applied.errors()) > 0 {
		return current
	}
	w.requireKept(t, round, s, plan.diagnostics)
	return part
}

// keepNodes takes back that a pool shrinks when that is refused, since jobs would lose their nodes.
func (all diagnostics) keepNodes(current, next configuration) (kept configuration, refused bool) {
	if !slices.ContainsFunc(all, func(d diagnostic) bool { return strings.Contains(d.Detail, "shrinks node pool") }) {
		return next, false
	}
	for i, p := range next.pools {
		if old, ok := current.pool(p.name); ok && old.size > p.size {
			next = next.clone()
			next.pools[i].size = old.size
			return next, true
		}
	}
	return next, false
}

// requireDue checks that what a plan says is right.
func (w *world) requireDue(t *testing.T, round int, s *snapshot) {
	t.Helper()
	for _, d := range s.plan.diagnostics {
		r, known := rules()[d.kind()]
		require.True(t, known || d.Severity != "error", "round %d: no plan of this configuration may be refused so: %s", round, d)
		require.True(t, !known || r.holds(s, d), "round %d: the plan says without need: %s", round, d)
	}
}

// without is the next configuration without what a plan refuses.
func (s *snapshot) without(d diagnostic) configuration {
	if back := rules()[d.kind()].back; back != nil {
		return back(s, d)
	}
	i, _ := s.next.about(d)
	return s.next.without(i.key)
}

// about is the job of which a diagnostic speaks: the one that it names, which may stand at
// another's address.
func (c configuration) about(d diagnostic) (i instance, found bool) {
	all, at, first := c.instances(), -1, len(d.Detail)
	for k, i := range all {
		place := strings.Index(d.Detail, "Job "+i.id+" ")
		if strings.HasPrefix(d.Summary, "Job "+i.id+": ") {
			place = 0
		}
		if place >= 0 && (place < first || place == first && i.address == d.Address) { // others may be spoken of, too, and its name may be that of one that goes
			at, first = k, place
		}
	}
	if at < 0 {
		at = slices.IndexFunc(all, func(i instance) bool { return i.address == d.Address })
	}
	if at < 0 {
		return i, false
	}
	return all[at], true
}

// failing are the jobs that an apply could not start any more.
func (w *world) failing(t *testing.T, c configuration, failed diagnostics) (jobs []instance) {
	t.Helper()
	for _, i := range c.instances() {
		if slices.ContainsFunc(failed, func(d diagnostic) bool { return d.Address == i.address }) {
			jobs = append(jobs, i)
		}
	}
	require.NotEmpty(t, jobs, "the apply fails for no job: %s", failed)
	return jobs
}

// requireKept compares what the plan said of each job that it starts with what the
// scheduler has done. Of the jobs in said something else was said in time.
func (w *world) requireKept(t *testing.T, round int, s *snapshot, said diagnostics) {
	t.Helper()
	for _, i := range s.starting() {
		excuse := s.excuse(i, said)
		if excuse == start {
			w.announced++
			continue
		}
		promise, made, err := promiseOf(s.plan.changes[i.address])
		require.NoError(t, err)
		if made && excuse == nothing {
			w.await(t, fmt.Sprintf("round %d: %s runs as planned: %v; but: %v\n%s", round, i.id, promise, w.placementOf(t, i), strings.Join(w.log, "\n")), func() bool {
				return promise.keptBy(w.placementOf(t, i))
			})
			w.kept++
			continue
		}
		w.await(t, fmt.Sprintf("round %d: %s runs", round, i.id), func() bool { return len(w.placementOf(t, i)) >= len(s.gang(i, false).needs) })
		if excuse == nothing { // where was left open, whether was not
			w.kept++
		} else {
			w.announced++
		}
	}
}

// requireNoFalseAlarm checks what a plan has said for certain once it was carried out while nothing else happened: a job
// that was to start elsewhere has not started in its place, one for which others were to be evicted does not run beside
// all of them, and the apply has said nothing new.
func (w *world) requireNoFalseAlarm(t *testing.T, round int, s *snapshot, applied diagnostics) {
	t.Helper()
	now := map[string]bool{}
	for _, p := range w.pods(t) {
		now[string(p.UID)] = true
	}
	for _, d := range s.plan.diagnostics {
		i, found := s.next.about(d)
		if !found || !s.plan.changes[i.address].starts(i) {
			continue
		}
		at := w.placementOf(t, i)
		switch promise, made, _ := promiseOf(s.plan.changes[i.address]); d.kind() {
		case notWherePlanned:
			require.False(t, made && promise.keptBy(at), "round %d: %s runs where it is planned: %s", round, i.id, d)
		case wouldEvict:
			evicted := slices.ContainsFunc(s.holding(s.leftFor(i)), func(p corev1.Pod) bool { return d.names(idOf(p)) && !now[string(p.UID)] })
			require.True(t, evicted || len(at) < i.members() || !strings.Contains(d.Detail, " has no free place, "), "round %d: %s runs, and nobody was evicted: %s", round, i.id, d)
		}
	}
	for _, d := range applied {
		i, found := s.next.about(d)
		require.False(t, found && late[d.kind()] != nothing && s.excuse(i, s.plan.diagnostics) == nothing, "round %d: the apply says what the plan has not: %s", round, d)
	}
}

// requireNamesToBeNames checks that jobs whose names change are planned as if they had kept them and
// were replaced for something else. One that takes the name of another waits for the end of that one
// as well, and has room where that was; those that come after it are planned around it.
func (w *world) requireNamesToBeNames(t *testing.T, round int, c configuration, plan planned, options ...string) {
	t.Helper()
	twin := c.clone()
	taken := map[string]bool{}
	for _, change := range plan.changes {
		taken[fmt.Sprintf("%s/%s", change.Before["namespace"], change.Before["name"])] = true
	}
	var renamed []instance
	takes := map[string]bool{} // by the keys of jobs
	for at := range twin.jobs {
		for k, i := range c.jobs[at].instances() {
			change := plan.changes[i.address]
			takes[i.key] = takes[i.key] || takes[i.after]
			if !change.does("create") || !change.does("delete") {
				continue
			}
			was := fmt.Sprintf("%s/%s", change.Before["namespace"], change.Before["name"])
			if was == i.id {
				continue
			}
			if takes[i.key] = takes[i.key] || taken[i.id]; !takes[i.key] {
				renamed = append(renamed, i)
			}
			own := twin.jobs[at].instances()[k]
			twin.jobs[at].namespace = fmt.Sprint(change.Before["namespace"])
			twin.jobs[at].name = strings.TrimSuffix(fmt.Sprint(change.Before["name"]), strings.TrimPrefix(own.id, own.namespace+"/"+own.name))
			twin.jobs[at].image = c.jobs[at].image + 100
			require.False(t, slices.ContainsFunc(plan.diagnostics, func(d diagnostic) bool {
				return strings.HasPrefix(d.Summary, "Job starts when others have left") && d.Address == i.address && d.names(was)
			}), "round %d: %s waits for itself", round, i.id)
		}
	}
	if len(renamed) == 0 {
		return
	}
	w.write(t, twin.render())
	other := w.planInto(t, "twin", options...)
	w.write(t, c.render())
	if len(other.errors()) > 0 {
		w.note("%d: without new names:\n%s", round, other.diagnostics)
		return // jobs without an order are looked at in the order of their names
	}
	for _, i := range renamed {
		require.Equal(t, other.changes[i.address].After["planned_placement"], plan.changes[i.address].After["planned_placement"], "round %d: %s", round, i.id)
		w.renamed++
	}
}

// requireNobodyElseEvicted checks that all pods that ran still do, unless their job
// changed or the plan named them, or the apply where the plan said that it will, and no disruption budget keeps them.
func (w *world) requireNobodyElseEvicted(t *testing.T, round int, plan planned, before []corev1.Pod) {
	t.Helper()
	changed := map[string]bool{}
	for address, change := range plan.changes {
		if strings.HasPrefix(address, "gpuplan_training_job.") && !change.does("no-op") && change.Before != nil {
			changed[fmt.Sprintf("%s/%s", change.Before["namespace"], change.Before["name"])] = true
		}
	}
	now, nodes, kept := map[string]bool{}, map[string]bool{}, w.keeping(t)
	for _, p := range w.pods(t) {
		now[string(p.UID)] = true
	}
	for _, n := range w.nodes(t) {
		nodes[n.Name] = true
	}
	for _, p := range before {
		gang := idOf(p)
		budget := p.Labels[foreignLabel] != "" && kept[p.Namespace]
		if !nodes[p.Spec.NodeName] || now[string(p.UID)] || changed[gang] || plan.excuseEviction(gang) && !budget {
			continue
		}
		require.Failf(t, "evicted without a word", "round %d: %s/%s: %s", round, p.Namespace, p.Name, w.said(t, p))
	}
}

// said is what the events of a pod say, one in a line.
func (w *world) said(t *testing.T, p corev1.Pod) string {
	t.Helper()
	var lines strings.Builder
	list, err := w.Typed.CoreV1().Events(p.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	require.NoError(t, err)
	for _, event := range list.Items {
		fmt.Fprintf(&lines, "\n%s %s: %s", event.EventTime.Format(time.StampMilli), event.Reason, event.Message)
	}
	return lines.String()
}

// gangOf is the name of a pod's gang.
func gangOf(p corev1.Pod) string {
	for _, label := range []string{contract.JobNameLabel, contract.JobSetNameLabel, batchv1.JobNameLabel, contract.LightGangLabel} {
		if name := p.Labels[label]; name != "" {
			return name
		}
	}
	return p.Name
}

// idOf is "namespace/name" of a pod's gang, which is that of its job.
func idOf(p corev1.Pod) string { return p.Namespace + "/" + gangOf(p) }
