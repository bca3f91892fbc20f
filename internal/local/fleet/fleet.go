// Package fleet makes member clusters of platforms: it gives each the programs that it needs, and joins it to the hub.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	agent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// manager is who writes what this package applies.
const manager = "gpuplan-local"

var (
	crdKind        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

// Equip gives a member cluster the scheduler and the node agent, unless it has a scheduler, and waits until that runs.
// The platform's runner takes the programs beside its own, whatever the images are.
func Equip(ctx context.Context, member *kube.Client) error {
	_, err := member.Get(ctx, deploymentKind, contract.SystemNamespace, contract.SchedulerName)
	if err != nil && !kube.IsNotFound(err) {
		return err
	}
	if kube.IsNotFound(err) {
		programs, err := scheduler.Objects(scheduler.Options{Image: "gpuplan-scheduler:local", Replicas: 1})
		if err != nil {
			return err
		}
		agents, err := agent.Objects(agent.Options{Image: "gpuplan-node-agent:local"})
		if err != nil {
			return err
		}
		// The scheduler comes last: without it the next start tries again.
		if err := member.ApplyAll(ctx, slices.Concat(agents, programs), nil); err != nil {
			return err
		}
	}
	_, err = member.WaitFor(ctx, deploymentKind, contract.SystemNamespace, contract.SchedulerName, func(object *unstructured.Unstructured) (bool, string, error) {
		available, _, err := unstructured.NestedInt64(object.Object, "status", "availableReplicas")
		return available > 0, "", err
	}, nil)
	if err != nil {
		return fmt.Errorf("wait for the scheduler: %w", err)
	}
	return nil
}

// jobGroups are the API groups of jobs.
var jobGroups = []string{contract.KubeflowGroup, contract.JobSetGroup, contract.TrainerGroup}

// ServeJobs has the hub serve the kinds of jobs that a member cluster serves. Nothing runs them there.
func ServeJobs(ctx context.Context, hub, member *kube.Client) error {
	crds, err := member.List(ctx, crdKind, "", "")
	if err != nil {
		return err
	}
	crds = slices.DeleteFunc(crds, func(crd unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		return !slices.Contains(jobGroups, group)
	})
	if len(crds) == 0 {
		return errors.New("the member cluster serves no kind of job")
	}
	for _, crd := range crds {
		spec, _, err := unstructured.NestedMap(crd.Object, "spec")
		if err != nil {
			return err
		}
		copied := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		copied.SetGroupVersionKind(crdKind)
		copied.SetName(crd.GetName())
		if _, err := hub.ApplyAs(ctx, manager, copied); err != nil {
			return err
		}
	}
	return nil
}

// queueObjects are those of the scheduler's installation that the queue of a hub needs, by kind and name.
var queueObjects = map[string][]string{
	"Namespace": {contract.SystemNamespace, contract.QueueNamespace},
	crdKind.Kind: {
		contract.QuotaTreeResource + "." + contract.QuotaTreeGroup, contract.QueueResource + "." + contract.QueueGroup,
		contract.QueueUnitResource + "." + contract.QueueGroup,
	},
	"ValidatingAdmissionPolicy":        {quotaTreePolicy},
	"ValidatingAdmissionPolicyBinding": {quotaTreePolicy},
}

// quotaTreePolicy refuses quota trees that break the rules.
const quotaTreePolicy = "gpuplan-quota-tree"

// ServeQueue gives the hub the kinds of the job queue and of the quota tree.
func ServeQueue(ctx context.Context, hub *kube.Client) error {
	objects, err := scheduler.Objects(scheduler.Options{Image: "none"})
	if err != nil {
		return err
	}
	return hub.ApplyAll(ctx, slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return !slices.Contains(queueObjects[object.GetKind()], object.GetName())
	}), nil)
}
