package job

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// maxAnnotations is how many bytes the API server takes as annotations of one object;
// the rest is for the planned placement and what the scheduler writes.
const maxAnnotations = 64 << 10

// reservedFor says who sets a label or annotation of a framework's jobs that is not the user's, "" when it is.
func reservedFor(framework Framework, key string) string {
	if (framework == Batch || framework.AsJobSet()) && slices.Contains(batchLabels, key) {
		return "Kubernetes"
	}
	switch key {
	case contract.QuotaLabel, contract.KoordinatorQuotaLabel:
		return "the attribute quota"
	case contract.PreemptibleLabel, contract.KoordinatorPreemptibleLabel:
		return "the attribute preemptible"
	case contract.TopologyGroupLabel, contract.TopologyReplicasLabel, contract.LightGangLabel, contract.LightGangMinLabel, contract.PodGroupLabel:
		return "the attribute gang"
	case contract.ResourceGPUCount:
		return "the attribute GPUs of a role"
	case contract.GPUsAnnotation, contract.VisibleAnnotation, contract.ShareMemoryAnnotation, contract.ShareCoreAnnotation:
		return "the scheduler"
	case contract.SuspendAnnotation:
		return "the attribute suspend"
	case contract.ManagedByLabel:
		return "the provider"
	case contract.ArenaRequestGPUsAnnotation:
		return "the attribute arena_compatible"
	case contract.RunForAnnotation, contract.FailAfterAnnotation:
		return "" // simulated pods are told by the user
	}
	domain, _, ok := strings.Cut(key, "/")
	switch {
	case !ok:
		return ""
	case domain == "gpuplan.dev" || strings.HasSuffix(domain, ".gpuplan.dev"):
		return "the provider and the scheduler"
	case slices.Contains([]string{"kubernetes.io", "k8s.io", "kubectl.kubernetes.io", "batch.kubernetes.io"}, domain):
		return "Kubernetes"
	case domain == "training.kubeflow.org":
		return "the training operator"
	case domain == "jobset.sigs.k8s.io" && framework.AsJobSet():
		return "the controller of JobSets"
	case domain == contract.TrainerGroup && framework == TrainJob:
		return "Kubeflow Trainer"
	case domain == "propagationpolicy.karmada.io" || domain == "clusterpropagationpolicy.karmada.io": // which policy has taken the job
		return "the hub of a fleet"
	}
	return ""
}

// checkMarks holds the rules of the user's labels and annotations.
func (s Spec) checkMarks(add report) {
	arena := s.arenaLabels()
	for field, marks := range map[string]map[string]string{"labels": s.Labels, "annotations": s.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(marks)) {
			for _, text := range validation.IsQualifiedName(strings.ToLower(key)) {
				add("", field, "%q is no key: %s", short(key), text)
			}
			if owner := reservedFor(s.Framework, key); owner != "" {
				add("", field, "%s is set by %s: leave it out", key, owner)
			} else if _, ok := arena[key]; ok && field == "labels" {
				add("", field, "%s is set by the attribute arena_compatible: leave it out", key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		for _, text := range validation.IsValidLabelValue(s.Labels[key]) {
			add("", "labels", "%q cannot be the value of %s: %s", short(s.Labels[key]), short(key), text)
		}
	}
	size := 0
	for key, value := range s.Annotations {
		size += len(key) + len(value)
	}
	if size > maxAnnotations {
		add("", "annotations", "they have %d bytes, at most %d are possible", size, maxAnnotations)
	}
}

// checkWhere holds the rules of what decides where the pods may run.
func (s Spec) checkWhere(add report) {
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		for _, text := range validation.IsQualifiedName(key) {
			add("", "node_selector", "%q is no key of a label: %s", short(key), text)
		}
		for _, text := range validation.IsValidLabelValue(s.NodeSelector[key]) {
			add("", "node_selector", "%q cannot be the value of %s: %s", short(s.NodeSelector[key]), short(key), text)
		}
	}
	for i, t := range s.Tolerations {
		if fault := tolerationFault(t); fault != "" {
			add("", "tolerations", "toleration %d: %s", i, fault)
		}
	}
	for field, name := range map[string]string{"scheduler_name": s.SchedulerName, "priority_class": s.PriorityClass} {
		if name == "" {
			continue
		}
		for _, text := range validation.IsDNS1123Subdomain(name) {
			add("", field, "%q cannot be a name: %s", short(name), text)
		}
	}
	for _, text := range validation.IsValidLabelValue(s.Quota) {
		add("", "quota", "%q cannot be the name of a leaf: %s", short(s.Quota), text)
	}
}

// tolerationFault says why the API server would refuse a toleration, "" when it would
// not (Kubernetes: "Taints and Tolerations").
func tolerationFault(t corev1.Toleration) string {
	switch {
	case t.Key == "" && t.Operator != corev1.TolerationOpExists:
		return "without a key the operator must be \"Exists\", which tolerates every taint"
	case t.Operator == corev1.TolerationOpExists && t.Value != "":
		return "the operator \"Exists\" takes no value: leave value out, or use \"Equal\""
	}
	if t.Key != "" {
		if texts := validation.IsQualifiedName(t.Key); len(texts) > 0 {
			return "the key is none of a taint: " + texts[0]
		}
	}
	if texts := validation.IsValidLabelValue(t.Value); len(texts) > 0 {
		return "the value is none of a taint: " + texts[0]
	}
	return ""
}

// checkContainer holds the rules of what a replica runs.
func (r Role) checkContainer(name string, add report) {
	if r.Image != strings.TrimSpace(r.Image) || strings.ContainsRune(r.Image, 0) {
		add(name, "image", "%q has spaces around it, or characters that no image has", short(r.Image))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Env)) {
		for _, text := range validation.IsRelaxedEnvVarName(key) {
			add(name, "env", "%q cannot be the name of a variable: %s", short(key), text)
		}
		if strings.ContainsRune(r.Env[key], 0) {
			add(name, "env", "the value of %s has a character that no variable can have, NUL", short(key))
		}
	}
	for field, list := range map[string][]string{"command": r.Command, "args": r.Args, "working_dir": {r.WorkingDir}} {
		if slices.ContainsFunc(list, func(text string) bool { return strings.ContainsRune(text, 0) }) {
			add(name, field, "it has a character that no process can be given, NUL")
		}
	}
}

// short is a text of the user in an error, of which the beginning will do.
func short(text string) string {
	if len(text) <= 80 {
		return text
	}
	return strings.ToValidUTF8(text[:80], "") + "…"
}
