package cluster

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Live returns the cluster for the ledger of a walk; own tells by its labels whether an
// object belongs to the configuration.
func (s *Snapshot) Live(own func(labels map[string]string) bool) ledger.Live {
	live := ledger.Live{View: s.view, Limits: s.limits, Barred: s.Barred, NoTree: s.QuotaTree == nil, Own: map[string]bool{}, Daemons: s.daemons}
	for i := range s.Objects.Pods {
		object := &s.Objects.Pods[i]
		holds, ok := inventory.Pod(object)
		if !ok {
			continue
		}
		known, ok := s.view.Pod(holds.ID)
		if !ok {
			continue
		}
		pod := ledger.Pod{Pod: known, Namespace: object.Namespace, Name: cmp.Or(known.Gang, object.Namespace+"/"+object.Name)}
		if inventory.LeafOf(object, nil) == "" {
			pod.Leaf = "" // the tree that the plan makes has a leaf for its namespace, maybe another one
		}
		if job := JobOf(object); job != "" {
			pod.Job, pod.Name = job, job
			if own(object.Labels) {
				live.Own[pod.Job] = true
			}
		}
		live.Pods = append(live.Pods, pod)
	}
	for _, gang := range s.waiting {
		waiting := ledger.Waiting{Gang: gang.Gang, Name: placement.NameOf(gang.Gang.ID), Reserved: reserved(gang)}
		named := false
		for _, object := range gang.Pods {
			named = named || inventory.LeafOf(object, nil) != ""
			if job := JobOf(object); job != "" {
				waiting.Job = job
				live.Own[waiting.Job] = live.Own[waiting.Job] || own(object.Labels)
			}
		}
		if !named {
			waiting.Leaf = ""
		}
		live.Waiting = append(live.Waiting, waiting)
	}
	live.OwnTree = s.QuotaTree != nil && own(s.QuotaTree.GetLabels())
	return live
}

// reserved reports whether the scheduler says that it keeps capacity for a gang.
func reserved(gang inventory.GangState) bool {
	for _, pod := range gang.Pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, contract.ReservedText) {
				return true
			}
		}
	}
	return false
}

// Reserve has a view keep the capacity that the scheduler says it keeps for gangs that wait, other
// than one.
func (s *Snapshot) Reserve(view *snapshot.View, but string) {
	var gangs []placement.Gang
	for _, gang := range s.waiting {
		if gang.Gang.ID != but && reserved(gang) {
			gangs = append(gangs, gang.Gang)
		}
	}
	backfill.ReserveEach(view, gangs)
}

// JobOf is the ID of a pod's training job, "" for none.
func JobOf(pod *corev1.Pod) string {
	if name := pod.Labels[contract.JobNameLabel]; name != "" {
		return pod.Namespace + "/" + name
	}
	return ""
}

// ViewWithout returns what View does, as if jobs held nothing.
func (s *Snapshot) ViewWithout(jobs ...string) *snapshot.View {
	view := s.View()
	for i := range s.Objects.Pods {
		if object := &s.Objects.Pods[i]; slices.Contains(jobs, JobOf(object)) {
			if holds, ok := inventory.Pod(object); ok {
				view.RemovePod(holds.ID)
			}
		}
	}
	return view
}

// Priority returns the value of a priority class, "" for the cluster's default, and
// whether pods of it take no places from others; ok is false for a class that does not exist.
func (s *Snapshot) Priority(class string) (value int32, never, ok bool) {
	for i := range s.PriorityClasses {
		c := &s.PriorityClasses[i]
		if c.Name == class || class == "" && c.GlobalDefault {
			return c.Value, c.PreemptionPolicy != nil && *c.PreemptionPolicy == corev1.PreemptNever, true
		}
	}
	return 0, false, class == ""
}
