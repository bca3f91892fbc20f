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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// records says what becomes of attempts to alter allocation records.
type records int

const (
	// unaltered: there are none.
	unaltered records = iota
	// altered: no policy stands before them, so the scheduler goes by the record that it has seen first. One that starts
	// later sees the altered one, so none is killed.
	altered
	// protected: the admission policy refuses them.
	protected
)

// protect installs the policy before allocation records, and has the schedulers run as the user whom it lets write them.
func (c *chaos) protect(t *testing.T) {
	t.Helper()
	objects, err := deploy.Objects(deploy.Options{Image: "test"})
	require.NoError(t, err)
	policies := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetName(), "gpuplan-allocation") })
	require.Len(t, policies, 4)
	s := &testCluster{t: t, namespace: c.namespace}
	require.NoError(t, cluster.client.ApplyAll(t.Context(), policies, nil))
	t.Cleanup(func() {
		assert.NoError(t, cluster.client.DeleteAll(context.Background(), policies, nil))
		awaitUnprotected(context.Background(), s)
	})
	require.Eventually(t, func() bool {
		_, err := api().CoreV1().Pods(c.namespace).Create(t.Context(), s.forge("early", "nowhere"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), recordRefused)
	}, settled, 100*time.Millisecond, "a new policy is in force a little later")
	c.kubeconfig = actingAs(t, c.kubeconfig, "system:serviceaccount:"+contract.SystemNamespace+":"+contract.SchedulerName)
}

// actingAs is a kubeconfig with which programs are another user to the API server, with all rights.
func actingAs(t *testing.T, kubeconfig, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	current := config.Contexts[config.CurrentContext]
	if current.AuthInfo == "" {
		current.AuthInfo = "proxied"
		config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"proxied": {}}
	}
	access := config.AuthInfos[current.AuthInfo]
	access.Impersonate, access.ImpersonateGroups = user, []string{"system:masters", "system:authenticated"}
	file := t.TempDir() + "/kubeconfig"
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// alter changes the record of a pod that runs, or takes it away.
func (c *chaos) alter(t *testing.T, target int) {
	pods, err := api().CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return
	}
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !holds(&p) || p.Annotations[contract.AllocationAnnotation] == "" })
	if len(running) == 0 {
		return
	}
	pod := running[target%len(running)]
	to := []string{"null", `""`, `"{}"`, fmt.Sprintf("%q", fmt.Sprintf(`{"version":1,"node":%q,"gpus":[]}`, pod.Spec.NodeName)),
		fmt.Sprintf("%q", fmt.Sprintf(`{"version":1,"node":%q,"gpus":[7],"visible":[7]}`, pod.Spec.NodeName))}[target%5]
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, contract.AllocationAnnotation, to)
	_, err = api().CoreV1().Pods(c.namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.audit.did("the record of %s is set to %s: %v", pod.Name, to, err)
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	c.audit.altered++
	if c.records == protected && err == nil {
		c.audit.violation("the record of %s could be altered in spite of the policy", pod.Name)
	}
}

// breaks are the ways in which a quota tree can be invalid.
var breaks = []func(leaf map[string]any){
	func(leaf map[string]any) { leaf["attributes"] = map[string]any{contract.LendLimitAttribute: "{"} },
	func(leaf map[string]any) { leaf["min"], leaf["max"] = gpus(9), gpus(8) },
	func(leaf map[string]any) { leaf["name"] = "root" },
}

// breakTree draws how the quota tree turns invalid for a while, and what comes meanwhile: of the leaves nothing starts that
// comes once the scheduler has seen it, nor does it evict anybody, over a restart of the scheduler too.
func (c *chaos) breakTree() func(*testing.T) {
	how, hold, kills, target := pick(c.world, breaks...), 100*time.Millisecond+c.when()/2, c.chance(2) && c.records != altered, c.IntN(1<<20)
	late := []worldGang{c.chaosGang(100, pick(c.world, c.leaves...)), c.chaosGang(101, pick(c.world, c.leaves...))}
	return func(t *testing.T) {
		c.broken = how
		c.writeTree(t)
		c.audit.did("the quota tree is invalid")
		c.awaitHeldBack(t)
		c.audit.bar(true)
		c.begin(late[0])
		if c.queue != nil {
			c.requireJobsHeld(t)
		}
		if kills {
			c.killScheduler(t, target, syscall.SIGKILL)
		}
		c.begin(late[1])
		c.awaitHeldBack(t)
		select {
		case <-time.After(hold):
		case <-t.Context().Done():
		}
		c.audit.bar(false)
		c.broken = nil
		c.writeTree(t)
		c.audit.did("the quota tree is valid again")
	}
}

// writeTree writes the quota tree, however often the API server has to be asked.
func (c *chaos) writeTree(t *testing.T) {
	for c.applyTree(t.Context()) != nil && t.Context().Err() == nil {
		time.Sleep(again)
	}
}

// awaitHeldBack waits until a pod of a leaf says that the tree is invalid: the scheduler that leads has seen it.
func (c *chaos) awaitHeldBack(t *testing.T) {
	t.Helper()
	pods, now := api().CoreV1().Pods(c.namespace), int64(0)
	for deadline := time.Now().Add(settled); ; {
		c.probes++
		probe := worldGang{namespace: c.namespace, name: fmt.Sprintf("%s-probe-%d", c.id, c.probes)}
		probe.add(contract.ReplicaWorker, 1, func(pod *corev1.Pod) { pod.Labels[contract.QuotaLabel] = c.leaves[0] })
		var pod *corev1.Pod
		_, err := pods.Create(t.Context(), probe.pods[0], metav1.CreateOptions{})
		held, placed := false, false
		for !held && !placed && time.Now().Before(deadline) {
			time.Sleep(tick / 10)
			c.revive(t)
			if pod, err = pods.Get(t.Context(), probe.pods[0].Name, metav1.GetOptions{}); err == nil {
				held, placed = strings.Contains(reason([]corev1.Pod{*pod}), "quota tree is invalid"), pod.Spec.NodeName != ""
			}
		}
		_ = pods.Delete(t.Context(), probe.pods[0].Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if held {
			return
		}
		require.True(t, time.Now().Before(deadline), "no pod of a leaf is held back by an invalid tree: %v", err)
	}
}

// requireJobsHeld queues a job once the queue has seen that the tree is invalid: it must not come out before that is valid again.
func (c *chaos) requireJobsHeld(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.revive(t)
		tree, err := cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).Get(t.Context(), contract.QuotaTreeName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(tree.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(entry any) bool {
			condition, ok := entry.(map[string]any)
			return ok && condition["type"] == contract.QuotaTreeInForce && condition["status"] == "False"
		})
	}, settled, tick, "the queue says that the tree is invalid")
	job := queuedJob(c.namespace, c.id+heldSuffix, c.id+"-queue")
	_, err := api().BatchV1().Jobs(c.namespace).Create(t.Context(), job, metav1.CreateOptions{})
	c.audit.did("job %s is queued while the tree is invalid: %v", job.Name, err)
	c.audit.killed()
	c.queue.End(syscall.SIGKILL)
	c.startQueue(t)
}
