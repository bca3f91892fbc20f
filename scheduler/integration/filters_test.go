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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

// The suite makes clusters and gangs for the filters of kube-scheduler from a seed. One of
// them is tried again by its name: -run 'TestFilters$/^VolumeRestrictions$/^16$'.
var (
	filterSeed     = flag.Uint64("filters.seed", 1, "seed of the filter suite")
	filterClusters = flag.Int("filters.clusters", 3, "number of clusters for each class of filters in the filter suite")
)

// TestFilters holds gangs to what single pods could do: for every filter plugin of
// kube-scheduler, a gang is placed whenever its pods could be, one after the other in some
// order, as an exhaustive search with the filters themselves finds out; it is placed only
// so that each filter agrees; and where it waits for a filter, nobody is told to buy nodes.
func TestFilters(t *testing.T) {
	connect(t)
	startScheduler(t)
	a := agreement{watched: startWatching(t)}
	o := newOracle(t)
	namespace, err := api().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "filters-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	fits, waits := 0, 0
	for class := range filterClasses {
		for i := range *filterClusters {
			t.Run(fmt.Sprintf("%s/%d", filterClasses[class].name, i), func(t *testing.T) {
				random := rand.New(rand.NewPCG(*filterSeed, uint64(1000*class+i)))
				w := newFilterWorld(t, random, fmt.Sprintf("f%d-%d", class, i), namespace.Name)
				filterClasses[class].make(w)
				if other := random.IntN(3 * len(filterClasses)); other < len(filterClasses) && other != class && !w.clashes(class, other) {
					filterClasses[other].make(w)
				}
				if w.hold(t, &a, o) {
					fits++
				} else {
					waits++
				}
			})
		}
	}
	t.Logf("seed %d: %d gangs placed as single pods could be, %d wait as they must", *filterSeed, fits, waits)
	if fits+waits < *filterClusters*len(filterClasses) {
		return // not all were tried
	}
	require.Greater(t, fits, *filterClusters*len(filterClasses)/4)
	require.Greater(t, waits, *filterClusters*len(filterClasses)/20)
}

// TestFilterClasses holds the classes of the suite to the filters of kube-scheduler's default profile: one that a version of
// Kubernetes adds has a class, or a reason why it needs none.
func TestFilterClasses(t *testing.T) {
	connect(t)
	filters := map[string]bool{}
	for _, plugin := range newOracle(t).filters.ListPlugins().Filter.Enabled {
		filters[plugin.Name] = true
		has := slices.ContainsFunc(filterClasses, func(c filterClass) bool { return c.plugin() == plugin.Name })
		assert.NotEqual(t, withoutClass[plugin.Name] != "", has, plugin.Name)
	}
	for _, class := range filterClasses {
		assert.True(t, filters[class.plugin()], class.name)
	}
}

// clashes reports whether two classes change the same field of a pod, or make the same object.
func (*filterWorld) clashes(a, b int) bool {
	affinity := func(i int) bool { return strings.HasSuffix(filterClasses[i].name, "Affinity") }
	devices := func(i int) bool { return strings.HasPrefix(filterClasses[i].name, "DynamicResources") }
	return affinity(a) && affinity(b) || devices(a) && devices(b)
}

// hold compares the scheduler with the oracle, and reports whether the gang fits.
func (w *filterWorld) hold(t *testing.T, a *agreement, o *oracle) bool {
	t.Helper()
	ctx := context.Background() // the world is taken away after the test's own context has ended
	remove := (&world{nodes: w.nodes}).create(t)
	defer func() {
		remove()
		for _, clean := range w.clean {
			assert.NoError(t, clean(ctx))
		}
	}()
	a.awaitReady(t, w.nodes)
	inParallel(t, w.there, createPod(ctx))
	defer a.remove(t, w.there)
	for _, begin := range w.begin {
		require.NoError(t, begin(ctx))
	}
	a.probe(t, worldGang{namespace: "default", name: w.id + "-probe"})
	o.await(t, w.seen)
	all, err := api().CoreV1().Nodes().List(ctx, metav1.ListOptions{}) // the platform's own is a domain, too
	require.NoError(t, err)
	nodes := make([]*corev1.Node, len(all.Items))
	for i := range all.Items {
		nodes[i] = &all.Items[i]
	}
	can := o.ask(t, nodes, w)

	pods := slices.Concat(w.pods(), w.late)
	inParallel(t, pods, createPod(ctx))
	defer a.remove(t, pods)
	if !can && w.awaitReason(t, a) && !o.ask(t, nodes, w) {
		return false
	}
	a.await(t, "gang "+w.id+", which fits, to be bound", func() error {
		if live := w.bound(a); !w.enough(live) {
			return fmt.Errorf("%d of %v are bound: %s", len(live), w.needs, w.reason(a))
		}
		return nil
	})
	require.Eventually(t, func() bool {
		could, err := o.couldHave(ctx, w.bound(a), nil)
		return err == nil && could
	}, settled, time.Millisecond, "the filters allow what was placed")
	return true
}

// bound are the pods of the gang that have a node, those that start late, too.
func (w *filterWorld) bound(a *agreement) (live []*corev1.Pod) {
	for _, p := range slices.Concat(w.pods(), w.late) {
		if pod := a.pod(p); pod != nil && pod.Spec.NodeName != "" {
			live = append(live, pod)
		}
	}
	return live
}

// ask reports whether the gang can be placed. What the oracle follows may reach its filters
// after the scheduler's: a no counts once the scheduler has looked at the gang, too.
func (o *oracle) ask(t *testing.T, nodes []*corev1.Node, w *filterWorld) (can bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.look(nodes, w.there)
		answer, err := o.canBe(context.Background(), w.pods(), w.enough)
		can = answer
		return err == nil
	}, settled, time.Millisecond, "the filters see what the gang uses")
	return can
}

// reason is why the gang waits, as one of its pods says.
func (w *filterWorld) reason(a *agreement) string {
	for _, p := range w.pods() {
		if pod := a.pod(p); pod != nil {
			if text := reason([]corev1.Pod{*pod}); text != "" {
				return text
			}
		}
	}
	return ""
}

// awaitReason waits until a gang that is not expected to fit says so, and checks that nobody
// is told to buy nodes for what a filter refuses. It is false when a member runs.
func (w *filterWorld) awaitReason(t *testing.T, a *agreement) bool {
	t.Helper()
	text, runs := "", false
	a.await(t, "gang "+w.id+", which does not fit, to say so", func() error {
		text = w.reason(a)
		if runs = len(w.bound(a)) > 0; runs {
			return nil
		}
		if !strings.Contains(text, "members fit") && !strings.HasPrefix(text, "pod ") {
			return fmt.Errorf("it says %q", text)
		}
		return nil
	})
	t.Log(text)
	if strings.Contains(text, "refused") {
		assert.NotContains(t, text, "pool size")
	}
	return !runs
}

func createPod(ctx context.Context) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		_, err := api().CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	}
}

// await waits until the oracle has seen objects.
func (o *oracle) await(t *testing.T, objects []seenObject) {
	t.Helper()
	for _, object := range objects {
		require.Eventually(t, func() bool {
			stored, ok, err := o.stores[object.resource].GetByKey(object.key)
			if err != nil || !ok {
				return false
			}
			known, ok := stored.(metav1.Object)
			return object.state == nil || ok && !follow.Older(known, object.state)
		}, settled, time.Millisecond, "%s %s", object.resource, object.key)
	}
}
