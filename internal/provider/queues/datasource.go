// Package queues is the data source gpuplan_queues: the leaves of the live quota tree, what is used of
// them, and the jobs that wait in their queues.
package queues

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/clusterlist"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// New returns the data source.
func New() datasource.DataSource { return &queues{session.DataSource{Type: "gpuplan_queues"}} }

type queues struct{ session.DataSource }

// Read looks at the tree with what runs, and at the queues of its leaves.
func (d *queues) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	m := model{Queues: []queueModel{}}
	tree, err := d.tree(ctx)
	if err == nil && tree != nil {
		m.Queues, err = d.leaves(ctx, tree)
	}
	if err != nil {
		resp.Diagnostics.AddError("Queues cannot be read", session.Unread(err))
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// tree is the quota tree with what is used of it, nil where the cluster has none.
func (d *queues) tree(ctx context.Context) (*quota.Tree, error) {
	snapshot, err := d.Session.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := snapshot.Quota(); err != nil {
		return nil, err
	}
	return snapshot.View().Quota(), nil
}

// leaves describes the leaves in tree order.
func (d *queues) leaves(ctx context.Context, tree *quota.Tree) ([]queueModel, error) {
	client, err := d.Session.Kube()
	if err != nil {
		return nil, err
	}
	list, err := clusterlist.Queues(ctx, client)
	if err != nil {
		return nil, err
	}
	units, err := clusterlist.QueueUnits(ctx, client, "")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(units, byPosition)
	all := []queueModel{}
	for _, leaf := range tree.Leaves() {
		q := describe(tree, leaf)
		i := slices.IndexFunc(list, func(of contract.Queue) bool { return of.Annotations[contract.QueuePathAnnotation] == tree.Path(leaf) })
		if i >= 0 {
			q.setQueue(&list[i], units)
		}
		all = append(all, q)
	}
	return all, nil
}

// byPosition orders units that wait: those in line first.
func byPosition(a, b contract.QueueUnit) int {
	position := func(u contract.QueueUnit) int32 {
		if u.Status.Position == 0 {
			return math.MaxInt32
		}
		return u.Status.Position
	}
	return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
