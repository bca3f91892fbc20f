package integration

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// worldGang is a gang with its PodGroup object, nil when its labels say everything.
type worldGang struct {
	namespace, name string
	pods            []*corev1.Pod
	podGroup        *unstructured.Unstructured
	// late is the index of the first pod that starts after the others.
	late int
	// budget lets nobody evict its pods, nil for none.
	budget *policyv1.PodDisruptionBudget
	// claim is the volume claim that its last worker mounts, "" for none: without it other plugins refuse that pod.
	claim string
}

// key is the gang's key in the planner's books.
func (g *worldGang) key() string {
	key, _ := inventory.PlanKey(g.pods[0])
	return key
}

// withoutLate is the gang without the pods that start after the others.
func (g worldGang) withoutLate() worldGang {
	g.pods = g.pods[:g.late]
	return g
}

// gang makes a gang of one or two roles, sometimes with a member that asks for no GPU, or with a launcher besides.
func (w *world) gang(n int) worldGang {
	g := worldGang{namespace: pick(w, w.namespaces...), name: fmt.Sprintf("%s-gang-%d", w.id, n)}
	rules := w.rules(g.name)
	workers := 1 + w.IntN(4)
	if w.chance(8) && !w.contended {
		workers += w.IntN(12)
	}
	shape := w.shape()
	g.add(contract.ReplicaWorker, workers, rules, shape)
	total := workers
	if w.chance(3) {
		if w.chance(3) {
			shape = w.shape()
		}
		g.add(contract.ReplicaMaster, 1, rules, shape)
		total++
	}
	if w.chance(6) {
		g.add(server, 1, rules)
		total++
	}
	w.label(&g, total)
	if _, gang := inventory.GangKey(g.pods[0]); w.chance(6) && gang { // beside a pod on its own it would be one, too
		g.add(contract.ReplicaLauncher, 1, rules)
		g.late--
		g.pods[g.late].Labels = withRole(g.pods[0].Labels, contract.ReplicaLauncher, 0)
	}
	return g
}

// add appends the pods of a role as the training operator makes them.
func (g *worldGang) add(role string, n int, changes ...func(*corev1.Pod)) {
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: g.namespace, Name: fmt.Sprintf("%s-%s-%d", g.name, role, i),
				Labels: withRole(map[string]string{contract.JobNameLabel: g.name}, role, i),
			},
			Spec: corev1.PodSpec{
				SchedulerName: contract.SchedulerName, TerminationGracePeriodSeconds: new(int64),
				Containers: []corev1.Container{{Name: "main", Image: "test", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: quantity(1)}, Limits: corev1.ResourceList{},
				}}},
			},
		}
		for _, change := range changes {
			change(pod)
		}
		g.pods = append(g.pods, pod)
	}
	g.late = len(g.pods)
}

func withRole(labels map[string]string, role string, index int) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		out[key] = value
	}
	out[contract.JobReplicaTypeLabel], out[contract.JobReplicaIndexLabel] = role, strconv.Itoa(index)
	return out
}

// label marks the pods as a gang in one of the spellings. A pod on its own needs none.
func (w *world) label(g *worldGang, total int) {
	labels := map[string]string{}
	fewer, spelling := total-w.IntN(1+total/2), w.IntN(5)
	if w.contended && w.chance(2) {
		fewer, spelling = 1+w.IntN(total), pick(w, 2, 3)
	}
	if serves(g.pods[len(g.pods)-1]) {
		fewer = total // it is a member where as many are needed, and else a late one
	}
	switch spelling {
	case 0:
		labels[contract.TopologyGroupLabel], labels[contract.TopologyReplicasLabel] = g.name, strconv.Itoa(total)
	case 1:
		labels[contract.LightGangLabel], labels[contract.LightGangMinLabel] = g.name, strconv.Itoa(total)
	case 2: // the provider's spelling of a gang that needs fewer members than it has
		labels[contract.LightGangLabel], labels[contract.LightGangMinLabel] = g.name, strconv.Itoa(fewer)
		labels[contract.TopologyReplicasLabel] = strconv.Itoa(total)
	case 3:
		labels[contract.PodGroupLabel] = g.name
		g.podGroup = newPodGroup(g.namespace, g.name, int64(fewer))
	default:
		if total > 1 {
			labels[contract.TopologyGroupLabel], labels[contract.TopologyReplicasLabel] = "true", strconv.Itoa(total)
		}
	}
	if len(w.leaves) > 0 && (w.contended || w.chance(2)) {
		labels[contract.QuotaLabel] = pick(w, w.leaves...)
	}
	if w.chance(6) {
		labels[contract.PreemptibleLabel] = "false"
	}
	given := pick(w, ranks...)
	if !w.contended {
		given = ranks[0]
	}
	for _, pod := range g.pods {
		for key, value := range labels {
			pod.Labels[key] = value
		}
		given.give(pod)
	}
	if role := g.pods[0].Labels[contract.JobReplicaTypeLabel]; fewer < total && (spelling == 2 || spelling == 3) && w.chance(2) {
		w.needs(g, role, fewer)
	}
}

// needs gives a role a minimum of its own, within that of the gang.
func (w *world) needs(g *worldGang, role string, minimum int) {
	var pods []*corev1.Pod
	for _, pod := range g.pods {
		if pod.Labels[contract.JobReplicaTypeLabel] == role {
			pods = append(pods, pod)
		}
	}
	least := strconv.Itoa(1 + w.IntN(min(minimum, len(pods))))
	for _, pod := range pods {
		pod.Labels[contract.RoleMinLabel] = least
	}
}

// rank is a PriorityClass, "" for none.
type rank struct {
	class  string
	value  int32
	policy corev1.PreemptionPolicy
}

// ranks are those of the gangs in contended worlds.
var ranks = []rank{
	{},
	{"agreement-high", 100, corev1.PreemptLowerPriority},
	{"agreement-highest", 200, corev1.PreemptLowerPriority},
	{"agreement-modest", 200, corev1.PreemptNever},
}

// give gives a pod the rank, as the API server will.
func (r rank) give(pod *corev1.Pod) {
	if r.class != "" {
		pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = r.class, &r.value, &r.policy
	}
}

func newPodGroup(namespace, name string, minMember int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": contract.PodGroupAPIVersion, "kind": contract.PodGroupKind,
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     map[string]any{"minMember": minMember},
	}}
}

// shape is what each member of a role asks for.
func (w *world) shape() func(*corev1.Pod) {
	list := corev1.ResourceList{corev1.ResourceCPU: quantity(int64(1 + w.IntN(8)))}
	count := ""
	mode := pick(w, w.nodes...).object.Labels[contract.NodeModeLabel]
	if w.chance(8) && !w.contended {
		mode = pick(w, "default", "topology", "core_mem", "share")
	}
	switch mode {
	case "default":
		list[contract.ResourceDefaultGPU] = quantity(int64(1 + w.IntN(4)))
	case "topology":
		most := 4
		if w.contended {
			most = 3
		}
		list[contract.ResourceTopologyGPU] = quantity(int64(1 << w.IntN(most)))
	case "core_mem":
		list[contract.ResourceGPUMemory] = quantity(int64(1 + w.IntN(12)))
		list[contract.ResourceCorePercent] = quantity(int64(5 + 5*w.IntN(20)))
	default:
		list[contract.ResourceGPUMemory] = quantity(int64(2 + 2*w.IntN(6)))
		if w.chance(3) {
			list[contract.ResourceGPUMemory], count = quantity(12), pick(w, "2", "3")
		}
	}
	if w.chance(5) {
		list[contract.ResourceERDMA] = quantity(1)
	}
	port := int32(0)
	if w.chance(8) {
		port = 23456
	}
	return func(pod *corev1.Pod) {
		container := &pod.Spec.Containers[0]
		container.Resources = corev1.ResourceRequirements{Requests: list.DeepCopy(), Limits: list.DeepCopy()}
		if port != 0 {
			container.Ports = []corev1.ContainerPort{{ContainerPort: port, HostPort: port}}
		}
		if count != "" {
			pod.Labels[contract.ResourceGPUCount] = count
		}
	}
}

// rules say where the members of a gang may be.
func (w *world) rules(gang string) func(*corev1.Pod) {
	spec := corev1.PodSpec{}
	if w.chance(2) {
		spec.Tolerations = []corev1.Toleration{{Key: dedicated.Key, Operator: corev1.TolerationOpExists}}
	}
	if w.chance(8) {
		spec.NodeSelector = map[string]string{contract.NodePoolNameLabel: pick(w, "a100", "v100")}
	}
	if w.contended && !w.chance(3) { // most gangs that take places may run on either node
		return func(pod *corev1.Pod) {
			pod.Spec.Tolerations, pod.Spec.NodeSelector = spec.Tolerations, spec.NodeSelector
		}
	}
	affinity := &corev1.Affinity{}
	if w.chance(8) {
		affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: blockLabel, Operator: pick(w, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{"b1"}}}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: blockLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{pick(w, "b2", "b3")}}}},
			},
		}}
	}
	term := func(key string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.JobNameLabel: gang}}}
	}
	// Members of one role are kept apart.
	apart := term(corev1.LabelHostname)
	apart.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: contract.JobReplicaTypeLabel, Operator: metav1.LabelSelectorOpIn}}
	if w.chance(8) {
		affinity.NodeAffinity = cmp.Or(affinity.NodeAffinity, &corev1.NodeAffinity{})
		affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 10, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: blockLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{pick(w, "b1", "b2", "b3")}}},
		}}}
	}
	if w.chance(6) {
		domain := pick(w, corev1.LabelTopologyZone, blockLabel, corev1.LabelHostname)
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: domain, MaxSkew: int32(1 + w.IntN(2)), LabelSelector: term(domain).LabelSelector,
			WhenUnsatisfiable: pick(w, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway),
		}}
	}
	switch domain := pick(w, corev1.LabelTopologyZone, blockLabel, corev1.LabelHostname); w.IntN(12) {
	case 0:
		affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(domain)}}
	case 1:
		affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(domain)}}}
	case 2:
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{apart}}
	case 3: // whatever their role
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(corev1.LabelHostname)}}
	case 4:
		affinity.PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term(corev1.LabelTopologyZone)},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term(blockLabel)}},
		}
	case 5: // one member in each domain
		affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(domain)}}
	}
	spec.Affinity = affinity
	return func(pod *corev1.Pod) {
		pod.Spec.Tolerations, pod.Spec.NodeSelector, pod.Spec.Affinity = spec.Tolerations, spec.NodeSelector, spec.Affinity.DeepCopy()
		pod.Spec.TopologySpreadConstraints = spec.TopologySpreadConstraints
		if keep := pod.Spec.Affinity.PodAntiAffinity; keep != nil {
			selector := keep.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector
			for i := range selector.MatchExpressions {
				selector.MatchExpressions[i].Values = []string{pod.Labels[contract.JobReplicaTypeLabel]}
			}
		}
	}
}
