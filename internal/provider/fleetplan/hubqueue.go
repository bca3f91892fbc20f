package fleetplan

import (
	"context"
	"fmt"
	"slices"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// ended are the phases of jobs that the queue does not count any more.
var ended = []contract.QueueUnitPhase{contract.UnitSucceed, contract.UnitFailed}

// Queue says what the queue of the hub has against a job that its policy holds there: tree is the quota tree of the hub as the walk makes
// it, or as it is, nil for none.
func (f *Fleet) Queue(ctx context.Context, j Job, tree *quota.Tree) (found []Finding, err error) {
	if !j.Policy.Held {
		return nil, nil
	}
	leaf := j.Gang.Leaf
	switch {
	case tree == nil:
		return []Finding{{Summary: "The hub has no quota tree", Detail: fmt.Sprintf(
			"Policy %s has job %s wait in the queue of the hub, which lets jobs go by its quota tree, and there is none: the job never starts. Declare a gpuplan_quota_tree for the hub, and name it in depends_on of the policy, "+
				"or leave suspension out of the policy.", j.Policy.Name, j.ID)}}, nil
	case leaf == "" || !tree.HasLeaf(leaf):
		return []Finding{{Summary: "The hub has no quota for the job", Detail: fmt.Sprintf(
			"Policy %s has job %s wait in the queue of the hub, and no leaf of its quota tree is for the job: it never starts. Give a leaf its namespace, or name one in quota.", j.Policy.Name, j.ID)}}, nil
	}
	unused := tree.Unused()
	exceeded := unused.Fits(leaf, j.Gang.Charge(), j.Gang.Preemptible)
	if exceeded == nil {
		exceeded = unused.FitsJob(leaf)
	}
	if exceeded != nil {
		return []Finding{{Error: true, Summary: "Job exceeds its quota", Detail: fmt.Sprintf(
			"The queue of the hub never lets job %s go, because it needs quota for all members: %s.", j.ID, exceeded)}}, nil
	}
	ahead, err := f.ahead(ctx, j, tree)
	if err != nil {
		return nil, err
	}
	if _, most := tree.JobsOf(leaf); most > 0 && int64(len(ahead)) >= most {
		found = append(found, Finding{Error: j.Immediate, Summary: "Job will wait in the queue of the hub", Detail: fmt.Sprintf(
			"The queue of the hub lets %d jobs of %s run at a time, and %s come before job %s.", most, tree.Path(leaf), list(ahead), j.ID)})
	}
	return found, nil
}

// ahead are the jobs of the leaf of a job that run, or wait in the queue, and those that the walk has planned before it.
func (f *Fleet) ahead(ctx context.Context, j Job, tree *quota.Tree) (ids []string, err error) {
	queues, err := clusterlist.Queues(ctx, f.hub)
	if err != nil {
		return nil, err
	}
	units, err := clusterlist.QueueUnits(ctx, f.hub, "")
	if err != nil {
		return nil, err
	}
	of := map[string]bool{}
	for _, q := range queues {
		if q.Annotations[contract.QueuePathAnnotation] == tree.Path(j.Gang.Leaf) {
			of[q.Name] = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range units {
		id := u.Namespace + "/" + fleet.JobOf(u.Spec.ConsumerRef)
		if of[u.Spec.Queue] && !slices.Contains(ended, u.Status.Phase) && id != j.ID && !f.gone[id] {
			ids = append(ids, id)
		}
	}
	for id, other := range f.jobs {
		if id != j.ID && other.Policy.Held && other.Gang.Leaf == j.Gang.Leaf {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// list names a few jobs.
func list(ids []string) string {
	const few = 3
	if len(ids) > few {
		return fmt.Sprintf("%d of them", len(ids))
	}
	text := ""
	for i, id := range ids {
		switch {
		case i == 0:
		case i == len(ids)-1:
			text += " and "
		default:
			text += ", "
		}
		text += id
	}
	return text
}
