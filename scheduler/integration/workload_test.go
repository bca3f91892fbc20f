package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// recordWorkload writes what the scheduler is to place by, and takes it away after the test;
// nil is a record that cannot be read.
func recordWorkload(t *testing.T, w placement.Workload) {
	t.Helper()
	recordWorkloadUntil(t, w, time.Now())
}

// recordWorkloadUntil is recordWorkload with the time until which pods count as recorded.
func recordWorkloadUntil(t *testing.T, w placement.Workload, until time.Time) {
	t.Helper()
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.SystemNamespace}}
	_, err := api().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
		t.Cleanup(func() { removeNamespace(t, namespace.Name) })
	}
	data := map[string]string{"demands": "none"}
	if w != nil {
		data, err = inventory.WorkloadRecord(w, until)
		require.NoError(t, err)
	}
	records := api().CoreV1().ConfigMaps(contract.SystemNamespace)
	for { // the scheduler may write its own in between
		require.NoError(t, clientIgnoreNotFound(records.Delete(ctx, contract.WorkloadName, metav1.DeleteOptions{})))
		_, err = records.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: contract.WorkloadName}, Data: data}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
			return
		}
	}
}

func clientIgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// removeNamespace waits until the namespace is gone: another test may make it again.
func removeNamespace(t *testing.T, name string) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, api().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := api().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, settled, 100*time.Millisecond)
}

// awaitWorkload waits until the scheduler places by so many recorded pods.
func (a answering) awaitWorkload(token string, pods int64) {
	a.t.Helper()
	want := fmt.Sprintf("\ngpuplan_workload_pods %d\n", pods)
	require.Eventually(a.t, func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(a.metrics, "https://"))
		if err != nil {
			return false // it starts
		}
		_ = connection.Close()
		status, body := a.get(a.metrics+"/metrics", token)
		return status == http.StatusOK && strings.Contains(body, want)
	}, settled, 20*time.Millisecond, want)
}

// The last half of a GPU is kept for those who ask for halves, when many do: the scheduler
// places by what is recorded, after a restart, too, and by the tightest fit without.
func TestPlacesByTheWorkload(t *testing.T) {
	s := newTestCluster(t, sharedNode("binpack"), sharedNode("binpack"))
	recordWorkloadUntil(t, placement.Workload{}, time.Now().Add(time.Hour)) // the scheduler adds nothing of its own
	scheduler := startScheduler(t)
	s.submit(sharedJob("full", 7, 15, 0))
	s.awaitBound("full")
	s.submit(sharedJob("half", 1, 7, 0))
	tight := s.awaitBound("half")[0].Spec.NodeName
	quarter := func(name string) (node string) {
		s.submit(sharedJob(name, 1, 4, 0))
		node = s.awaitBound(name)[0].Spec.NodeName
		s.remove(name)
		s.await(name+" to be gone", func(ctx context.Context) (bool, string) { return len(s.list(ctx, name)) == 0, "" })
		return node
	}
	assert.Equal(t, tight, quarter("before"), "nothing is recorded")
	scheduler.End(syscall.SIGTERM)

	halves := placement.Workload{{Mode: placement.ModeShare, GPUs: 1, MemoryGiB: 7}: 1000}
	recordWorkload(t, halves)
	for i := range 2 {
		scheduler = startScheduler(t)
		assert.NotEqual(t, tight, quarter(fmt.Sprint("kept-", i)), "in life %d", i)
		scheduler.End(syscall.SIGKILL)
	}

	answers := startAnswering(t, nil)
	token := s.reader("prometheus", "gpuplan-metrics")
	answers.awaitWorkload(token, 1000)
	assert.NotEqual(t, tight, quarter("recorded"))
	recordWorkload(t, nil)
	answers.awaitWorkload(token, 0)
	assert.Equal(t, tight, quarter("unreadable"))
	recordWorkload(t, halves)
	answers.awaitWorkload(token, 1000)
	assert.NotEqual(t, tight, quarter("again"))
}
