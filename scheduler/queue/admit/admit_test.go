package admit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func cpu(n int64) quota.Resources { return quota.Resources{"cpu": n * 1000} }

// twoTeams is a tree of 40 CPUs, of which each of two teams is guaranteed 20.
func twoTeams() quota.Spec {
	return quota.Spec{Min: cpu(40), Max: cpu(40), Children: []quota.Spec{
		{Name: "a", Min: cpu(20), Max: cpu(40)},
		{Name: "b", Min: cpu(20), Max: cpu(40)},
	}}
}

func TestDecide(t *testing.T) {
	unit := func(id, leaf string, cpus int64, since int64) Unit {
		return Unit{ID: id, Leaf: leaf, Request: cpu(cpus), Since: since, Preemptible: true}
	}
	first := func(u Unit) Unit { u.Priority = 10; return u }
	tests := map[string]struct {
		tree    quota.Spec
		queues  map[string]Queue
		running []Unit
		waiting []Unit
		started []string
		reasons map[string]string
	}{
		"by arrival": {
			tree:    quota.Spec{MaxJobs: 1},
			waiting: []Unit{unit("late", "root", 1, 2), unit("early", "root", 1, 1)},
			started: []string{"early"},
			reasons: map[string]string{"late": "quota root: max of jobs is 1, 1 is used and 1 is asked for"},
		},
		"by priority first": {
			tree:    quota.Spec{MaxJobs: 1},
			waiting: []Unit{first(unit("late", "root", 1, 2)), unit("early", "root", 1, 1)},
			started: []string{"late"},
			reasons: map[string]string{"early": "quota root: max of jobs is 1, 1 is used and 1 is asked for"},
		},
		"max-jobs of an ancestor": {
			tree: quota.Spec{Children: []quota.Spec{
				{Name: "team", MaxJobs: 2, Children: []quota.Spec{{Name: "x"}, {Name: "y"}}},
				{Name: "other"},
			}},
			waiting: []Unit{unit("1", "x", 1, 1), unit("2", "y", 1, 2), unit("3", "x", 1, 3), unit("4", "other", 1, 4)},
			started: []string{"1", "2", "4"},
			reasons: map[string]string{"3": "quota root/team: max of jobs is 2, 2 is used and 1 is asked for"},
		},
		"priority passes": {
			tree:    quota.Spec{Min: cpu(4), Max: cpu(4)},
			waiting: []Unit{unit("big", "root", 8, 1), unit("small", "root", 4, 2)},
			started: []string{"small"},
			reasons: map[string]string{"big": "quota root: max of cpu is 4, 0 is used and 8 is asked for"},
		},
		"block does not pass": {
			tree:    quota.Spec{Min: cpu(4), Max: cpu(4)},
			queues:  map[string]Queue{"root": {Block: true}},
			waiting: []Unit{unit("big", "root", 8, 1), unit("small", "root", 4, 2)},
			reasons: map[string]string{
				"big":   "quota root: max of cpu is 4, 0 is used and 8 is asked for",
				"small": "nothing passes big, which waits: quota root: max of cpu is 4, 0 is used and 8 is asked for",
			},
		},
		"a blocked queue does not block its neighbour": {
			tree:    twoTeams(),
			queues:  map[string]Queue{"a": {Block: true}},
			waiting: []Unit{unit("big", "a", 60, 1), unit("behind", "a", 1, 2), unit("neighbour", "b", 1, 3)},
			started: []string{"neighbour"},
			reasons: map[string]string{
				"big":    "quota root/a: max of cpu is 40, 0 is used and 60 is asked for",
				"behind": "nothing passes big, which waits: quota root/a: max of cpu is 40, 0 is used and 60 is asked for",
			},
		},
		"the queue with the higher priority first": {
			tree:    twoTeams(),
			queues:  map[string]Queue{"b": {Priority: 1}},
			waiting: []Unit{unit("a-1", "a", 30, 1), unit("b-1", "b", 30, 2)},
			started: []string{"b-1"},
			reasons: map[string]string{"a-1": "quota root: max of cpu is 40, 30 is used and 30 is asked for"},
		},
		"the leaf that uses less of its minimum first": {
			tree:    twoTeams(),
			running: []Unit{unit("runs", "a", 5, 0)},
			waiting: []Unit{unit("a-1", "a", 30, 1), unit("b-1", "b", 30, 2)},
			started: []string{"b-1"},
			reasons: map[string]string{"a-1": "quota root: max of cpu is 40, 35 is used and 30 is asked for"},
		},
		"what others borrowed is no obstacle": {
			tree:    twoTeams(),
			running: []Unit{unit("own", "a", 20, 0), unit("borrowed", "a", 20, 0)},
			waiting: []Unit{unit("entitled", "b", 20, 1), unit("borrows", "b", 1, 2)},
			started: []string{"entitled"},
			reasons: map[string]string{"borrows": "quota root: max of cpu is 40, 60 is used and 1 is asked for"},
		},
		"but only what is preemptible": {
			tree:    twoTeams(),
			running: []Unit{{ID: "fixed", Leaf: "a", Request: cpu(40)}},
			waiting: []Unit{unit("entitled", "b", 20, 1)},
			reasons: map[string]string{"entitled": "quota root: max of cpu is 40, 40 is used and 20 is asked for"},
		},
		"not preemptible means guaranteed": {
			tree:    twoTeams(),
			waiting: []Unit{{ID: "fixed", Leaf: "a", Request: cpu(21)}, unit("free", "a", 21, 1)},
			started: []string{"free"},
			reasons: map[string]string{"fixed": "quota root/a: min, which caps what is not preemptible, of cpu is 20, 0 is used and 21 is asked for"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tree, err := quota.New(test.tree)
			require.NoError(t, err)
			var holders []Holder
			for _, u := range test.running {
				tree.Add(u.Leaf, u.Request, u.Preemptible)
				tree.AddJob(u.Leaf)
				holders = append(holders, Holder{Leaf: u.Leaf, Request: u.Request, Preemptible: u.Preemptible})
			}
			var started []string
			reasons := map[string]string{}
			for _, d := range Decide(tree, test.queues, test.waiting, holders) {
				if d.Start {
					started = append(started, d.ID)
				} else {
					reasons[d.ID] = d.Reason
				}
			}
			assert.Equal(t, test.started, started)
			assert.Equal(t, test.reasons, reasons)
		})
	}
}
