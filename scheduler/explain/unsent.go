package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/condition"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/natural"
)

// Unsent is a job on the hub of a fleet that is in none of its clusters.
type Unsent struct {
	heldJob
	// binding is what the hub has made of the job and a policy, nil for nothing.
	binding *unstructured.Unstructured
}

// ListUnsent lists the jobs of a hub that are in no cluster, and have not ended.
func ListUnsent(ctx context.Context, hub *kube.Client) (unsent []Unsent, err error) {
	list, err := hub.List(ctx, schema.GroupVersionKind{Group: contract.KarmadaWorkGroup, Version: contract.ResourceBindingVersion, Kind: contract.ResourceBindingKind}, "", "")
	if err != nil {
		return nil, fmt.Errorf("list where the jobs of the fleet are: %w", err)
	}
	bindings := map[string]*unstructured.Unstructured{}
	for i := range list {
		of, _, _ := unstructured.NestedStringMap(list[i].Object, "spec", "resource")
		bindings[of["kind"]+" "+of["namespace"]+"/"+of["name"]] = &list[i]
	}
	units := map[string]*contract.QueueUnit{}
	queued, err := clusterlist.QueueUnits(ctx, hub, "")
	if readable(&err); err != nil {
		return nil, err
	}
	for i := range queued {
		if ref := queued[i].Spec.ConsumerRef; ref.Kind == contract.ResourceBindingKind {
			units[queued[i].Namespace+"/"+ref.Name] = &queued[i]
		}
	}
	queues, err := queuePaths(ctx, hub)
	if err != nil {
		return nil, err
	}
	for _, kind := range jobKinds {
		jobs, err := listServed(ctx, hub, kind.group, kind.kind, "")
		if err != nil {
			return nil, err
		}
		for _, job := range jobs {
			u := Unsent{heldJob: heldJob{kind: kind.kind, namespace: job.GetNamespace(), name: job.GetName(), object: &job}}
			u.binding = bindings[kind.kind+" "+u.namespace+"/"+u.name]
			if status, err := trainingjob.StatusOf(&job); u.sent() || err == nil && status.Finished() {
				continue
			}
			if u.binding != nil {
				u.unit = units[u.binding.GetNamespace()+"/"+u.binding.GetName()]
			}
			if u.unit != nil {
				u.queue = cmp.Or(queues[u.unit.Spec.Queue], u.unit.Spec.Queue)
			}
			unsent = append(unsent, u)
		}
	}
	return unsent, nil
}

func (u Unsent) sent() bool {
	if u.binding == nil {
		return false
	}
	clusters, _, _ := unstructured.NestedSlice(u.binding.Object, "spec", "clusters")
	return len(clusters) > 0
}

// Is reports whether the job is the one of a name.
func (u Unsent) Is(namespace, name string) bool { return u.namespace == namespace && u.name == name }

// Answer says why the job is in no cluster.
func (u Unsent) Answer() Answer {
	a := Answer{Gang: u.namespace + "/" + u.name, Job: u.kind, State: Waiting}
	switch why, since := u.why(); {
	case u.binding == nil:
		a.State, a.Rejections = Incomplete, []string{"no policy of the hub sends it to a cluster"}
	case u.held() && u.unit == nil:
		a.State, a.Rejections = Suspended, []string{"its policy holds it for a queue, and it is in none: give a leaf of the hub's quota tree its namespace"}
	case u.held():
		a = u.heldJob.answer()
	default:
		a.Rejections, a.Since = []string{why}, since
	}
	if pods, err := trainingjob.Pods(u.object); err == nil {
		a.Needed = len(pods)
	}
	return a
}

// held reports whether the job waits in the queue of the hub.
func (u Unsent) held() bool {
	held, _, _ := unstructured.NestedBool(u.binding.Object, "spec", "suspension", "scheduling")
	return held
}

// why is what the scheduler of the fleet has said of the job, and since when.
func (u Unsent) why() (text string, since time.Time) {
	if u.binding == nil {
		return "", time.Time{}
	}
	said, err := condition.Find(u.binding, contract.BindingScheduled)
	if err == nil && said != nil && said.Status != metav1.ConditionTrue {
		return strings.TrimSuffix(said.Message, "."), said.LastTransitionTime.Time
	}
	scheduler, _, _ := unstructured.NestedString(u.binding.Object, "spec", "schedulerName")
	return fmt.Sprintf("%s has said nothing of it yet", cmp.Or(scheduler, "the scheduler of the fleet")), u.binding.GetCreationTimestamp().Time
}

// Fixes are changes of clusters, by name, of which each makes the job fit there, were it not held; none where it fits in one.
func (u Unsent) Fixes(clusters map[string]*clusterstate.Snapshot) (all []Fix) {
	for _, name := range slices.SortedFunc(maps.Keys(clusters), natural.Compare) {
		found, fits := u.fixes(clusters[name])
		if fits {
			return nil
		}
		for _, f := range found {
			f.Cluster, f.Text = name, f.Text+" in "+name
			all = append(all, f)
		}
	}
	return all
}
