package preflight

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
)

// noQuota is the headline of what the dry run of one pod says of a ResourceQuota.
const noQuota = "No quota now"

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
	for _, object := range c.spec.Needs() {
		switch {
		case object.Kind == "Service":
			made[corev1.ResourceServices]++
			made["count/services"]++
		case object.Kind == contract.BatchJobKind && c.spec.Framework != job.Batch: // that one is the job itself
			made["count/jobs.batch"]++
		}
	}
	if c.spec.Framework == job.MPI {
		made[corev1.ResourceConfigMaps]++
		made["count/configmaps"]++
	}
	if c.spec.Framework == job.TrainJob {
		for resource, kind := range map[string]job.Framework{contract.TrainJobResource: job.TrainJob, contract.JobSetResource: job.JobSet} {
			made[corev1.ResourceName("count/"+resource+"."+kind.GVK().Group)]++
		}
	}
	return made
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
		c.add("roles", "The namespace's quota is too small", "%s: %s. Raise the quota, or make the job smaller.", what, otherwise)
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
