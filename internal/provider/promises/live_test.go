package promises

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

// What live changes and generated jobs have in common.
const (
	taintKey       = "example.com/dedicated"
	labelKey       = "example.com/rack"
	ofPool         = "pool" // the value of both where a pool gives them
	zoneKey        = corev1.LabelTopologyZone
	otherNamespace = "team-b"
	lowPriority    = "promises-low"
	highPriority   = "promises-high"
	foreignLabel   = "example.com/foreign"
	otherPort      = 24000
)

// priorities are those of the classes that jobs and pods may have.
var priorities = map[string]int32{"": 0, lowPriority: -10, highPriority: 1000}

// namespaces are those of jobs and pods.
func namespaces() []string { return []string{"default", otherNamespace} }

// patience is how long the cluster may take to do what it was told, on a loaded machine.
const patience = 3 * time.Minute

// live is the cluster behind terraform's back.
type live struct {
	platform *localtest.Platform
	*kube.Client
	foreign int // objects made so far
}

// await polls until done reports true; what says what is waited for.
func (l *live) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 100*time.Millisecond, what)
}

func (l *live) nodes(t *testing.T) []corev1.Node {
	t.Helper()
	list, err := l.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodePoolNameLabel})
	require.NoError(t, err)
	return list.Items
}

// describe tells of each pod where it is, or why it is nowhere.
func (l *live) describe(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, p := range l.pods(t) {
		line := fmt.Sprintf("%s/%s on %q", p.Namespace, p.Name, p.Spec.NodeName)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				line += ": " + c.Message
			}
		}
		if p.DeletionTimestamp != nil {
			line += " (is being deleted)"
		}
		line += fmt.Sprintf(" (created %s)", p.CreationTimestamp.UTC().Format(time.TimeOnly))
		if record, _, err := contract.AllocationFrom(p.Annotations); err == nil && record.NotAsPlanned != "" {
			line += ", not as planned: " + record.NotAsPlanned
		}
		lines = append(lines, line)
	}
	return lines
}

func (l *live) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := l.Typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Namespace == contract.SystemNamespace })
}

// change does something to the cluster that terraform does not know of, and says what.
func (l *live) change(t *testing.T, g *generator, c configuration) string {
	t.Helper()
	nodes := l.nodes(t)
	if len(nodes) == 0 {
		return "no nodes to change"
	}
	node := nodes[g.IntN(len(nodes))]
	if g.names.IntN(12) == 0 {
		return l.protect(t, g)
	}
	switch g.IntN(12) {
	case 0:
		return l.taint(t, node.Name, pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute))
	case 1:
		l.patchNode(t, node.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"kubectl"}}}`, labelKey))
		return "label " + node.Name
	case 2:
		l.patchNode(t, node.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, zoneKey, pick(g, "a", "b")))
		return "zone of " + node.Name
	case 3:
		l.patchNode(t, node.Name, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, !node.Spec.Unschedulable))
		return fmt.Sprintf("cordon %s: %t", node.Name, !node.Spec.Unschedulable)
	case 4:
		return l.breakGPU(t, g, node.Name)
	case 8:
		return l.healGPUs(t, node.Name)
	case 9:
		return l.squat(t, g, node)
	case 10:
		return l.takePort(t, g, node)
	case 5:
		return l.fill(t, g, node)
	case 6:
		return l.foreignGang(t, g, c)
	case 7:
		namespace, cpu := pick(g, "default", "default", otherNamespace), pick(g, 0, 2, 8, 20, 40)
		l.request(t, namespace, cpu)
		return fmt.Sprintf("admission gives %d CPU in namespace %s", cpu, namespace)
	default:
		return l.deleteJob(t, g, c)
	}
}

func (l *live) patchNode(t *testing.T, name, patch string) {
	t.Helper()
	_, err := l.Typed.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
}

// taint taints a node, and waits until those have gone that it evicts.
func (l *live) taint(t *testing.T, node string, effect corev1.TaintEffect) string {
	t.Helper()
	taint := corev1.Taint{Key: taintKey, Value: "kubectl", Effect: effect}
	var evicted []string
	for _, p := range l.pods(t) {
		if tolerated := slices.ContainsFunc(p.Spec.Tolerations, func(of corev1.Toleration) bool { return of.ToleratesTaint(klog.Background(), &taint, false) }); p.Spec.NodeName == node && !tolerated {
			evicted = append(evicted, string(p.UID))
		}
	}
	l.patchNode(t, node, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":%q,"effect":%q}]}}`, taint.Key, taint.Value, taint.Effect))
	if effect == corev1.TaintEffectNoExecute {
		l.await(t, "the pods that a taint evicts have gone", func() bool {
			return !slices.ContainsFunc(l.pods(t), func(p corev1.Pod) bool { return slices.Contains(evicted, string(p.UID)) })
		})
		l.settle(t)
	}
	return fmt.Sprintf("taint %s: %s", node, effect)
}

// machine changes the hardware of a node.
func (l *live) machine(t *testing.T, node string, change func(*gpu.Machine)) {
	t.Helper()
	file := filepath.Join(l.platform.Dir, "hardware", node+".json")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	machine, err := gpu.ParseMachine(data)
	require.NoError(t, err)
	change(&machine)
	data, err = json.Marshal(machine)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file+".new", data, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// breakGPU makes a GPU of a node unhealthy, and waits until the node agent has said so.
func (l *live) breakGPU(t *testing.T, g *generator, node string) string {
	t.Helper()
	var broken int
	l.machine(t, node, func(machine *gpu.Machine) {
		broken = g.IntN(len(machine.GPUs))
		machine.GPUs[broken].Unhealthy = "XID 79"
	})
	l.await(t, "the sick GPU of "+node, func() bool { return l.sick(t)[node][broken] })
	return fmt.Sprintf("break GPU %d of %s", broken, node)
}

// healGPUs makes all GPUs of a node healthy, and waits until the node agent has said so.
func (l *live) healGPUs(t *testing.T, node string) string {
	t.Helper()
	l.machine(t, node, func(machine *gpu.Machine) {
		for i := range machine.GPUs {
			machine.GPUs[i].Unhealthy = ""
		}
	})
	l.await(t, "the healthy GPUs of "+node, func() bool { return len(l.sick(t)[node]) == 0 })
	l.settle(t)
	return "heal the GPUs of " + node
}

// squat binds a pod to a node that takes GPUs of which nobody has a record, as another scheduler might.
func (l *live) squat(t *testing.T, g *generator, node corev1.Node) string {
	t.Helper()
	name := corev1.ResourceName(contract.ResourceTopologyGPU)
	if offered := node.Status.Allocatable[contract.ResourceDefaultGPU]; !offered.IsZero() {
		name = contract.ResourceDefaultGPU
	}
	offered := node.Status.Allocatable[name]
	left := offered.Value() - int64(len(l.sick(t)[node.Name]))
	for _, p := range l.pods(t) {
		if p.Spec.NodeName == node.Name {
			asked := p.Spec.Containers[0].Resources.Requests[name]
			left -= asked.Value()
		}
	}
	if left < 1 {
		return "no GPU to squat on " + node.Name
	}
	l.foreign++
	gpus := 1 + g.IntN(int(min(left, 2)))
	pod := l.foreignPod(fmt.Sprintf("squat-%d", l.foreign), corev1.ResourceList{name: *resource.NewQuantity(int64(gpus), resource.DecimalSI)})
	pod.Namespace, pod.Spec.NodeName = pick(g, namespaces()...), node.Name
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	l.create(t, pod)
	return fmt.Sprintf("squat on %d %s of %s", gpus, name, node.Name)
}

// takePort binds a pod to a node that has a port there which jobs want, too.
func (l *live) takePort(t *testing.T, g *generator, node corev1.Node) string {
	t.Helper()
	port := int32(pick(g, contract.PyTorchPort, contract.PyTorchPort+1, otherPort))
	for _, p := range l.pods(t) {
		if p.Spec.NodeName == node.Name && slices.ContainsFunc(p.Spec.Containers[0].Ports, func(of corev1.ContainerPort) bool { return of.HostPort == port }) {
			return fmt.Sprintf("port %d of %s is taken", port, node.Name)
		}
	}
	l.foreign++
	pod := l.foreignPod(fmt.Sprintf("port-%d", l.foreign), nil)
	pod.Namespace, pod.Spec.NodeName = pick(g, namespaces()...), node.Name
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	l.create(t, pod)
	return fmt.Sprintf("take port %d of %s", port, node.Name)
}

// sick are the unhealthy GPUs of each node, by position.
func (l *live) sick(t *testing.T) map[string]map[int]bool {
	t.Helper()
	list, err := l.Dynamic.Resource(gpuNodes).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := map[string]map[int]bool{}
	for _, item := range list.Items {
		var node contract.GPUNode
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &node))
		machine, err := node.Status.Machine()
		if err != nil {
			continue // not published yet
		}
		all[item.GetName()] = map[int]bool{}
		for i, device := range machine.GPUs {
			if device.Unhealthy != "" {
				all[item.GetName()][i] = true
			}
		}
	}
	return all
}

// fill binds a pod to a node that takes much of its CPU, as another scheduler might.
func (l *live) fill(t *testing.T, g *generator, node corev1.Node) string {
	t.Helper()
	l.foreign++
	cpu := max(1, node.Status.Allocatable.Cpu().Value()-int64(1+g.IntN(8)))
	pod := l.foreignPod(fmt.Sprintf("fill-%d", l.foreign), corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)})
	pod.Spec.NodeName = node.Name
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	l.create(t, pod)
	return fmt.Sprintf("fill %d CPU of %s", cpu, node.Name)
}

func (l *live) foreignPod(name string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{foreignLabel: "true"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "foreign", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
	}
}

func (l *live) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	_, err := l.Typed.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

// foreignGang submits a gang of someone else, and waits until the scheduler has
// decided about it.
func (l *live) foreignGang(t *testing.T, g *generator, c configuration) string {
	t.Helper()
	p := pick(g, c.pools...)
	name := contract.ResourceTopologyGPU
	switch p.mode {
	case "default":
		name = contract.ResourceDefaultGPU
	case "core_mem":
		name = contract.ResourceGPUMemory
	}
	l.foreign++
	gang, size := fmt.Sprintf("foreign-%d", l.foreign), 1+g.IntN(2)
	gpus, priority, charged := int64(1+g.IntN(2)), pick(g, "", lowPriority, highPriority), len(c.leaves) > 0 && g.chance(60)
	gated, namespace := size > 1 && g.chance(25), pick(g, "default", "default", otherNamespace)
	port := pick(g, 0, 0, 0, contract.PyTorchPort, otherPort)
	leaf := ""
	if charged {
		leaf = pick(g, c.leaves...).name
	}
	for i := range size {
		pod := l.foreignPod(fmt.Sprintf("%s-%d", gang, i), corev1.ResourceList{corev1.ResourceName(name): *resource.NewQuantity(gpus, resource.DecimalSI)})
		pod.Spec.SchedulerName, pod.Spec.PriorityClassName = contract.SchedulerName, priority
		pod.Labels[contract.LightGangLabel], pod.Labels[contract.LightGangMinLabel] = gang, fmt.Sprint(size)
		if pod.Namespace = namespace; charged {
			pod.Labels[contract.QuotaLabel] = leaf
		}
		if port > 0 {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(port), HostPort: int32(port)}}
		}
		if gated && i > 0 {
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
		}
		l.create(t, pod)
	}
	l.settle(t)
	return fmt.Sprintf("gang %s/%s: %d × %d %s, priority %q, quota %q, port %d, gated %t", namespace, gang, size, gpus, name, priority, leaf, port, gated)
}

// protect has a disruption budget forbid the eviction of pods of others in a namespace.
func (l *live) protect(t *testing.T, g *generator) string {
	t.Helper()
	l.foreign++
	namespace := namespaces()[g.names.IntN(len(namespaces()))]
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("keep-%d", l.foreign)},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.IntOrString), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{foreignLabel: "true"}}},
	}
	_, err := l.Typed.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), budget, metav1.CreateOptions{})
	require.NoError(t, err)
	return "nobody else is evicted in namespace " + namespace
}

// keeping are the namespaces in which nobody else is evicted.
func (l *live) keeping(t *testing.T) map[string]bool {
	t.Helper()
	list, err := l.Typed.PolicyV1().PodDisruptionBudgets("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	kept := map[string]bool{}
	for _, budget := range list.Items {
		kept[budget.Namespace] = true
	}
	return kept
}

// deleteJob deletes one of the configuration's jobs.
func (l *live) deleteJob(t *testing.T, g *generator, c configuration) string {
	t.Helper()
	all := c.instances()
	if len(all) == 0 {
		return "no job to delete"
	}
	victim := all[g.IntN(len(all))]
	err := l.Delete(t.Context(), trainingjob.Framework(victim.framework).GVK(), victim.namespace, victim.id[len(victim.namespace)+1:])
	require.True(t, err == nil || kube.IsNotFound(err), "%v", err)
	l.settle(t)
	return "delete job " + victim.id
}

// settled is how long the pods of a cluster with gangs that wait must not change before the
// scheduler has decided: it evicts nobody within a second of a deletion by others, and says
// for whom it evicts before it does.
const settled = 4 * time.Second

// settle waits until no pod is leaving and the scheduler has decided about every gang:
// all of its pods have a node, or one of them says what it waits for or has a gate.
func (l *live) settle(t *testing.T) {
	t.Helper()
	var since time.Time
	var before []string
	l.await(t, "the scheduler decides", func() bool {
		undecided, said := map[string]bool{}, map[string]bool{}
		for _, p := range l.pods(t) {
			gang := idOf(p)
			if p.DeletionTimestamp != nil {
				return false
			}
			undecided[gang] = undecided[gang] || p.Spec.NodeName == ""
			said[gang] = said[gang] || waits(p) || len(p.Spec.SchedulingGates) > 0
		}
		waiting := false
		for gang, open := range undecided {
			if open && !said[gang] {
				return false
			}
			waiting = waiting || open
		}
		if now := l.describe(t); !slices.Equal(now, before) {
			before, since = now, time.Now()
		}
		return !waiting || time.Since(since) >= settled
	})
}

// waits reports whether the scheduler has said why a pod waits.
func waits(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != ""
	})
}

// request has admission give every container of a namespace that asks for no CPU so much, 0 for
// nothing, and waits until it does.
func (l *live) request(t *testing.T, namespace string, cpu int) {
	t.Helper()
	core := l.Typed.CoreV1()
	require.NoError(t, core.LimitRanges(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	if cpu > 0 {
		_, err := core.LimitRanges(namespace).Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "defaults-"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type:           corev1.LimitTypeContainer,
				Default:        corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500")},
				DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI)},
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	l.await(t, "admission gives CPU", func() bool { return l.requested(t, namespace) == int64(cpu)*1000 })
}

// requested is how many thousandths of a core admission gives a container that asks for none.
func (l *live) requested(t *testing.T, namespace string) int64 {
	t.Helper()
	probe := l.foreignPod("probe", nil)
	probe.Namespace = namespace
	made, err := l.Typed.CoreV1().Pods(namespace).Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	return made.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
}

// clear removes the pods and the limits of others.
func (l *live) clear(t *testing.T) {
	t.Helper()
	none := int64(0)
	for _, namespace := range namespaces() {
		require.NoError(t, l.Typed.PolicyV1().PodDisruptionBudgets(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		require.NoError(t, l.Typed.CoreV1().Pods(namespace).DeleteCollection(t.Context(),
			metav1.DeleteOptions{GracePeriodSeconds: &none}, metav1.ListOptions{LabelSelector: foreignLabel}))
		l.request(t, namespace, 0)
	}
}
