package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	trainingjob "github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// HubJob is a job on the hub of a fleet that asks for GPUs or is held, and has not ended.
type HubJob struct {
	heldJob
	// binding is what the hub has made of the job and a policy, nil for nothing.
	binding *fleet.Binding
	// unlisted means that the user may not list what is in the queue of the hub.
	unlisted bool
	// pods are those that it will have, none where they cannot be told.
	pods []*corev1.Pod
}

// ListHubJobs lists the jobs of a hub; unread says what may not be read of them.
func ListHubJobs(ctx context.Context, hub *kube.Client) (all []HubJob, unread []string, err error) {
	list, err := hub.List(ctx, fleet.BindingKind, "", "")
	switch {
	case apierrors.IsForbidden(err):
		return nil, []string{"the jobs that are in no cluster are not in the answer: you may not list resourcebindings on the hub"}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("list where the jobs of the fleet are: %w", err)
	}
	bindings := map[string]*fleet.Binding{}
	for i := range list {
		binding, err := fleet.BindingOf(&list[i])
		if err != nil {
			return nil, nil, err
		}
		of := binding.Spec.Resource
		bindings[bindingKey(of.GroupVersionKind(), of.Namespace, of.Name)] = binding
	}
	queued, err := readQueue(ctx, hub, "")
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range jobKinds {
		version, served, err := hub.Served(ctx, kind.group, kind.kind)
		if err != nil {
			return nil, nil, err
		}
		if !served {
			continue
		}
		jobs, err := hub.List(ctx, schema.GroupVersionKind{Group: kind.group, Version: version, Kind: kind.kind}, "", "")
		if apierrors.IsForbidden(err) {
			unread = append(unread, fmt.Sprintf("%ss that are in no cluster are not in the answer: you may not list them on the hub", kind.kind))
		}
		if readable(&err); err != nil {
			return nil, nil, err
		}
		for _, job := range jobs {
			j := HubJob{heldJob: heldJob{kind: kind.kind, namespace: job.GetNamespace(), name: job.GetName(), object: &job}, unlisted: queued.unlisted}
			j.binding = bindings[bindingKey(job.GroupVersionKind(), j.namespace, j.name)]
			if j.finished() {
				continue
			}
			j.pods, _ = trainingjob.Expected(&job)
			if len(j.pods) > 0 && len(clusterstate.NewToCome(j.pods)) == 0 && !j.held() {
				continue
			}
			if j.binding != nil {
				j.unit, j.queue = queued.place(contract.ResourceBindingKind, j.binding)
			}
			all = append(all, j)
		}
	}
	return all, unread, nil
}

// finished reports whether the job has ended. Where its cluster says nothing of it, the hub may show that it has failed in one that it has
// left.
func (j HubJob) finished() bool {
	shown, told := j.object, j.binding == nil
	if !told {
		there := j.binding.Shown(j.object)
		shown, told = cmp.Or(there, shown), there != nil
	}
	if !told && j.binding.Succeeded(j.object) {
		return true
	}
	status, err := trainingjob.StatusOf(shown)
	return err == nil && status.Finished() && (told || status.Phase != trainingjob.Failed)
}

// bindingKey finds the binding of a job, whose version may be another one.
func bindingKey(kind schema.GroupVersionKind, namespace, name string) string {
	return kind.GroupKind().String() + " " + namespace + "/" + name
}

// Clusters are those that the hub has sent the job to, by name.
func (j HubJob) Clusters() (names []string) {
	if j.binding == nil {
		return nil
	}
	for _, cluster := range j.binding.Spec.Clusters {
		names = append(names, cluster.Name)
	}
	return names
}

// Is reports whether the job is the one of a name.
func (j HubJob) Is(namespace, name string) bool { return j.namespace == namespace && j.name == name }

// Answer says why the job is in no cluster.
func (j HubJob) Answer() Answer {
	a := Answer{State: Waiting}
	switch why, since := j.why(); {
	case j.object.GetDeletionTimestamp() != nil:
		a.State, a.Rejections = Incomplete, []string{"it is being deleted"}
	case j.binding == nil:
		a.State, a.Rejections = Incomplete, []string{"no policy of the hub sends it to a cluster"}
	case j.held() && j.unlisted:
		a.State, a.Rejections = Queued, []string{"where it is in line could not be looked at: you may not list queueunits on the hub"}
	case j.held() && j.unit == nil && len(j.pods) == 0:
		a.State, a.Rejections = Suspended, []string{"its policy holds it for a queue, which cannot tell what its pods are"}
	case j.held() && j.unit == nil:
		a.State, a.Rejections = Suspended, []string{"its policy holds it for a queue, and it is in none: give a leaf of the hub's quota tree its namespace"}
	case j.held():
		a = j.heldJob.answer()
	default:
		a.Rejections, a.Since = []string{why}, since
	}
	return j.about(a)
}

// AnswerIn answers for the job in a cluster that it was sent to and that says nothing of it: read means that the cluster was asked.
func (j HubJob) AnswerIn(cluster string, read bool) Answer {
	a := Answer{Cluster: cluster, State: Unknown, Rejections: []string{"the hub has sent it to " + cluster + ", which could not be read"}}
	if read {
		a.State, a.Rejections = Incomplete, []string{"the hub has sent it to " + cluster + ", which has no pods of it yet"}
		if refused := j.refusedBy(cluster); refused != "" {
			a.Rejections = []string{cluster + " does not take it: " + refused}
		}
	}
	return j.about(a)
}

// MissingIn reports whether a cluster does not take the job, and has no pods of it.
func (j HubJob) MissingIn(cluster string, snapshot *clusterstate.Snapshot) bool {
	return j.refusedBy(cluster) != "" && len(snapshot.Find(j.namespace, j.name)) == 0
}

// refusedBy is why the hub could not make the job in a cluster, "" where it could or has not tried.
func (j HubJob) refusedBy(cluster string) string {
	if told := j.binding.ToldBy(cluster); told != nil && !told.Applied {
		return strings.TrimSuffix(told.AppliedMessage, ".")
	}
	return ""
}

// about says in an answer which job it is about, and what that needs.
func (j HubJob) about(a Answer) Answer {
	a.Gang, a.Job, a.onHub = j.namespace+"/"+j.name, j.kind, true
	if len(j.pods) > 0 {
		g := j.gang(j.pods, nil)
		a.Needed, a.Priority = cmp.Or(g.Minimum, members(g)), g.Priority
	}
	return a
}

// held reports whether the job waits in the queue of the hub.
func (j HubJob) held() bool { return j.binding != nil && j.binding.Spec.Suspension.Scheduling }

// why is what the scheduler of the fleet has said of the job, and since when.
func (j HubJob) why() (text string, since time.Time) {
	if j.binding == nil {
		return "", time.Time{}
	}
	if said := j.binding.Scheduled(); said != nil && said.Status != metav1.ConditionTrue {
		return strings.TrimSuffix(said.Message, "."), said.LastTransitionTime.Time
	}
	return fmt.Sprintf("%s has said nothing of it yet", cmp.Or(j.binding.Spec.SchedulerName, "the scheduler of the fleet")), j.binding.CreationTimestamp.Time
}

// FixesIn are changes of a cluster of which each makes the job fit there, were it not held, none where it may not go there at all;
// fits means that it does without one.
func (j HubJob) FixesIn(cluster *contract.FleetCluster, snapshot *clusterstate.Snapshot) (list []Fix, fits bool) {
	if j.object.GetDeletionTimestamp() != nil || j.barred(cluster) {
		return nil, false
	}
	for _, key := range clusterstate.NewToCome(j.pods).Keys() {
		if _, there := snapshot.Gang(key); there {
			return nil, false // someone else's of that name
		}
		if kept := snapshot.View.ReservationOf(key); kept != nil && kept.Granted {
			return nil, true // the place that is kept is the job's own
		}
	}
	list, fits = j.fixes(snapshot)
	for i := range list {
		list[i].Cluster = cluster.Name
		list[i].Text += " in " + cluster.Name
	}
	return list, fits
}

// barred reports whether the policy, or the cluster itself, keeps the job from a cluster.
func (j HubJob) barred(cluster *contract.FleetCluster) bool {
	if j.binding == nil {
		return false // nobody knows which policy is to come
	}
	rules := cmp.Or(j.binding.Spec.Placement, &fleet.Rules{})
	_, why := rules.Bars(cluster, j.binding.Spec.Resource.GroupVersionKind()) // the version that the cluster is to serve
	return why != ""
}
