package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// whereabouts are where the members of a job run.
type whereabouts struct {
	// members are those that are bound, in the order of their names. Their GPUs are what the node agent has confirmed, else what
	// the scheduler has recorded.
	members []assignment.Model
	// confirmed reports whether the containers of all these members that ask for GPUs were confirmed to have them, null where nobody
	// has confirmed any.
	confirmed types.Bool
	// why says in a sentence why a member is not where it was planned, "" where nobody says so.
	why string
}

// whereaboutsOf looks at the pods of a job. Members whose records cannot be read are left out, with a warning.
func whereaboutsOf(ctx context.Context, seen *cluster.Cluster, obj *unstructured.Unstructured, diags *diag.Diagnostics) (w whereabouts, err error) {
	spec, err := job.Parse(obj)
	if err != nil {
		return w, err
	}
	pods, err := seen.Pods(ctx, spec.Namespace, podLabels(spec))
	if err != nil {
		return w, fmt.Errorf("pods of job %s: %w", spec.ID(), err)
	}
	pods = slices.DeleteFunc(current(pods), func(pod *corev1.Pod) bool {
		role, _ := replica(pod)
		return spec.Late(role) || pod.Spec.NodeName == ""
	})
	asking, confirmed, whole := 0, 0, 0
	for _, pod := range pods {
		record, _, err := contract.AllocationFrom(pod.Annotations)
		if err != nil {
			diags.AddWarning("GPUs of a pod are not known", fmt.Sprintf("What the scheduler has written on pod %s/%s of job %s cannot be read: %s "+
				"Where the scheduler is newer than the provider, update the provider; otherwise someone has changed it, and the pod has a new one when it is made again.",
				pod.Namespace, pod.Name, spec.ID(), session.Sentence(err)))
			continue
		}
		if record.NotAsPlanned != "" {
			w.why = cmp.Or(w.why, fmt.Sprintf("The scheduler placed job %s elsewhere: %s.", spec.ID(), record.NotAsPlanned))
		}
		member := assignment.Actual(memberName(pod), pod.Spec.NodeName, record)
		if inventory.AsksForGPUs(pod) {
			asking++
		}
		if given, ok := inventory.GivenTo(pod); ok {
			confirmed++
			if given.Whole {
				whole++
			}
			differs := given.Differs(record)
			if differs != "" {
				w.why = cmp.Or(w.why, fmt.Sprintf("Of pod %s/%s on node %s, %s.", pod.Namespace, pod.Name, pod.Spec.NodeName, differs))
			}
			if differs != "" || len(member.GPUs) == 0 {
				member = member.On(given.GPUs)
			}
		}
		w.members = append(w.members, member)
	}
	if confirmed > 0 {
		w.confirmed = types.BoolValue(whole == asking)
	}
	return w, nil
}
