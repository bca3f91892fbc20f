// Package placementdata is the data source gpuplan_placement: would this gang fit,
// where, and if not, what would help.
package placementdata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/planner"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement/snapshot"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// New returns the data source.
func New() datasource.DataSource { return &whatIf{session.DataSource{Type: "gpuplan_placement"}} }

type whatIf struct{ session.DataSource }

// Read plans the gang on the pools or the cluster with the changes asked for.
func (d *whatIf) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	spec, diags := m.spec(ctx)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	view, diags := d.view(ctx, m)
	if resp.Diagnostics.Append(diags...); resp.Diagnostics.HasError() {
		return
	}
	if resp.Diagnostics.Append(d.charge(ctx, m, spec, view)...); resp.Diagnostics.HasError() {
		return
	}
	gang, err := spec.PlannerGang(view.Quota())
	if err != nil {
		resp.Diagnostics.AddError("Placement cannot be planned", session.Sentence(err))
		return
	}
	if view.Quota() == nil {
		gang.Leaf = ""
	}
	resp.Diagnostics.Append(m.set(ctx, planner.Plan(view, gang), view)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// charge gives the view the quota tree with what runs now: the cluster's, else the planned
// one. Which of the two does not depend on when Terraform reads the data source.
func (d *whatIf) charge(ctx context.Context, m model, spec job.Spec, view *snapshot.View) (diags diag.Diagnostics) {
	snapshot, err := d.Session.Snapshot(ctx)
	var limits *quota.Tree
	if err == nil {
		if why := snapshot.Barred(placement.Gang{ID: spec.ID(), Leaf: spec.Quota}, false); why != "" {
			diags.AddAttributeError(path.Root("quota"), "Quota cannot be checked", session.Sentence(errors.New(why)))
			return diags
		}
		limits, _ = snapshot.Quota() // one that is not valid is about others
	}
	if d.Session.NotChecked(err, &diags) || err != nil && m.Quota.IsNull() {
		view.SetQuota(d.Session.Ledger.Tree())
		return diags
	}
	if err != nil {
		diags.AddAttributeError(path.Root("quota"), "Quota cannot be checked", session.Sentence(err))
		return diags
	}
	if limits == nil {
		limits = d.Session.Ledger.Tree()
	}
	view.SetQuota(limits)
	if m.Pools.IsNull() {
		return diags // the view has what runs
	}
	for _, pod := range snapshot.Live(d.Session.Owns).Pods {
		pod.Node = "" // what it takes of its node is in the pool's capacity
		if pod.Leaf == "" && limits != nil {
			pod.Leaf = limits.LeafOf(pod.Namespace)
		}
		view.AddPod(pod.Pod)
	}
	return diags
}

// view returns the pools or the cluster with the changes asked for.
func (d *whatIf) view(ctx context.Context, m model) (view *snapshot.View, diags diag.Diagnostics) {
	var without []string
	diags.Append(m.WithoutNodes.ElementsAs(ctx, &without, false)...)
	if m.Pools.IsNull() {
		if len(m.PoolSizes.Elements()) > 0 {
			diags.AddAttributeError(path.Root("pool_sizes"), "Pools are missing", "Sizes can be tried out for the pools listed in pools only.")
			return nil, diags
		}
		view, diags = d.cluster(ctx)
	} else {
		view, diags = onPools(ctx, m)
	}
	if diags.HasError() {
		return nil, diags
	}
	for _, name := range without {
		if _, ok := view.Node(name); !ok {
			diags.AddAttributeError(path.Root("without_nodes"), "No such node", fmt.Sprintf("There is no node %q; the nodes are %s.", name, strings.Join(view.Nodes(), ", ")))
		}
		view.RemoveNode(name)
	}
	return view, diags
}

func (d *whatIf) cluster(ctx context.Context) (view *snapshot.View, diags diag.Diagnostics) {
	snapshot, err := d.Session.Snapshot(ctx)
	if err != nil {
		diags.AddError("The cluster cannot be looked at", session.Sentence(err))
		return nil, diags
	}
	return snapshot.View(), diags
}

func onPools(ctx context.Context, m model) (*snapshot.View, diag.Diagnostics) {
	pools, known, diags := capacity.List(ctx, m.Pools)
	var sizes map[string]int64
	diags.Append(m.PoolSizes.ElementsAs(ctx, &sizes, false)...)
	if diags.HasError() {
		return nil, diags
	}
	if !known {
		diags.AddAttributeError(path.Root("pools"), "Capacity is unknown", "The capacity of a pool is unknown until apply. Name what makes it known in depends_on, so that Terraform reads this at apply.")
		return nil, diags
	}
	for i, c := range pools {
		size, ok := sizes[c.Pool]
		if !ok {
			continue
		}
		delete(sizes, c.Pool)
		resized, err := resize(c, int(size))
		if err != nil {
			diags.AddAttributeError(path.Root("pool_sizes").AtMapKey(c.Pool), "Pool cannot be resized", session.Sentence(err))
			return nil, diags
		}
		pools[i] = resized
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		diags.AddAttributeError(path.Root("pool_sizes").AtMapKey(name), "No such pool", fmt.Sprintf("pools has no pool %q.", name))
	}
	view, err := capacity.ToView(pools...)
	if err != nil {
		diags.AddAttributeError(path.Root("pools"), "Capacity cannot be used", session.Sentence(err))
	}
	return view, diags
}

// resize returns the pool with another number of nodes: new ones are empty, and the
// last ones go first.
func resize(c capacity.Capacity, size int) (capacity.Capacity, error) {
	p := capacity.Pool{Name: c.Pool, InstanceType: c.InstanceType, Fallbacks: c.Fallbacks, Mode: c.Mode, GPUPolicy: c.GPUPolicy, Labels: c.Labels, Taints: c.Taints}
	return p.Planned(c, size)
}
