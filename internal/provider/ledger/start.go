package ledger

import (
	"slices"
	"sync"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
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
	// shown means that the cluster has shown every pod of it that was to get a place.
	shown bool
}

// allOf reports whether pods are all of those that were to get GPUs. The others may be such as
// start once these run.
func (s started) allOf(pods []placement.Pod) bool {
	missing := 0
	for _, role := range s.gang.Roles {
		if role.Request.Mode != placement.ModeNone {
			for _, a := range s.placement.Assignments {
				if slices.Contains(role.Members, a.Member) {
					missing++
				}
			}
		}
	}
	for _, p := range pods {
		if p.Request.Mode != placement.ModeNone {
			missing--
		}
	}
	return len(pods) > 0 && missing <= 0
}

// Prospect is what a job meets that an apply is about to create.
type Prospect struct {
	// Beside is where it is placed beside the jobs that the apply has let start already, Alone
	// where it would be if there were none of them.
	Beside, Alone placement.Result
	// Pending are the IDs of those of them of which the cluster does not show all pods yet.
	Pending []string
}

// Start plans a job that an apply is about to create. The view is the cluster as it is now,
// without the job, and is changed. The job counts beside others from then on if goes says that
// it starts now; one that waits does not, or two could wait for each other. A job that is no
// gang never counts.
func (l *Ledger) Start(view *snapshot.View, g placement.Gang, isGang bool, plan func(*snapshot.View) placement.Result, goes func(Prospect) bool) (at Prospect) {
	s := &l.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, g.ID)
	pods := map[string][]placement.Pod{}
	for _, node := range view.Nodes() {
		for _, p := range view.Pods(node) {
			if _, ok := s.jobs[p.Gang]; ok && !p.Leaving {
				pods[p.Gang] = append(pods[p.Gang], p)
				view.RemovePod(p.ID)
			}
		}
	}
	at.Alone = plan(view)
	for id, job := range s.jobs {
		if job.shown = job.shown || job.allOf(pods[id]); !job.shown {
			view.Apply(job.gang, job.placement)
			at.Pending = append(at.Pending, id)
			continue
		}
		s.jobs[id] = job
		for _, p := range pods[id] {
			view.AddPod(p)
		}
	}
	at.Beside = at.Alone
	if len(s.jobs) > 0 {
		at.Beside = plan(view)
	}
	if goes(at) && isGang && at.Beside.Placement != nil {
		s.jobs[g.ID] = started{gang: g, placement: *at.Beside.Placement}
	}
	return at
}

// Withdraw takes back that a job starts: it was not created.
func (l *Ledger) Withdraw(job string) {
	s := &l.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, job)
}
