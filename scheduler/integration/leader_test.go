package integration

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// leader is who holds the scheduler's lease, "" for nobody.
func leader(t *testing.T) string {
	t.Helper()
	lease, err := api().CoordinationV1().Leases(contract.SystemNamespace).Get(t.Context(), contract.SchedulerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(t, err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// A scheduler that is told to stop gives the lease back, so that the next one leads at
// once; after one that was killed the next waits until the lease has run out.
func TestLeaderChanges(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	require.NoError(t, err)
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "Namespace" })
	require.NoError(t, cluster.client.ApplyAll(t.Context(), objects, nil))
	t.Cleanup(func() { assert.NoError(t, cluster.client.DeleteAll(context.Background(), objects, nil)) })

	leads := func(but string) (who string) {
		t.Helper()
		require.Eventually(t, func() bool { who = leader(t); return who != "" && who != but }, settled, 50*time.Millisecond, "nobody leads")
		return who
	}
	first := runScheduler(t, nil, "--leader-elect=true")
	holder := leads("")
	for i, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		second := runScheduler(t, nil, "--leader-elect=true")
		name := fmt.Sprintf("job-%d", i)
		s.submit(topologyGang(name, 4, 1))
		s.awaitBound(name)
		first.End(signal)
		if signal == syscall.SIGTERM {
			assert.NotEqual(t, holder, leader(t), "the lease is given back before the process ends")
		}
		holder = leads(holder)
		s.submit(topologyGang(name+"-after", 4, 1))
		s.awaitBound(name + "-after")
		s.requireNoSharedGPUs()
		s.clear()
		first = second
	}
}
