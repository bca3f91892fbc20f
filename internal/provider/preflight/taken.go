package preflight

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Taken looks for objects of others under the names of those that the operator makes for a job
// (training operator 1.9; MPI operator v0.1, v0.6; JobSet 0.7), the job queue keeps it by, and the provider makes for arena. The operator makes none in their
// place, and goes no further with the job.
func Taken(ctx context.Context, client *kube.Client, spec job.Spec) []Finding {
	c := &check{Client: client, ctx: ctx, spec: spec}
	c.taken()
	return c.findings
}

func (c *check) taken() {
	c.takenFromArena()
	c.takenFromTensorBoard()
	c.takenFromQueue()
	switch c.spec.Framework {
	case job.MPI:
		c.takenFromMPI()
		return
	case job.JobSet, job.TrainJob:
		c.takenFromJobSet()
		return
	case job.Batch:
		return // Kubernetes makes pods of it, under names of their own, and nothing else
	}
	// Of services with its label and without a controller the operator takes its job's, and all others are of other jobs.
	others := contract.JobOperatorNameLabel + "!=" + c.spec.Framework.Operators()[0]
	services, err := c.Typed.CoreV1().Services(c.spec.Namespace).List(c.ctx, metav1.ListOptions{LabelSelector: others})
	if err != nil {
		return
	}
	names := c.replicaNames()
	for i := range services.Items {
		if s := &services.Items[i]; slices.Contains(names, s.Name) {
			c.inTheWay("Service", s)
		}
	}
}

// takenFromArena looks for a ConfigMap of others where the one would be by which arena knows the job.
func (c *check) takenFromArena() {
	if !c.spec.Arena {
		return
	}
	config, err := c.Typed.CoreV1().ConfigMaps(c.spec.Namespace).Get(c.ctx, c.spec.ArenaName(), metav1.GetOptions{})
	if err == nil && c.foreign(config) {
		c.add("arena_compatible", "ConfigMap exists already", "arena knows job %[1]s by a ConfigMap %[2]s, and there is one of that name that is not the job's%[3]s: it stays as it is, and arena would not know the job. "+
			"Choose another name for the job, delete the ConfigMap if nobody needs it, or leave arena_compatible out.",
			c.spec.ID(), config.Name, job.Whose(config.OwnerReferences))
	}
}

// takenFromTensorBoard looks for a Deployment or a Service of others where those of the job's TensorBoard would be.
func (c *check) takenFromTensorBoard() {
	if c.spec.TensorBoard == nil {
		return
	}
	name := c.spec.TensorBoardName()
	add := func(kind string, object metav1.Object) {
		if c.foreign(object) {
			c.add("tensorboard", kind+" exists already", "The TensorBoard of job %[1]s is a %[2]s %[3]s, and there is one of that name that is not the job's%[4]s: it stays as it is. "+
				"Choose another name for the job, delete the %[2]s if nobody needs it, or leave tensorboard out.", c.spec.ID(), kind, name, job.Whose(object.GetOwnerReferences()))
		}
	}
	if deployment, err := c.Typed.AppsV1().Deployments(c.spec.Namespace).Get(c.ctx, name, metav1.GetOptions{}); err == nil {
		add("Deployment", deployment)
	}
	if service, err := c.Typed.CoreV1().Services(c.spec.Namespace).Get(c.ctx, name, metav1.GetOptions{}); err == nil {
		add("Service", service)
	}
}

// takenFromQueue looks for the unit of another job where the job's would be.
func (c *check) takenFromQueue() {
	if !c.spec.Queue {
		return
	}
	unit, err := c.Get(c.ctx, unitKind, c.spec.Namespace, c.spec.QueueUnitName())
	if err == nil && c.foreign(unit) {
		c.findings = append(c.findings, Finding{Warning: true, Attribute: "name", Summary: "Unit of the queue exists already", Detail: fmt.Sprintf(
			"The job queue keeps job %[1]s by a %[2]s %[3]s, and there is one of that name that is not the job's%[4]s: the job stays suspended until that one has gone. Choose another name for the job.",
			c.spec.ID(), unit.GetKind(), unit.GetName(), job.Whose(unit.GetOwnerReferences()))})
	}
}

// unitKind is the kind of what the job queue keeps of a job.
var unitKind = schema.GroupVersionKind{Group: contract.QueueGroup, Version: contract.QueueVersion, Kind: contract.QueueUnitKind}

// replicaNames are the names of the replicas' pods, and of the services before them.
func (c *check) replicaNames() (names []string) {
	pods, err := c.spec.Pods()
	if err != nil {
		return nil // said elsewhere
	}
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

// takenFromMPI does not look for the Secret with the keys of an MPIJob v2beta1: who plans need not read Secrets.
func (c *check) takenFromMPI() {
	core, rbac, ns, launcher := c.Typed.CoreV1(), c.Typed.RbacV1(), c.spec.Namespace, c.spec.Launcher()
	var get metav1.GetOptions
	if config, err := core.ConfigMaps(ns).Get(c.ctx, c.spec.Name+"-config", get); err == nil {
		c.inTheWay("ConfigMap", config)
	}
	if c.spec.Version != "" {
		if batch, err := c.Typed.BatchV1().Jobs(ns).Get(c.ctx, launcher, get); err == nil {
			c.inTheWay("Job", batch)
		}
	}
	if c.spec.Version == contract.MPIOperatorVersion {
		if service, err := core.Services(ns).Get(c.ctx, c.spec.Name, get); err == nil {
			c.inTheWay("Service", service)
		}
		return
	}
	if role, err := rbac.Roles(ns).Get(c.ctx, launcher, get); err == nil {
		c.inTheWay("Role", role)
	}
	if binding, err := rbac.RoleBindings(ns).Get(c.ctx, launcher, get); err == nil {
		c.inTheWay("RoleBinding", binding)
	}
	if account, err := core.ServiceAccounts(ns).Get(c.ctx, launcher, get); err == nil {
		switch {
		case c.spec.Version == contract.MPIAlphaVersion:
			c.inTheWay("ServiceAccount", account)
		case c.spec.ServiceAccount == "" && c.foreign(account):
			c.findings = append(c.findings, Finding{Warning: true, Attribute: "name", Summary: "ServiceAccount exists already", Detail: fmt.Sprintf(
				"The launcher of job %s runs as the ServiceAccount %s, and there is one of that name that is not the job's%s: the operator uses it as it is, and gives it the right to run commands in the workers. "+
					"Choose another name, or set service_account.", c.spec.ID(), launcher, job.Whose(account.OwnerReferences))})
		}
	}
	if c.spec.Version != contract.MPIAlphaVersion {
		return
	}
	if workers, err := c.Typed.AppsV1().StatefulSets(ns).Get(c.ctx, job.WorkerSet(c.spec.Name), get); err == nil {
		c.inTheWay("StatefulSet", workers)
	}
}

// takenFromJobSet looks for the Jobs of the roles, which the controller could not create, and for the
// service by which pods find each other, which it would leave as it is.
func (c *check) takenFromJobSet() {
	for _, name := range c.spec.Children() {
		if child, err := c.Typed.BatchV1().Jobs(c.spec.Namespace).Get(c.ctx, name, metav1.GetOptions{}); err == nil {
			c.inTheWay("Job", child)
		}
	}
	if c.spec.Framework == job.TrainJob {
		c.takenFromTrainJob()
	}
	service, err := c.Typed.CoreV1().Services(c.spec.Namespace).Get(c.ctx, c.spec.Name, metav1.GetOptions{})
	if err == nil && c.foreign(service) {
		c.findings = append(c.findings, Finding{Warning: true, Attribute: "name", Summary: "Service exists already", Detail: fmt.Sprintf(
			"The pods of job %s find each other by a Service %s, and there is one of that name that is not the job's%s: the controller of JobSets makes none then, and the pods have no names in DNS. Choose another name.",
			c.spec.ID(), service.Name, job.Whose(service.OwnerReferences))})
	}
}

// takenFromTrainJob looks for what has the names of a TrainJob's runtime and JobSet.
func (c *check) takenFromTrainJob() {
	if set, err := c.Get(c.ctx, job.JobSet.GVK(), c.spec.Namespace, c.spec.Name); err == nil {
		labels := set.GetLabels()
		replaced := labels[contract.ManagedByLabel] == contract.ManagedByValue && c.spec.Owner != "" && labels[contract.OwnerLabel] == c.spec.Owner
		if !replaced { // the job had another framework
			c.inTheWay(set.GetKind(), set)
		}
	}
	if runtime, err := c.Get(c.ctx, job.RuntimeGVK(), c.spec.Namespace, c.spec.Name); err == nil && !c.spec.OwnsRuntime(runtime) {
		c.add("name", "TrainingRuntime exists already", "What the pods of job %[1]s are is written into a TrainingRuntime %[2]s, and there is one of that name that is not the job's%[3]s: it stays as it is. "+
			"Choose another name for the job, or delete the TrainingRuntime if nobody needs it.", c.spec.ID(), runtime.GetName(), job.Whose(runtime.GetOwnerReferences()))
	}
}

// foreign reports whether an object is someone else's, and stays.
func (c *check) foreign(object metav1.Object) bool {
	return object.GetDeletionTimestamp() == nil && !c.spec.Owns(object.GetOwnerReferences())
}

func (c *check) inTheWay(kind string, object metav1.Object) {
	if c.foreign(object) {
		c.add("name", kind+" exists already", "The operator makes a %[1]s %[2]s for job %[3]s, and there is one of that name that is not the job's%[4]s: "+
			"the operator does not take it, and goes no further with the job. Choose another name for the job, or delete the %[1]s if nobody needs it.",
			kind, object.GetName(), c.spec.ID(), job.Whose(object.GetOwnerReferences()))
	}
}
