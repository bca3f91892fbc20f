package nodepool

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// object is the ledger's name of a pool.
func object(name types.String) string { return "node pool " + name.ValueString() }

// leaving reports whether the deletion of a pool has begun.
func leaving(state string) bool { return state == acs.PoolDeleting || state == acs.PoolDeleteFailed }

// start creates the pool, or goes on with one that an apply of this configuration created
// and did not live to record. before is that pool as it was. The pool exists when
// started.PoolID is not "".
func (r *pool) start(ctx context.Context, client *acs.Client, m *model) (started acs.Started, before capacity.Pool, diags diag.Diagnostics) {
	spec, diags := r.request(ctx, *m, acs.NodePoolSpec{})
	if diags.HasError() {
		return started, before, diags
	}
	started, err := client.CreateNodePool(ctx, r.Session.ClusterID, spec)
	if own, first := r.unreturned(err); own != nil {
		started, diags = r.giveBackLate(ctx, *own, *first, *m)
		return started, before, diags
	}
	var exists *acs.PoolExistsError
	if errors.As(err, &exists) {
		if !r.Session.Mine(exists.Pool.Tag(contract.OwnerTag)) {
			err = r.foreign(exists)
		} else {
			return r.resume(ctx, client, exists.Pool, spec, m)
		}
	}
	if err != nil {
		diags.AddError("Node pool was not created", session.Sentence(err))
		return started, before, diags
	}
	gone, more := r.giveWay(ctx, client, *m, started.PoolID)
	if gone {
		started = acs.Started{}
	}
	return started, before, append(diags, more...)
}

// foreign says whose a pool is that has the name of one that is to be created.
func (r *pool) foreign(exists *acs.PoolExistsError) error {
	return fmt.Errorf("%w, and %s", exists, r.Session.Advice(session.Foreign{
		Stamp: exists.Pool.Tag(contract.OwnerTag), Resource: "gpuplan_node_pool", ID: r.Session.ClusterID + "/" + exists.Pool.Info.ID, Renamable: true}))
}

// resume makes a pool that exists what the model says. One that is being deleted, or that
// cannot become that pool, makes room for a new one.
func (r *pool) resume(ctx context.Context, client *acs.Client, record acs.NodePool, spec acs.NodePoolSpec, m *model) (started acs.Started, before capacity.Pool, diags diag.Diagnostics) {
	clusterID, name, poolID := r.Session.ClusterID, record.Info.Name, record.Info.ID
	fail := func(err error) {
		diags.AddError("Node pool is not complete", fmt.Sprintf(
			"An earlier apply created node pool %s (%s), and this one could not go on with it. %s", name, poolID, session.Sentence(err)))
	}
	create := func() acs.Started {
		started, err := client.CreateNodePool(ctx, clusterID, spec)
		if err != nil {
			fail(err)
		}
		return started
	}
	var err error
	if !leaving(record.Status.State) {
		switch record, err = client.WaitNodePool(ctx, clusterID, poolID, -1, progress(ctx, name)); {
		case acs.IsNotFound(err):
			started = create()
			return started, capacity.Pool{}, diags
		case err != nil:
			fail(err)
			return acs.Started{}, capacity.Pool{}, diags
		}
	}
	c, diags := r.changeFrom(ctx, record, *m)
	if !diags.HasError() {
		if !c.replaces() {
			diags.Append(c.checkLeaving()...)
			diags.Append(r.checkReleased(ctx, c)...)
		}
		diags.Append(r.refuseDisplaced(ctx, c)...)
	}
	if diags.HasError() {
		return acs.Started{}, capacity.Pool{}, diags
	}
	if c.replaces() {
		if err = r.deletePool(ctx, c.from); err != nil {
			fail(err)
			return acs.Started{}, capacity.Pool{}, diags
		}
		started = create()
		return started, capacity.Pool{}, diags
	}
	if spec, diags = r.request(ctx, *m, record.NodePoolSpec); diags.HasError() {
		return acs.Started{}, capacity.Pool{}, diags
	}
	if started, _, err = carryOut(ctx, client, clusterID, record, spec, c); err != nil {
		fail(err)
		return acs.Started{}, capacity.Pool{}, diags
	}
	started.PoolID = poolID
	diags.AddAttributeWarning(path.Root("name"), "Node pool was there already", fmt.Sprintf(
		"Node pool %s (%s) of this configuration exists, so it goes on with its nodes, changed where it differed. "+
			"If it was to be replaced, with create_before_destroy, give the new one another name: two pools cannot have one.", name, poolID))
	return started, c.before, diags
}

// changeFrom is the change from a pool as the service has it to the model. Consent to lose its nodes is
// what is written down on it.
func (r *pool) changeFrom(ctx context.Context, record acs.NodePool, m model) (c change, diags diag.Diagnostics) {
	of := r.blank(ctx)
	var from model
	diags = written.Blank(ctx, of, &from)
	diags.Append(from.imported(ctx, of, record.Tag(contract.SettingsTag))...)
	diags.Append(from.refresh(ctx, r.Session.ClusterID, record, true)...)
	if len(m.RemoveNodes.Elements()) > 0 && !diags.HasError() {
		diags.Append(r.readNames(ctx, &from)...)
	}
	before, more := from.pool(ctx)
	diags.Append(more...)
	r.readOtherModesNow(ctx, &from, before)
	after, more := m.pool(ctx)
	diags.Append(more...)
	return change{before: before, after: after, from: from, to: m}, diags
}
