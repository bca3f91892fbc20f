package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// A quota tree that is invalid holds what it governs, over a restart of the scheduler too,
// and takes nothing from those who run. The limits are not dropped meanwhile.
func TestInvalidTreeFailsClosed(t *testing.T) {
	s := newTestCluster(t, machine{count: 2, mode: "topology"})
	team := func(attributes map[string]any) map[string]any {
		return map[string]any{"name": "root", "children": []any{map[string]any{
			"name": "team", "namespaces": []any{s.namespace}, "max": map[string]any{contract.ResourceTopologyGPU: "4", "cpu": "100"}, "attributes": attributes,
		}}}
	}
	high := s.priority("high", 100, corev1.PreemptLowerPriority)
	s.setTree(team(nil))
	scheduler := startScheduler(t)
	s.submit(topologyGang("first", 4, 1))
	s.awaitBound("first")

	// Expressions of admission policies cannot read it.
	s.setTree(team(map[string]any{contract.LendLimitAttribute: "{"}))
	s.awaitInvalid()
	s.submit(topologyGang("more", 4, 1).of(high))
	s.awaitReason("more", "quota tree is invalid")
	scheduler.End(syscall.SIGKILL)
	scheduler = startScheduler(t)
	s.submit(job{name: "plain", workers: 1})
	s.awaitReason("plain", "quota tree is invalid")
	s.submit(topologyGang("again", 16, 1).of(high))
	s.awaitReason("again", "quota tree is invalid")
	assert.Equal(t, 4, bound(s.list(t.Context(), "first")))
	assert.Zero(t, leaving(s.list(t.Context(), "first")))
	assert.Zero(t, bound(s.list(t.Context(), "more")))
	scheduler.End(syscall.SIGTERM)
	startScheduler(t)
	s.submit(job{name: "later", workers: 1})
	s.awaitReason("later", "quota tree is invalid")

	s.setTree(team(nil))
	s.awaitBound("plain")
	s.awaitBound("later")
	s.remove("again")
	s.awaitBound("more") // which may evict the first one now
}

// awaitInvalid waits until the scheduler has been shown that the tree is invalid: until then it
// places pods by the tree before.
func (s *testCluster) awaitInvalid() {
	s.t.Helper()
	for held, n := false, 0; !held; n++ {
		probe := fmt.Sprint("probe-", n)
		s.submit(job{name: probe, workers: 1})
		s.await(probe+" to be placed or held", func(ctx context.Context) (bool, string) {
			pods := s.list(ctx, probe)
			held = strings.Contains(reason(pods), "quota tree is invalid")
			return held || bound(pods) > 0, reason(pods)
		})
		s.remove(probe)
	}
}

// A pod that names a leaf which the tree lacks waits and says so, with GPUs and without,
// until the tree has the leaf.
func TestUnknownLeaf(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.setLeaves(8, lend{name: "team", min: 4, max: 8})
	s.submit(job{name: "plain", workers: 1}.in("late"))
	s.submit(topologyGang("gang", 2, 1).in("late"))
	missing := `the quota tree has no leaf "late"; its leaves are team`
	for _, name := range []string{"plain", "gang"} {
		s.awaitReason(name, missing)
		s.await("an event of "+name, func(ctx context.Context) (bool, string) {
			said := s.events(ctx, name+"-worker-0", "FailedScheduling")
			return slices.ContainsFunc(said, func(note string) bool { return strings.Contains(note, missing) }), fmt.Sprint(said)
		})
	}
	s.setLeaves(8, lend{name: "team", min: 4, max: 8}, lend{name: "late", max: 8})
	s.awaitBound("plain")
	s.awaitBound("gang")
}

// A pod whose leaf is put right is tried at once, with GPUs and without, on a cluster where nothing else happens.
func TestLeafThatIsPutRight(t *testing.T) {
	s := newTestCluster(t, machine{count: 1, mode: "topology"})
	startScheduler(t)
	s.setLeaves(8, lend{name: "team", min: 4, max: 8})
	s.submit(job{name: "plain", workers: 1}.in("taem"))
	s.submit(topologyGang("gang", 2, 1).in("taem"))
	for _, name := range []string{"plain", "gang"} {
		s.awaitReason(name, `the quota tree has no leaf "taem"`)
		for _, pod := range s.list(t.Context(), name) {
			label := fmt.Sprintf(`{"metadata":{"labels":{%q:"team"}}}`, contract.QuotaLabel)
			_, err := api().CoreV1().Pods(s.namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(label), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		s.awaitBound(name)
	}
}

// What the admission policy refuses the scheduler cannot use, and what it lets through is
// refused by no rule that expressions can check.
func TestQuotaTreesAreCheckedWhenWritten(t *testing.T) {
	connect(t)
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	require.NoError(t, err)
	policy := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() != "gpuplan-quota-tree" })
	require.Len(t, policy, 2)
	require.NoError(t, cluster.client.ApplyAll(t.Context(), policy, nil))
	write := func(root map[string]any) error {
		_, err := cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).
			Create(context.Background(), newTree(root), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	unequal := map[string]any{"name": "root", "min": map[string]any{"cpu": "1"}}
	inForce := func(yes bool) {
		require.Eventually(t, func() bool { return (write(unequal) != nil) == yes }, settled, 100*time.Millisecond)
	}
	t.Cleanup(func() {
		assert.NoError(t, cluster.client.DeleteAll(context.Background(), policy, nil))
		inForce(false)
	})
	inForce(true)
	amounts := func(text string) map[string]any { return map[string]any{"cpu": text} }
	leaf := func(name string, fields map[string]any) map[string]any {
		n := map[string]any{"name": name}
		for field, value := range fields {
			n[field] = value
		}
		return n
	}
	// under puts a node three levels below the root.
	under := func(nodes ...any) map[string]any {
		return map[string]any{"name": "root", "children": []any{leaf("x", map[string]any{"children": []any{leaf("y", map[string]any{"children": nodes})}})}}
	}
	for name, test := range map[string]struct {
		root    map[string]any
		refused string
	}{
		"nothing but a root":        {map[string]any{"name": "root"}, ""},
		"a deep tree":               {under(leaf("a", map[string]any{"min": amounts("500m"), "max": amounts("1"), "namespaces": []any{"n"}}), leaf("b", nil)), ""},
		"integers and strings":      {under(leaf("a", map[string]any{"min": map[string]any{"cpu": int64(1)}, "max": amounts("1000m")})), ""},
		"jobs are no amount":        {under(leaf("a", map[string]any{"min": map[string]any{contract.MaxJobsKey: int64(5)}, "max": map[string]any{contract.MaxJobsKey: int64(1)}})), ""},
		"min above max":             {under(leaf("a", map[string]any{"min": amounts("1001m"), "max": amounts("1")})), "above its max"},
		"min above max on top":      {map[string]any{"name": "root", "children": []any{leaf("a", map[string]any{"min": amounts("2"), "max": amounts("1")})}}, "above its max"},
		"not an amount":             {under(leaf("a", map[string]any{"max": amounts("lots")})), "amounts"},
		"negative":                  {under(leaf("a", map[string]any{"max": amounts("-1")})), "not negative"},
		"two of one name":           {under(leaf("a", nil), leaf("x", nil)), "used twice: x"},
		"no name":                   {under(leaf("", nil)), "name of its own"},
		"the name root":             {under(leaf("root", nil)), "name of its own"},
		"a namespace of two leaves": {under(leaf("a", map[string]any{"namespaces": []any{"n"}}), leaf("b", map[string]any{"namespaces": []any{"n", "m"}})), "listed twice: n"},
		"a namespace above leaves":  {map[string]any{"name": "root", "children": []any{leaf("a", map[string]any{"namespaces": []any{"n"}, "children": []any{leaf("b", nil)}})}}, "only leaves"},
		"unequal root":              {map[string]any{"name": "root", "min": amounts("1"), "max": amounts("2")}, "must be equal"},
		"root without max":          {unequal, "must be equal"},
		"namespaces as text":        {under(leaf("a", map[string]any{"namespaces": "n"})), "ValidatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(test.root)
			_, _, unusable := inventory.ReadQuotaTree(tree)
			err := write(test.root)
			if test.refused == "" {
				require.NoError(t, err)
				assert.NoError(t, unusable)
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), test.refused)
			assert.Error(t, unusable)
		})
	}
}
