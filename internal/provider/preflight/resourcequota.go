package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// The headlines of what a dry run says of a ResourceQuota that is used up, and of one that never has room.
const (
	noQuota       = "No quota now"
	quotaTooSmall = "The namespace's quota is too small"
)

// resourceQuotas holds what the pods that a gang needs ask for together, and what is made beside
// pods, against the namespace's ResourceQuotas: the dry run is of one pod.
func (c *check) resourceQuotas() {
	quotas, err := c.Typed.CoreV1().ResourceQuotas(c.spec.Namespace).List(c.ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	pods, err := c.spec.Pods()
	if err != nil {
		return
	}
	pods, made := c.Admission.Admit(pods), c.made()
	for _, quota := range quotas.Items {
		for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
			if asked := c.needed(pods, &quota, name); c.spec.Gang && !asked.IsZero() {
				c.resourceQuota(&quota, name, "The pods that job %s needs ask for %s of %s together", "the job never starts", asked)
			}
			if c.isItself(name) && made[name] == 0 {
				c.draw(&quota, name, *quantity.NewQuantity(1, quantity.DecimalSI)) // the dry run is of one job
			}
			if made[name] > 0 {
				c.resourceQuota(&quota, name, "Beside its pods job %s takes %s of %s", "there is never room for it, and the job does not get far", *quantity.NewQuantity(made[name], quantity.DecimalSI))
			}
		}
	}
}

// isItself reports whether a quota counts jobs like this one by the name.
func (c *check) isItself(name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.spec.Framework.Resources(), func(r schema.GroupResource) bool {
		return name == corev1.ResourceName("count/"+r.String())
	})
}

// draw notes an amount that the quota has left.
func (c *check) draw(quota *corev1.ResourceQuota, name corev1.ResourceName, asked quantity.Quantity) {
	hard := quota.Spec.Hard[name]
	left := hard.DeepCopy()
	left.Sub(quota.Status.Used[name])
	if asked.Cmp(left) <= 0 {
		c.Draws = append(c.Draws, Draw{Of: fmt.Sprintf("of %s in ResourceQuota %s/%s", name, quota.Namespace, quota.Name), Asked: asked, Left: left})
	}
}

// made is how many objects are made beside pods, by the names that quotas have for them: by the operator, and a TrainJob,
// of which the dry run may come no further than to Kubeflow Trainer ([runtimeFirst]).
func (c *check) made() map[corev1.ResourceName]int64 {
	made := map[corev1.ResourceName]int64{}
	count := func(resources ...string) {
		for _, r := range resources {
			made["count/"+corev1.ResourceName(r)]++
			made[corev1.ResourceName(r)]++ // the other name, of those that have one
		}
	}
	for _, object := range c.spec.Needs() {
		switch {
		case object.Kind == "Service":
			count("services")
		case object.Kind == contract.BatchJobKind && c.spec.Framework != job.Batch: // that one is the job itself
			count("jobs.batch")
		}
	}
	switch c.spec.Framework {
	case job.MPI:
		count(support[c.spec.Version]...)
	case job.TrainJob:
		count(contract.TrainJobResource+"."+job.TrainJob.GVK().Group, contract.JobSetResource+"."+job.JobSet.GVK().Group)
	}
	return made
}

// support is what the operators of MPIJobs make for one beside pods and what [job.Spec.Needs] lists, by the version (training
// operator v1.9.3 pkg/controller.v1/mpi; mpi-operator v0.2.3 pkg/controllers/v1alpha1 and v0.6.0 pkg/controller).
var support = map[string][]string{
	"":                          {"configmaps", "serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"},
	contract.MPIAlphaVersion:    {"configmaps", "serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "statefulsets.apps"},
	contract.MPIOperatorVersion: {"configmaps", "secrets"},
}

// resourceQuota holds an amount against one limit; asking says of whom it is, by the job, the amount and the resource, and
// otherwise what comes of it where there is never enough.
func (c *check) resourceQuota(quota *corev1.ResourceQuota, name corev1.ResourceName, asking, otherwise string, asked quantity.Quantity) {
	c.draw(quota, name, asked)
	hard, used := quota.Spec.Hard[name], quota.Status.Used[name]
	sum := asked.DeepCopy()
	sum.Add(used)
	said := func(f Finding) bool { return f.Summary == noQuota }
	what := fmt.Sprintf(asking+", and the ResourceQuota %s/%s allows %s, of which %s is used",
		c.spec.ID(), asked.String(), name, quota.Namespace, quota.Name, hard.String(), used.String())
	switch {
	case asked.Cmp(hard) > 0:
		c.findings = slices.DeleteFunc(c.findings, said)
		c.add("roles", quotaTooSmall, "%s: %s. Raise the quota, or make the job smaller.", what, otherwise)
	case sum.Cmp(hard) > 0 && !slices.ContainsFunc(c.findings, said):
		c.findings = append(c.findings, Finding{Warning: true, Attribute: "roles", Summary: noQuota,
			Detail: what + ": the job waits until there is room in the namespace's ResourceQuota."})
	}
}

// needed is the least of a quota's resource that lets the gang start: as many members as must
// run, those that ask for the least, and all pods that are no members.
func (c *check) needed(pods []*corev1.Pod, quota *corev1.ResourceQuota, name corev1.ResourceName) (sum quantity.Quantity) {
	var members []quantity.Quantity
	for _, pod := range pods {
		var asked quantity.Quantity
		if inScope(quota, pod) {
			asked = charged(pod)[name]
		}
		if role, _ := inventory.Replica(pod); c.spec.Late(role) {
			sum.Add(asked)
		} else {
			members = append(members, asked)
		}
	}
	slices.SortFunc(members, func(a, b quantity.Quantity) int { return a.Cmp(b) })
	for _, asked := range members[:min(len(members), int(c.spec.Minimum))] {
		sum.Add(asked)
	}
	return sum
}

// charged is what quotas count of a pod, by the names that they have for it (Kubernetes:
// "Resource Quotas").
func charged(pod *corev1.Pod) corev1.ResourceList {
	one := *quantity.NewQuantity(1, quantity.DecimalSI)
	counted := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, amount := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		counted["requests."+name] = amount
		if slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name) {
			counted[name] = amount
		}
	}
	for name, amount := range resource.PodLimits(pod, resource.PodResourcesOptions{}) {
		counted["limits."+name] = amount
	}
	return counted
}

// quotaExceeded begins what the API server says of a ResourceQuota that is used up.
const quotaExceeded = "exceeded quota: "

// MayPass reports whether a refusal may be over without anybody's doing: a ResourceQuota is used up, whose limits leave
// room for what is asked once others have gone.
func MayPass(refusal string) bool {
	_, text, exceeded := strings.Cut(refusal, quotaExceeded)
	if !exceeded {
		return false
	}
	requested, limits := amounts(text, "requested: "), amounts(text, "limited: ")
	for name, limit := range limits {
		if asked, known := requested[name]; known && asked.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// amounts are those in the API server's text after a word, as in "requested: pods=1,cpu=2, used: pods=3".
func amounts(text, after string) map[string]quantity.Quantity {
	_, text, _ = strings.Cut(text, after)
	text, _, _ = strings.Cut(text, ", ")
	found := map[string]quantity.Quantity{}
	for part := range strings.SplitSeq(text, ",") {
		name, amount, _ := strings.Cut(part, "=")
		if n, err := quantity.ParseQuantity(strings.TrimSpace(amount)); err == nil {
			found[name] = n
		}
	}
	return found
}
