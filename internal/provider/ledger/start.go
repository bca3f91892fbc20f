package ledger

import (
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// starts are the jobs that an apply has let start, with the places that they were about to
// get. The cluster shows a job only a while after it was created.
type starts struct {
	mu   sync.Mutex
	jobs map[string]started
}

type started struct {
	gang      placement.Gang
	placement placement.Placement
}

// Start plans a job that an apply is about to create: beside the jobs that it has let start
// already, and alone, as if there were none of them. The view is the cluster as it is now,
// and is changed. A job that is no gang is not counted beside others.
func (l *Ledger) Start(view *placement.View, g placement.Gang, isGang bool, plan func(*placement.View) placement.Result) (beside, alone placement.Result) {
	s := &l.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := map[string][]placement.Pod{}
	for _, node := range view.Nodes() {
		for _, p := range view.Pods(node) {
			if _, ok := s.jobs[p.Gang]; ok {
				shown[p.Gang] = append(shown[p.Gang], p)
				view.RemovePod(p.ID)
			}
		}
	}
	alone = plan(view)
	for id, job := range s.jobs {
		for _, p := range shown[id] {
			view.AddPod(p)
		}
		if len(shown[id]) == 0 {
			view.Apply(job.gang, job.placement)
		}
	}
	beside = alone
	if len(s.jobs) > 0 {
		beside = plan(view)
	}
	if isGang && beside.Placement != nil {
		s.jobs[g.ID] = started{g, *beside.Placement}
	}
	return beside, alone
}
