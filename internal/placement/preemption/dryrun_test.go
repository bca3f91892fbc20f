package preemption_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/backfill"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/placementtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// contested is a random cluster full of gangs of all kinds that preempt each other:
// in domains and beside other pods, elastic ones, shared GPUs, pods that leave, that must not
// go or that a disruption budget protects, and places that are held for others.
type contested struct {
	*placementtest.World
	gangs []placement.Gang
	// crowded means that most gangs could run on most nodes.
	crowded bool
}

func newContested(tb testing.TB, seed int64) *contested {
	c := &contested{World: placementtest.NewWorld(tb, seed)}
	if c.crowded = c.Intn(3) > 0; c.crowded {
		c.crowd()
	}
	for name := range 2 {
		c.View.SetBudget(fmt.Sprint("budget-", name), c.Intn(4))
	}
	for range 60 {
		g := c.preemptor()
		if c.crowded && c.Intn(3) > 0 {
			g.Roles = g.Roles[:1]
			g.Roles[0].Members = g.Roles[0].Members[:1]
			g.Roles[0].Request.GPUs = min(g.Roles[0].Request.GPUs, 2)
			g.Roles[0].Request.MemoryGiB -= g.Roles[0].Request.MemoryGiB % 2
			if g.Roles[0].Request.Shared() && g.Roles[0].Request.MemoryGiB == 0 {
				continue
			}
		}
		g.Preemptible = c.Intn(8) > 0
		if g.Leaf != "" && c.Intn(4) > 0 {
			g.Leaf = "a"
		}
		result := planner.Plan(c.View, g)
		if result.Placement == nil || len(result.Placement.Assignments) == 0 {
			continue
		}
		g.Running = result.Placement.Assignments
		c.Apply(g, *result.Placement)
		c.gangs = append(c.gangs, g)
		c.fate(g)
	}
	return c
}

// crowd makes the cluster one of like nodes, with leaves that borrow or with priorities alone.
func (c *contested) crowd() {
	for _, n := range c.Nodes {
		c.View.RemoveNode(n.Name)
	}
	c.Nodes = nil
	for len(c.Nodes) < 5 {
		c.AddNode()
		n := &c.Nodes[len(c.Nodes)-1]
		n.Mode, n.GPUs = placement.ModeTopology, c.Table("dgx1-v100")
		if c.Intn(3) == 0 {
			n.Mode = placement.ModeShare
		}
		n.Taints, n.Unschedulable, n.Allocatable.Pods = nil, false, 64
		c.View.SetNode(*n)
	}
	c.Spec = quota.Spec{}
	c.View.SetQuota(nil)
	if c.Intn(3) > 0 {
		gpus := func(n int) quota.Resources { return quota.Resources{"aliyun.com/gpu": int64(n)} }
		leaf := func(name string, least int) quota.Spec {
			return quota.Spec{Name: name, Min: gpus(least), Max: gpus(40), MaxJobs: int64(c.Intn(2) * 12)}
		}
		c.Spec = quota.Spec{Min: gpus(64), Max: gpus(64), Children: []quota.Spec{leaf("a", c.Intn(8)), leaf("b", 8+c.Intn(24))}}
		placementtest.SetQuota(c.TB, c.View, c.Spec)
	}
}

// preemptor is a gang with rules of its own.
func (c *contested) preemptor() placement.Gang {
	g := c.Gang(1 + c.Intn(2))
	for i := range g.Roles {
		role := &g.Roles[i]
		if r := &role.Request; c.crowded {
			role.Pools, r.HostPorts, r.Extended, r.MilliCPU = nil, nil, nil, r.MilliCPU/4
			for r.Mode != placement.ModeTopology && r.Mode != placement.ModeShare {
				*r = c.Request()
			}
			r.HostPorts = nil
		}
		role.Labels = map[string]string{"app": []string{"x", "y"}[c.Intn(2)]}
		pods := placement.Selector{Requirements: []placement.Requirement{{Key: "app", Operator: "In", Values: []string{"x"}}}}
		switch c.Intn(12) {
		case 0:
			role.Neighbors = []placement.Neighbor{{Label: "rack", Pods: pods, Apart: c.Intn(2) == 0}}
		case 1:
			role.Spreads = []placement.TopologySpread{{Label: "rack", Pods: pods, MaxSkew: 1 + c.Intn(2), Soft: c.Intn(2) == 0}}
		case 2:
			role.NodeLimits = map[string]int{fmt.Sprint("n", c.Intn(len(c.Nodes))): c.Intn(2)}
		case 3:
			g.Subgroups = append(g.Subgroups, placement.Subgroup{Name: role.Name, Roles: []string{role.Name}, Minimum: 1})
		}
	}
	switch c.Intn(12) {
	case 0:
		g.NeverPreempts = true
	case 1:
		g.Limits = []placement.NodeLimit{{Node: "n0", Roles: []string{"role0", "role1"}, Most: 1}}
	case 2:
		g.Domains = []placement.Domain{{Label: "rack", Required: true}}
	}
	return g
}

// fate makes the pods of a running gang what they are besides running.
func (c *contested) fate(g placement.Gang) {
	started := int64(c.Intn(5))
	leaves, ends := c.Intn(12), int64(c.Intn(3))*100
	for _, a := range g.Running {
		pod, ok := c.View.Pod(g.ID + "/" + a.Member)
		require.True(c.TB, ok)
		pod.StartedAt, pod.EndsAt = started, ends
		if c.Intn(12) == 0 {
			pod.Budgets = []string{fmt.Sprint("budget-", c.Intn(2))}
		}
		pod.Leaving = leaves == 0 || leaves == 1 && c.Intn(2) == 0
		pod.Overdue = pod.Leaving && c.Intn(8) == 0
		pod.Pinned = c.Intn(60) == 0
		pod.Undeletable = !pod.Leaving && c.Intn(60) == 0
		c.View.AddPod(pod)
	}
}

// next is a gang that waits, or one that runs and lacks members.
func (c *contested) next() placement.Gang {
	if len(c.gangs) == 0 || c.Intn(4) > 0 {
		g := c.preemptor()
		g.Priority += 2
		if g.Leaf != "" && c.Intn(4) > 0 {
			g.Leaf = "b"
		}
		return g
	}
	i := c.Intn(len(c.gangs))
	g := c.gangs[i]
	c.gangs = slices.Delete(slices.Clone(c.gangs), i, i+1)
	lost := g.Running[c.Intn(len(g.Running))]
	c.View.RemovePod(g.ID + "/" + lost.Member)
	g.Running = slices.DeleteFunc(slices.Clone(g.Running), func(a placement.Assignment) bool {
		pod, runs := c.View.Pod(g.ID + "/" + a.Member)
		return !runs || pod.Leaving
	})
	return g
}

// refuse has the API server refuse to delete a pod for which places may be held already.
func (c *contested) refuse() {
	ids := slices.Sorted(maps.Keys(c.View.Cluster().Pods))
	if pod, _ := c.View.Pod(ids[c.Intn(len(ids))]); !pod.Leaving {
		pod.Undeletable = true
		c.View.AddPod(pod)
	}
}

// undeletable is a pod for whose end a place waits that others leave, though the API server refuses to delete it.
func (c *contested) undeletable(r *placement.Reservation) string {
	if r != nil && r.Evicts {
		for _, victim := range r.After {
			for _, id := range victim.Pods {
				if pod, ok := c.View.Pod(id); ok && pod.Undeletable {
					return id
				}
			}
		}
	}
	return ""
}

// TestDryRunsFindWhatWholePlacementsFind: a reclaim, and a reservation for a gang that waits
// for others to end, is what a search finds that makes a whole placement for every set of
// victims, with the same victims, of which that is the rule's own order.
func TestDryRunsFindWhatWholePlacementsFind(t *testing.T) {
	reservations, shrunk, several, refused, reserved, held, lost := 0, 0, 0, 0, 0, 0, 0
	for seed := range int64(500) {
		c := newContested(t, seed)
		var nominated []placement.Gang
		for range 6 {
			g := c.next()
			if _, reservations := c.View.Reservation(g.ID); reservations {
				continue
			}
			want := preemption.PlanSlowly(c.View.Clone(), g)
			got := preemption.Plan(c.View.Clone(), g)
			require.Equal(t, want, got, "seed %d: %+v", seed, g)
			require.Empty(t, c.undeletable(got.Reservation), "seed %d: %+v", seed, g)
			waits, waitsOK := preemption.ReserveSlowly(c.View.Clone(), g)
			reservation, ok := backfill.Reserve(c.View.Clone(), g)
			require.Equal(t, waitsOK, ok, "seed %d: %+v", seed, g)
			require.Equal(t, waits, reservation, "seed %d: %+v", seed, g)
			reserved += count(ok && len(reservation.After) > 0)
			reservations += count(len(got.Victims) > 0)
			several += count(len(got.Victims) > 2)
			shrunk += count(slices.ContainsFunc(got.Victims, func(v placement.Victim) bool { return v.Surplus }))
			refused += count(got.Placement == nil)
			held += count(len(c.View.Reservations()) > 0)
			switch r := got.Reservation; {
			case r != nil && c.Intn(3) == 0:
				c.View.AddReservation(*r)
				nominated = append(nominated, g)
			case got.Placement == nil && ok && c.Intn(2) == 0:
				c.View.AddReservation(reservation)
			}
			if len(nominated) > 0 && c.Intn(3) == 0 {
				c.refuse()
				g := nominated[c.Intn(len(nominated))]
				h, _ := c.View.Reservation(g.ID)
				lost += count(c.undeletable(&h) != "")
				again := preemption.Plan(c.View.Clone(), g)
				require.Empty(t, c.undeletable(again.Reservation), "seed %d: %+v", seed, g)
			}
		}
	}
	t.Logf("%d nominations, %d with several victims, %d of members that are not needed, %d refused, %d reservations, %d beside reservations, %d nominations lost",
		reservations, several, shrunk, refused, reserved, held, lost)
	assert.Greater(t, lost, 10)
	assert.Greater(t, reservations, 150)
	assert.Greater(t, several, 15)
	assert.Greater(t, shrunk, 20)
	assert.Greater(t, refused, 300)
	assert.Greater(t, reserved, 300)
	assert.Greater(t, held, 300)
}

// TestUsageOfDryRuns: while gangs are evicted and restored, the quota tree has the usage of
// those that are left, and with reservations in their places that of who is left then.
func TestUsageOfDryRuns(t *testing.T) {
	compared, awaited := 0, 0
	for seed := range int64(200) {
		c := newContested(t, seed)
		for range 6 {
			g := c.next()
			if _, held := c.View.Reservation(g.ID); held {
				continue
			}
			if c.View.Quota() != nil {
				preemption.EachUsage(c.View.Clone(), g, 12, c.Intn, func(want, got *quota.Tree) {
					alike := want.Unused().With(got.Unused()) // with the resources of both
					require.Equal(t, alike.With(want), alike.With(got), "seed %d", seed)
					compared++
				})
			}
			if r, ok := backfill.Reserve(c.View, g); ok && len(r.After) > 0 {
				c.View.AddReservation(r)
				awaited++
			}
		}
	}
	assert.Greater(t, compared, 3000)
	assert.Greater(t, awaited, 200)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
