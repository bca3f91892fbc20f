package inventory

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// gangName finds the name of a pod's gang. In order of precedence: PodGroup label,
// ACK's gang labels, topology labels. "true" instead of a name is a flag that some
// tools write; the name is the job's then.
func gangName(p *corev1.Pod) string {
	for _, label := range []string{contract.PodGroupLabel, contract.LightGangLabel, contract.TopologyGroupLabel} {
		switch name := p.Labels[label]; {
		case !named(name):
		case name == "true":
			return JobName(p)
		default:
			return name
		}
	}
	return ""
}

// named reports whether the value of a gang's label makes a gang.
func named(value string) bool { return value != "" && value != "false" }

// JobName names the job that a pod belongs to, at worst the pod itself.
func JobName(p *corev1.Pod) string {
	for _, label := range []string{contract.JobNameLabel, contract.ArenaReleaseLabel, contract.JobSetNameLabel} {
		if name := p.Labels[label]; name != "" {
			return name
		}
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.Name
	}
	return p.Name
}

// GangKey returns "namespace/name" of the gang that a pod says it belongs to, in any
// of the three spellings; ok is false for a pod on its own.
func GangKey(p *corev1.Pod) (key string, ok bool) {
	name := gangName(p)
	if name == "" {
		return "", false
	}
	return p.Namespace + "/" + name, true
}

// PlanKey returns the key of the gang that a pod is planned with: the gang's
// "namespace/name", or "pod/namespace/name" for a pod on its own that asks for
// GPUs. ok is false for pods that the planner does not place as a rule; it may be told to
// place others.
func PlanKey(p *corev1.Pod) (key string, ok bool) {
	if key, ok := GangKey(p); ok {
		return key, true
	}
	return "pod/" + p.Namespace + "/" + p.Name, AsksForGPUs(p)
}

// Replica returns the role of a pod in its job and its index there, each "" where the
// operator does not say: the training operator and the MPI operator by their labels, the latter's workers of
// v1alpha1 as pods of a StatefulSet, Jobs by the index of completion, which older versions of
// Kubernetes annotate alone. Where a role of a JobSet is several Jobs, theirs comes first.
func Replica(p *corev1.Pod) (role, index string) {
	role = strings.ToLower(cmp.Or(p.Labels[contract.JobReplicaTypeLabel], p.Labels[contract.ArenaMPIRoleLabel], p.Labels[contract.JobSetRoleLabel], p.Labels[contract.JobRoleLabel]))
	index = cmp.Or(p.Labels[contract.JobReplicaIndexLabel], p.Labels[appsv1.PodIndexLabel],
		p.Labels[batchv1.JobCompletionIndexAnnotation], p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if jobs := p.Labels[contract.JobSetJobsLabel]; jobs != "" && jobs != "1" && index != "" {
		index = p.Labels[contract.JobSetJobIndexLabel] + "-" + index
	}
	return role, index
}

// MemberNames returns a name for each pod that is unique in the gang: the job
// operator's role and index, "worker-0", else the pod's name. A pod that is being deleted
// leaves the first to its successor.
func MemberNames(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	seen, stay := map[string]int{}, map[string]int{}
	for i, p := range pods {
		names[i] = p.Name
		if role, index := Replica(p); role != "" && index != "" {
			names[i] = role + "-" + index
		}
		seen[names[i]]++
		if p.DeletionTimestamp == nil {
			stay[names[i]]++
		}
	}
	for i, p := range pods {
		if seen[names[i]] > 1 && (stay[names[i]] != 1 || p.DeletionTimestamp != nil) {
			names[i] = p.Name
		}
	}
	return names
}

// GangID is the ID of a pod's gang in the planner, or of the pod on its own ([placement.OfPod]).
func GangID(p *corev1.Pod) string {
	if key, ok := GangKey(p); ok {
		return key
	}
	return p.Namespace + placement.OfPod + p.Name
}

// KeyOf returns the key of a gang ([PlanKey]) by its ID in the planner.
func KeyOf(id string) string {
	if strings.Contains(id, placement.OfPod) {
		return "pod/" + placement.NameOf(id)
	}
	return id
}

// gangLabels are, by the labels that say how many members a gang has, those that name it.
var gangLabels = []struct{ count, name string }{
	{contract.LightGangMinLabel, contract.LightGangLabel}, {contract.TopologyReplicasLabel, contract.TopologyGroupLabel},
}

// namelessText says that a pod on its own is said to be one of several, which can never find each other, "" when it is not.
func namelessText(members []Member) string {
	if len(members) != 1 || gangName(members[0].Pod) != "" {
		return ""
	}
	p := members[0].Pod
	for _, label := range gangLabels {
		if count := p.Labels[label.count]; count != "" {
			return fmt.Sprintf("pod %s/%s is to be one of %s by its label %s, but no label names its gang, so that the others cannot join it: "+
				"give all of them the label %s with one name, or take the number off", p.Namespace, p.Name, count, label.count, label.name)
		}
	}
	return ""
}
