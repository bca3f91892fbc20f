package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// toCome are the gangs of a job that is still to come.
type toCome struct {
	clusterstate.ToCome
	// planned are the same with the places that a plan gives them in a cluster, "" for none.
	planned clusterstate.ToCome
	cluster string
}

func newToCome(pods []*corev1.Pod) toCome {
	cluster := ""
	for _, pod := range pods {
		if record, ok, err := contract.PlannedPlacementFrom(pod.Annotations); ok && err == nil { // another one is no plan
			cluster = record.Cluster
		}
	}
	gangs := toCome{planned: clusterstate.NewToCome(pods), cluster: cluster}
	if gangs.ToCome = gangs.planned; cluster == "" {
		return gangs
	}
	anywhere := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		anywhere[i] = pod.DeepCopy()
		delete(anywhere[i].Annotations, contract.PlannedPlacementAnnotation)
	}
	gangs.ToCome = clusterstate.NewToCome(anywhere)
	return gangs
}

// in are the gangs as they come in a cluster: nodes of another one than the planned one may have names of the plan.
func (t toCome) in(cluster string) clusterstate.ToCome {
	if cluster == t.cluster {
		return t.planned
	}
	return t.ToCome
}

// forgetPlan takes out of a manifest what a plan says of the places of its pods.
func forgetPlan(manifest map[string]any) {
	for key, value := range manifest {
		switch v := value.(type) {
		case map[string]any:
			if key == "annotations" {
				delete(v, contract.PlannedPlacementAnnotation)
			}
			forgetPlan(v)
		case []any:
			for _, item := range v {
				if m, ok := item.(map[string]any); ok {
					forgetPlan(m)
				}
			}
		}
	}
}
