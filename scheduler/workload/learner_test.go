package workload

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	meters "github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/workload/tally"
)

const namespace = "gpuplan-system"

// after is a time, in seconds after the beginning.
func after(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// newAPI is a fake API server that refuses an update of what has changed since.
func newAPI(objects ...runtime.Object) *fake.Clientset {
	api := fake.NewClientset(objects...)
	var mu sync.Mutex
	revision := 1
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			action.Object.(*corev1.ConfigMap).ResourceVersion = strconv.Itoa(revision)
		case clienttesting.UpdateActionImpl:
			next := action.Object.(*corev1.ConfigMap)
			if next.ResourceVersion != strconv.Itoa(revision) {
				return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), next.Name, fmt.Errorf("changed"))
			}
			revision++
			next.ResourceVersion = strconv.Itoa(revision)
		}
		return false, nil, nil
	})
	return api
}

// scheduler is a learner with what it drives.
type scheduler struct {
	t *testing.T
	*Learner
	cache    *clustercache.Cache
	registry metrics.KubeRegistry
	stop     context.CancelFunc
}

func start(t *testing.T, api *fake.Clientset) *scheduler {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	view := clustercache.New()
	meter, registry := meters.New(view), metrics.NewKubeRegistry()
	meter.Register(registry.MustRegister, registry.CustomMustRegister)
	factory := informers.NewSharedInformerFactory(api, 0)
	learner, err := Follow(ctx, view, meter, api, factory, namespace)
	require.NoError(t, err)
	factory.Start(ctx.Done())
	t.Cleanup(func() { stop(); factory.Shutdown() })
	require.NoError(t, learner.Synced(ctx))
	return &scheduler{t, learner, view, registry, stop}
}

// follows is what the planner places by.
func (s *scheduler) follows() placement.Workload { return s.cache.Snapshot().View.Workload() }

func (s *scheduler) requireFollows(want placement.Workload) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) { assert.Equal(c, want, s.follows()) }, time.Minute, time.Millisecond)
}

// requireArrived waits until so many arrivals wait to be counted.
func (s *scheduler) requireArrived(n int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Len(c, s.tally.Waiting, n)
	}, time.Minute, time.Millisecond)
}

func (s *scheduler) failures(access meters.WorkloadAccess) (n float64) {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() != "gpuplan_workload_failures_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if testutil.LabelsMatch(m, map[string]string{"operation": string(access)}) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func pod(name string, seconds int, gpus int64) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	if gpus > 0 {
		list[contract.ResourceTopologyGPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(after(seconds))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
	}
}

func create(t *testing.T, api *fake.Clientset, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		_, err := api.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func record(t *testing.T, w placement.Workload, seconds int) *corev1.ConfigMap {
	t.Helper()
	data, err := inventory.WorkloadRecord(w, after(seconds))
	require.NoError(t, err)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.WorkloadName, ResourceVersion: "1"}, Data: data}
}

func whole(gpus int) placement.Demand {
	return placement.Demand{Mode: placement.ModeTopology, GPUs: gpus, MilliCPU: 1000}
}

// A scheduler follows what it has written, and the next one what is written there, without
// counting it again.
func TestRestart(t *testing.T) {
	api := newAPI(pod("running", 0, 4), pod("no-gpus", 0, 0))
	first := start(t, api)
	assert.Nil(t, first.follows(), "nothing is recorded")
	assert.True(t, first.write(t.Context(), after(60)))
	first.requireFollows(placement.Workload{whole(4): 1})
	create(t, api, pod("a", 70, 8), pod("b", 71, 8))
	first.requireArrived(2)
	assert.Equal(t, placement.Workload{whole(4): 1}, first.follows(), "nobody places by what is not recorded")
	first.stop()

	second := start(t, api)
	assert.Equal(t, placement.Workload{whole(4): 1}, second.follows(), "it decides as the one before")
	second.requireArrived(2)
	assert.True(t, second.write(t.Context(), after(120)))
	second.requireFollows(placement.Workload{whole(4): 1, whole(8): 2})
	second.requireArrived(0)
	assert.False(t, second.write(t.Context(), after(180)), "nothing is new")
	assert.Zero(t, second.failures(meters.WriteWorkload))

	create(t, api, pod("late", 190, 1))
	second.requireArrived(1)
	update := pod("late", 190, 1)
	update.Labels = map[string]string{"x": "y"}
	_, err := api.CoreV1().Pods("default").Update(t.Context(), update, metav1.UpdateOptions{})
	require.NoError(t, err)
	create(t, api, pod("later", 191, 4))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		second.mu.Lock()
		defer second.mu.Unlock()
		require.NotEmpty(c, second.tally.Waiting)
		assert.Equal(c, tally.Arrival{Created: after(191), Demand: whole(4)}, second.tally.Waiting[len(second.tally.Waiting)-1])
	}, time.Minute, time.Millisecond)
	second.requireArrived(2) // a pod that changes is no arrival
}

// One that does not know yet that another leads writes nothing over what that one has written.
func TestTwoLeaders(t *testing.T) {
	api := newAPI(pod("a", 0, 8), pod("b", 0, 8))
	first, second := start(t, api), start(t, api)
	first.requireArrived(2)
	second.requireArrived(2)
	assert.True(t, first.write(t.Context(), after(60)))
	second.requireFollows(placement.Workload{whole(8): 2}) // so that nothing more is told of this write
	second.mu.Lock()
	second.object, second.tally = nil, tally.Tally{Waiting: []tally.Arrival{{Created: after(0), Demand: whole(8)}, {Created: after(0), Demand: whole(8)}}} // its watch lags behind
	second.mu.Unlock()
	assert.True(t, second.write(t.Context(), after(60)))
	second.set(record(t, placement.Workload{whole(8): 2}, 55))
	create(t, api, pod("c", 70, 4))
	first.requireArrived(1)
	second.requireArrived(1)
	assert.True(t, first.write(t.Context(), after(120)))
	second.requireFollows(placement.Workload{whole(8): 2, whole(4): 1})
	first.requireFollows(placement.Workload{whole(8): 2, whole(4): 1})
	second.mu.Lock()
	second.object = record(t, nil, 0)
	second.object.ResourceVersion = "1"
	second.tally = tally.Tally{Waiting: []tally.Arrival{{Created: after(70), Demand: whole(4)}}}
	second.mu.Unlock()
	assert.True(t, second.write(t.Context(), after(120)))
	have, err := api.CoreV1().ConfigMaps(namespace).Get(t.Context(), contract.WorkloadName, metav1.GetOptions{})
	require.NoError(t, err)
	counted, _, err := inventory.WorkloadOf(have)
	require.NoError(t, err)
	assert.Equal(t, placement.Workload{whole(8): 2, whole(4): 1}, counted)
	assert.Zero(t, first.failures(meters.WriteWorkload)+second.failures(meters.WriteWorkload))
}

// What cannot be read is followed by nobody, and not written over.
func TestUnreadableRecord(t *testing.T) {
	broken := record(t, placement.Workload{whole(8): 3}, 0)
	broken.Data["demands"] = "eight"
	api := newAPI(broken, pod("a", 10, 8))
	s := start(t, api)
	s.requireArrived(1)
	assert.Nil(t, s.follows())
	assert.Equal(t, 1.0, s.failures(meters.ReadWorkload))
	assert.False(t, s.write(t.Context(), after(60)))

	right := record(t, placement.Workload{whole(8): 3}, 0)
	_, err := api.CoreV1().ConfigMaps(namespace).Update(t.Context(), right, metav1.UpdateOptions{})
	require.NoError(t, err)
	s.requireFollows(placement.Workload{whole(8): 3})
	require.NoError(t, api.CoreV1().ConfigMaps(namespace).Delete(t.Context(), contract.WorkloadName, metav1.DeleteOptions{}))
	s.requireFollows(nil)
}

// Without rights the scheduler starts, and places by the tightest fit.
func TestNoRights(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), contract.WorkloadName, fmt.Errorf("no"))
	api := newAPI(record(t, placement.Workload{whole(8): 3}, 0), pod("a", 10, 8))
	api.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	s := start(t, api)
	assert.Nil(t, s.follows())
	assert.Positive(t, s.failures(meters.ReadWorkload))
	assert.False(t, s.write(t.Context(), after(60)), "what is recorded is not known")

	api = newAPI(pod("a", 10, 8))
	api.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
	s = start(t, api)
	assert.True(t, s.write(t.Context(), after(60)))
	assert.Nil(t, s.follows())
	assert.Equal(t, 1.0, s.failures(meters.WriteWorkload))
}
