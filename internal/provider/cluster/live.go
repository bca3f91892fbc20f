package cluster

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Live returns the cluster for the ledger of a walk; own tells by its labels whether an
// object belongs to the configuration. A quota tree that cannot be used counts as none.
func (s *Snapshot) Live(own func(labels map[string]string) bool) ledger.Live {
	live := ledger.Live{View: s.view, Limits: s.limits, NoTree: s.QuotaTree == nil, Own: map[string]bool{}}
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
		if job := object.Labels[contract.JobNameLabel]; job != "" {
			pod.Job = object.Namespace + "/" + job
			pod.Name = pod.Job
			if own(object.Labels) {
				live.Own[pod.Job] = true
			}
		}
		live.Pods = append(live.Pods, pod)
	}
	for _, gang := range s.waiting {
		waiting := ledger.Waiting{Gang: gang.Gang, Name: placement.NameOf(gang.Gang.ID)}
		for _, object := range gang.Pods {
			if job := object.Labels[contract.JobNameLabel]; job != "" {
				waiting.Job = object.Namespace + "/" + job
				live.Own[waiting.Job] = live.Own[waiting.Job] || own(object.Labels)
			}
		}
		live.Waiting = append(live.Waiting, waiting)
	}
	live.OwnTree = s.QuotaTree != nil && own(s.QuotaTree.GetLabels())
	return live
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
