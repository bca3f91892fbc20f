package placement

import (
	"math"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
)

// Pod is a running (or reserved) consumer of a node.
type Pod struct {
	// ID is unique in the view, for example "namespace/name" or a UID.
	ID      string
	Node    string
	Request Request
	// Own are the whole GPUs of the pod, Shares its parts of GPUs.
	Own    gpu.Set
	Shares []GPUShare
	// Namespace and Labels are what selectors find the pod by.
	Namespace string
	Labels    map[string]string
	// Gang is the ID of the pod's gang, "" for none; Leaf the quota leaf that is charged.
	Gang        string
	Leaf        string
	Priority    int32
	Preemptible bool
	// Leaving means that the pod is being deleted already, Pinned that it must never be
	// evicted, because it would come back to its node at once.
	Leaving, Pinned bool
	// Overdue means that a pod that is leaving should have gone long ago: its end is not
	// waited for.
	Overdue bool
	// Undeletable means that the API server refuses to delete the pod: it is no victim, and where
	// it was to be evicted its end is not waited for.
	Undeletable bool
	// Budgets are the names of the disruption budgets that cover the pod ([snapshot.View.SetBudget]).
	Budgets []string
	// StartedAt and EndsAt are Unix seconds, 0 for a pod that has not started, and for one
	// without a certain end. Of equal victims the youngest goes first.
	StartedAt, EndsAt int64
}

// Start is when the pod started, after all others for one that has not: it has least to lose.
func (p *Pod) Start() int64 {
	if p.StartedAt == 0 {
		return math.MaxInt64
	}
	return p.StartedAt
}

// Pods returns the pods that a placement of the gang makes.
func (g *Gang) Pods(assignments []Assignment) []*Pod {
	roles := map[string]*Role{}
	for i := range g.Roles {
		for _, member := range g.Roles[i].Members {
			roles[member] = &g.Roles[i]
		}
	}
	var pods []*Pod
	for _, a := range assignments {
		if role := roles[a.Member]; role != nil {
			pods = append(pods, &Pod{
				ID: g.ID + "/" + a.Member, Node: a.Node, Request: role.Request, Own: a.Own, Shares: a.Shares,
				Namespace: NamespaceOf(g.ID), Labels: role.Labels,
				Gang: g.ID, Leaf: g.Leaf, Priority: g.Priority, Preemptible: g.Preemptible,
			})
		}
	}
	return pods
}

// GPUs returns the GPUs of the pod, whole or in part.
func (p *Pod) GPUs() gpu.Set {
	s := p.Own
	for _, share := range p.Shares {
		s |= gpu.SetOf(share.GPU)
	}
	return s
}

// NamespaceOf returns the namespace in the ID of a gang.
func NamespaceOf(gang string) string {
	namespace, _, _ := strings.Cut(gang, "/")
	return namespace
}
