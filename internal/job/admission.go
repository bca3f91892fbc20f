package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
)

// Admission is what the API server's admission makes of the pods of a job, by role: a
// LimitRange adds requests, a RuntimeClass overhead, a policy or a webhook anything. Of a role
// that it lacks nobody knows.
type Admission map[string]Admitted

// Admitted is a predicted pod and what admission makes of it.
type Admitted struct{ Predicted, Pod *corev1.Pod }

// Sample returns a predicted pod of each role, in the order of roles.
func (s Spec) Sample() ([]*corev1.Pod, error) {
	pods, err := s.Pods()
	if err != nil {
		return nil, err
	}
	return slices.CompactFunc(pods, func(a, b *corev1.Pod) bool { return RoleOf(a) == RoleOf(b) }), nil
}

// RoleOf is the role of a predicted pod.
func RoleOf(pod *corev1.Pod) string {
	role, _ := inventory.Replica(pod)
	return role
}

// Admit returns predicted pods as admission makes them. The pods of a role differ in their
// names and labels alone.
func (a Admission) Admit(pods []*corev1.Pod) []*corev1.Pod {
	for i, pod := range pods {
		role, known := a[RoleOf(pod)]
		if !known {
			continue
		}
		admitted := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: pod.ObjectMeta, Spec: role.Pod.Spec}
		admitted.Labels = changed(pod.Labels, role.Predicted.Labels, role.Pod.Labels)
		admitted.Annotations = changed(pod.Annotations, role.Predicted.Annotations, role.Pod.Annotations)
		admitted.Spec.Tolerations = tolerations(role.Pod)
		pods[i] = admitted
	}
	return pods
}

// changed are the values of one pod with the changes that were made to those of another.
func changed(own, before, after map[string]string) map[string]string {
	all := merge(own)
	for key := range before {
		if _, kept := after[key]; !kept {
			delete(all, key)
		}
	}
	for key, value := range after {
		if before[key] != value {
			all = merge(all, map[string]string{key: value})
		}
	}
	return all
}

// tolerations are those of a pod without the two that the API server gives to every pod, so
// that it outlives a short loss of its node: a node that has those taints has others as well.
func tolerations(pod *corev1.Pod) []corev1.Toleration {
	return slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(t corev1.Toleration) bool {
		return t.Effect == corev1.TaintEffectNoExecute && t.TolerationSeconds != nil && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
	})
}

// Added says what admission changes of that by which pods are placed, role by role, as in "cpu
// 50 (role worker)"; "" for nothing. attributes are those of a role that would have said it in the
// configuration.
func (a Admission) Added() (text string, attributes []string) {
	var parts []string
	for _, role := range slices.Sorted(maps.Keys(a)) {
		words, of := a[role].added()
		if len(words) > 0 {
			parts = append(parts, fmt.Sprintf("%s (role %s)", strings.Join(words, ", "), role))
		}
		for _, name := range of {
			if !slices.Contains(attributes, name) {
				attributes = append(attributes, name)
			}
		}
	}
	return strings.Join(parts, "; "), attributes
}

func (a Admitted) added() (words, attributes []string) {
	before, after := resource.PodRequests(a.Predicted, resource.PodResourcesOptions{}), resource.PodRequests(a.Pod, resource.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, is := before[name], after[name]
		if was.Cmp(is) == 0 {
			continue
		}
		word := fmt.Sprintf("%s %s", name, is.String())
		if !was.IsZero() {
			word += " instead of " + was.String()
		}
		words = append(words, word)
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			attributes = append(attributes, string(name))
		}
	}
	was, is := a.Predicted.Spec, a.Pod.Spec
	for _, field := range []struct {
		name          string
		before, after any
	}{
		{"another node selector", was.NodeSelector, is.NodeSelector},
		{"other tolerations", tolerations(a.Predicted), tolerations(a.Pod)},
		{"another affinity", was.Affinity, is.Affinity},
		{"another topology spread", was.TopologySpreadConstraints, is.TopologySpreadConstraints},
		{"the priority class " + is.PriorityClassName, was.PriorityClassName, is.PriorityClassName},
		{"other labels", a.Predicted.Labels, a.Pod.Labels},
		{"the scheduler " + is.SchedulerName, was.SchedulerName, is.SchedulerName},
		{"scheduling gates", was.SchedulingGates, is.SchedulingGates},
	} {
		if !equality.Semantic.DeepEqual(field.before, field.after) {
			words = append(words, field.name)
		}
	}
	return words, attributes
}
