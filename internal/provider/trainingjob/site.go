package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// site is where a job runs: in the cluster of its object, or, of a job of a fleet, in the member cluster to which the hub has sent it.
type site struct {
	// cluster is the name of that member cluster, "" for none.
	cluster string
	client  *kube.Client
	seen    *cluster.Cluster
	// obj is the job's object there, nil where there is none yet; of a job of a fleet it is brought from the hub's object of UID from.
	obj  *unstructured.Unstructured
	from types.UID
	// standing is a job of a fleet as the hub knows it, where its cluster cannot be asked, or has none of it yet.
	standing *unstructured.Unstructured
	// waits is why a job of a fleet has no cluster, and left the one to which the hub had sent it before, "" for none.
	waits, left string
}

// siteOf finds where a job runs, of which obj is the object that Terraform has made.
func (r *trainingJob) siteOf(ctx context.Context, m *model, obj *unstructured.Unstructured) (s site, err error) {
	if m.ofFleet() {
		return siteInFleet(ctx, r.Session, job.Framework(m.Framework.ValueString()), obj)
	}
	return siteHere(r.Session, obj)
}

// siteHere is the cluster of the job's object.
func siteHere(on *session.Session, obj *unstructured.Unstructured) (s site, err error) {
	s.obj = obj
	if s.client, err = on.Kube(); err == nil {
		s.seen, err = on.Cluster()
	}
	return s, err
}

// siteAnywhere finds where a job runs of which nothing is known but its object: where its API server is the hub of a fleet, in the cluster
// to which that has sent it.
func siteAnywhere(ctx context.Context, on *session.Session, framework job.Framework, obj *unstructured.Unstructured) (s site, err error) {
	client, err := on.Kube()
	if err != nil {
		return s, err
	}
	_, hub, err := client.Served(ctx, contract.KarmadaClusterGroup, contract.KarmadaClusterKind)
	if err != nil {
		return s, err
	}
	if hub {
		return siteInFleet(ctx, on, framework, obj)
	}
	return siteHere(on, obj)
}

// siteInFleet finds where the hub of a fleet has sent a job, of which obj is the object there.
func siteInFleet(ctx context.Context, on *session.Session, framework job.Framework, obj *unstructured.Unstructured) (s site, err error) {
	hub, err := on.Kube()
	if err != nil {
		return s, err
	}
	object, err := hub.Get(ctx, fleet.BindingKind, obj.GetNamespace(), fleet.BindingName(obj.GetKind(), obj.GetName()))
	if kube.IsNotFound(err) {
		s.waits = "the hub has not looked at it yet: no policy has taken it"
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("look where the hub has sent the job: %w", err)
	}
	binding, err := fleet.BindingOf(object)
	if err != nil {
		return s, err
	}
	cluster, standing := binding.Cluster(), standing(binding, obj)
	if cluster == "" {
		s.standing = standing
		s.left, s.waits = binding.Annotations[contract.SentAnnotation], "it has no cluster yet"
		if said := binding.Scheduled(); said != nil && said.Message != "" {
			s.waits = said.Message
		} else if binding.Spec.Suspension.Scheduling {
			s.waits = "it waits in the queue of the hub"
		}
		return s, nil
	}
	s, err = siteInMember(ctx, on, framework, obj, cluster)
	s.standing = standing
	return s, err
}

// standing is a job with the status that its cluster has told the hub, else with the hub's own where it has succeeded: it may be that of a
// cluster which the job has left, and failed there, or ran.
func standing(b *fleet.Binding, obj *unstructured.Unstructured) *unstructured.Unstructured {
	if there := b.Shown(obj); there != nil {
		return there
	}
	if status, err := job.StatusOf(obj); err != nil || status.Phase == job.Succeeded {
		return obj
	}
	bare := obj.DeepCopy()
	delete(bare.Object, "status")
	return bare
}

// shown is a job with the status that counts, of which obj is the object that Terraform has made.
func (s site) shown(obj *unstructured.Unstructured) *unstructured.Unstructured {
	switch {
	case s.obj != nil:
		return s.obj
	case s.standing != nil:
		return s.standing
	}
	return obj
}

// siteInMember is a member cluster for a job that was sent there.
func siteInMember(ctx context.Context, on *session.Session, framework job.Framework, obj *unstructured.Unstructured, cluster string) (s site, err error) {
	s.cluster, s.from = cluster, obj.GetUID()
	members, err := on.Fleet()
	if err != nil {
		return s, err
	}
	member, err := members.MemberCalled(ctx, s.cluster)
	if err != nil {
		return s, err
	}
	s.client, s.seen = member.Client, member.Seen
	s.obj, err = find(ctx, s.client, framework, obj.GetNamespace(), obj.GetName())
	if absent(err) {
		s.obj, s.waits, err = nil, "it is on its way to cluster "+s.cluster, nil
	}
	if err != nil {
		return s, fmt.Errorf("member cluster %s: %w", s.cluster, err)
	}
	if s.obj != nil && !fleet.Brought(s.obj, s.from) {
		s.obj, s.waits = nil, fmt.Sprintf("cluster %s has another job of its name: an earlier one, someone's there, or that of another fleet", s.cluster)
	}
	return s, nil
}

// emptied waits until a member cluster has neither a job of a fleet nor pods of it, because they hold the GPUs of nodes that may be
// deleted next. stays reports whether the cluster has a job of that name that the hub does not delete: it was left there, or is someone
// else's.
func (s site) emptied(ctx context.Context, spec job.Spec) (stays bool, err error) {
	if s.cluster == "" {
		return false, nil
	}
	for {
		found, err := find(ctx, s.client, spec.Framework, spec.Namespace, spec.Name)
		switch {
		case err == nil && !fleet.Managed(found):
			return true, nil
		case err == nil && !fleet.Brought(found, s.from): // it is of another fleet, which goes on to look after it
			return false, nil
		}
		there := err == nil
		if absent(err) {
			pods, listErr := s.client.Typed.CoreV1().Pods(spec.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podLabels(spec).String()})
			if err = listErr; err == nil {
				there = len(pods.Items) > 0
			}
		}
		if err == nil && !there {
			return false, nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("the job or its pods are there still")
			}
			return false, fmt.Errorf("wait until job %s is gone from cluster %s: %w", spec.ID(), s.cluster, err)
		case <-time.After(again):
		}
	}
}

// again is how soon a member cluster is asked once more.
const again = 500 * time.Millisecond

// waitInFleet is wait for a job of a fleet: for a cluster first, and then for the job there.
func (r *trainingJob) waitInFleet(ctx context.Context, m *model, spec job.Spec, goal string, placed int) (*unstructured.Unstructured, error) {
	hub, err := r.Session.Kube()
	if err != nil {
		return nil, err
	}
	goal = cmp.Or(goal, waitRunning)
	said := ""
	for {
		obj, err := hub.Get(ctx, spec.GVK(), spec.Namespace, spec.Name)
		if err != nil || goal == waitNone {
			return obj, err
		}
		at, err := r.siteOf(ctx, m, obj)
		done, status := false, at.waits
		switch {
		case err != nil:
			status = err.Error() // the member cluster may be back soon
		case at.obj != nil:
			if done, status, err = reached(at.obj, goal, placed); err != nil || done {
				return obj, err
			}
			status = fmt.Sprintf("cluster %s: %s", at.cluster, status)
		}
		if status != said {
			said = status
			tflog.Info(ctx, "waiting for the job", map[string]any{"job": spec.ID(), "status": status})
		}
		select {
		case <-ctx.Done():
			return obj, fmt.Errorf("wait for %s %s: %w; last seen: %s", spec.GVK().Kind, spec.ID(), ctx.Err(), said)
		case <-time.After(again):
		}
	}
}
