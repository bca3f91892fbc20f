package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

type model struct {
	Name     types.String   `tfsdk:"name"`
	Status   types.String   `tfsdk:"status"`
	Timeouts timeouts.Value `tfsdk:"timeouts"`
}

var errBroken = errors.New("broken")

// thing is a type of resource whose object does what the test says.
func thing() *lifecycle.Resource[model] {
	return &lifecycle.Resource[model]{
		Session: session.New(session.Settings{}),
		Type:    "gpuplan_thing", Title: "Thing",
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts },
		Default:  lifecycle.Limits{Create: time.Hour, Update: time.Hour, Delete: time.Hour},
		Object:   func(m *model) string { return "thing " + m.Name.ValueString() },
		Identity: lifecycle.Identity{{Name: "place", Default: func() string { return "here" }}, {Name: "name"}, {Name: "tags", List: true, Default: func() string { return "" }}},
		ID:       func(m *model) string { return "there/" + m.Name.ValueString() + "/x,y" },
	}
}

// state is a state with a thing of that status, without any when it is "".
func state(t *testing.T, status string) tfsdk.State {
	t.Helper()
	s := schema.Schema{Attributes: map[string]schema.Attribute{
		"name":     schema.StringAttribute{Required: true},
		"status":   schema.StringAttribute{Computed: true},
		"timeouts": timeouts.Attributes(t.Context(), timeouts.Opts{Create: true, Update: true, Delete: true}),
	}}
	kind, ok := s.Type().TerraformType(t.Context()).(tftypes.Object)
	require.True(t, ok)
	if status == "" {
		return tfsdk.State{Schema: s, Raw: tftypes.NewValue(kind, nil)}
	}
	return tfsdk.State{Schema: s, Raw: tftypes.NewValue(kind, map[string]tftypes.Value{
		"name": tftypes.NewValue(tftypes.String, "a"), "status": tftypes.NewValue(tftypes.String, status),
		"timeouts": tftypes.NewValue(kind.AttributeTypes["timeouts"], nil),
	})}
}

// status is what a state says of the thing, "" when it has none.
func status(t *testing.T, s tfsdk.State) string {
	t.Helper()
	if s.Raw.IsNull() {
		return ""
	}
	var m model
	require.Empty(t, s.Get(t.Context(), &m))
	return m.Status.ValueString()
}

func failure(fails bool) (diags diag.Diagnostics) {
	if fails {
		diags.AddError("Thing is broken", "It is.")
	}
	return diags
}

// What exists is in the state, whether or not it is as it should be, and has its identity.
func TestStateHasWhatExists(t *testing.T) {
	whole := identity(t, "there", "a", []string{"x", "y"})
	for name, c := range map[string]struct {
		done, fails            bool
		afterCreate, afterEdit string
	}{
		"done":        {true, false, "new", "new"},
		"incomplete":  {true, true, "new", "new"},
		"not started": {false, true, "", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			r := thing()
			act := func(ctx context.Context, m *model) (bool, diag.Diagnostics) {
				_, limited := ctx.Deadline()
				assert.True(t, limited)
				assert.True(t, r.Session.Ledger.Applying())
				m.Status = types.StringValue("new")
				return c.done, failure(c.fails)
			}
			r.Add = func(ctx context.Context, _ tfsdk.State, m *model) (bool, diag.Diagnostics) { return act(ctx, m) }
			r.Change = func(ctx context.Context, _ tfsdk.State, before, m *model) (bool, diag.Diagnostics) {
				assert.Equal(t, "old", before.Status.ValueString())
				return act(ctx, m)
			}
			plan := tfsdk.Plan(state(t, "planned"))
			created := resource.CreateResponse{State: state(t, ""), Identity: identity(t, nil, nil, nil)}
			r.Create(t.Context(), resource.CreateRequest{Plan: plan}, &created)
			assert.Equal(t, c.fails, created.Diagnostics.HasError())
			assert.Equal(t, c.afterCreate, status(t, created.State))
			assert.Equal(t, c.afterCreate != "", created.Identity.Raw.Equal(whole.Raw))
			updated := resource.UpdateResponse{State: state(t, "old"), Identity: identity(t, nil, nil, nil)}
			r.Update(t.Context(), resource.UpdateRequest{Plan: plan, State: updated.State}, &updated)
			assert.Equal(t, c.fails, updated.Diagnostics.HasError())
			assert.Equal(t, c.afterEdit, status(t, updated.State))
			assert.Equal(t, whole.Raw, updated.Identity.Raw)
		})
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		found, fails bool
		err          error
		want         string
	}{
		"found":          {true, false, nil, "new"},
		"gone":           {false, false, nil, ""},
		"unknown so far": {false, false, session.ErrUnknown, "old"},
		"no answer":      {false, false, errBroken, "old"},
		"unreadable":     {true, true, nil, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			r := thing()
			r.Look = func(_ context.Context, _ tfsdk.State, m *model) (bool, diag.Diagnostics, error) {
				m.Status = types.StringValue("new")
				return c.found, failure(c.fails), c.err
			}
			read := resource.ReadResponse{State: state(t, "old"), Identity: identity(t, nil, nil, nil)}
			r.Read(t.Context(), resource.ReadRequest{State: read.State}, &read)
			assert.Equal(t, c.want, status(t, read.State))
			assert.Equal(t, identity(t, "there", "a", []string{"x", "y"}).Raw, read.Identity.Raw, "Terraform wants one of what is gone, too")
			assert.Equal(t, c.fails || errors.Is(c.err, errBroken), read.Diagnostics.HasError())
			assert.False(t, r.Session.Ledger.Applying())
		})
	}
}

// An object is taken before anything can fail: the address that had it does not delete it when the one that takes it
// over fails.
func TestFailedTakeoverKeepsTheObject(t *testing.T) {
	r := thing()
	r.Add = func(context.Context, tfsdk.State, *model) (bool, diag.Diagnostics) { return false, failure(true) }
	r.Remove = func(context.Context, *model) (diag.Diagnostics, error) {
		t.Error("it is deleted")
		return nil, nil
	}
	create := func() string {
		created := resource.CreateResponse{State: state(t, ""), Identity: identity(t, nil, nil, nil)}
		r.Create(t.Context(), resource.CreateRequest{Plan: tfsdk.Plan(state(t, "planned"))}, &created)
		require.Len(t, created.Diagnostics, 1)
		return created.Diagnostics[0].Summary()
	}
	assert.Equal(t, "Thing is broken", create())
	var deleted resource.DeleteResponse
	r.Delete(t.Context(), resource.DeleteRequest{State: state(t, "old")}, &deleted)
	require.Len(t, deleted.Diagnostics, 1, "its state stays")
	assert.Contains(t, deleted.Diagnostics[0].Detail(), "The resource that was to take it over, or to make another one of its name, has failed.")
	assert.Equal(t, "Thing was not created", create(), "it is another's")
}

// What another resource of the walk has taken is not deleted.
func TestDelete(t *testing.T) {
	r, removed := thing(), 0
	fails := errBroken
	r.Remove = func(context.Context, *model) (diag.Diagnostics, error) {
		removed++
		return nil, fails
	}
	remove := func() diag.Diagnostics {
		var deleted resource.DeleteResponse
		r.Delete(t.Context(), resource.DeleteRequest{State: state(t, "old")}, &deleted)
		return deleted.Diagnostics
	}
	diags := remove()
	require.Len(t, diags, 1)
	assert.Equal(t, "Thing was not deleted", diags[0].Summary())
	assert.NotContains(t, diags[0].Detail(), "state rm")
	fails = &kube.UnreachableError{Host: "h", Err: errBroken}
	assert.Contains(t, remove()[0].Detail(), "This is gpuplan_thing there/a/x,y: destroy once more when the cluster answers. Where it is gone for good, forget the resource with `terraform state rm`")
	require.True(t, r.Session.Ledger.Take("thing a"))
	assert.Empty(t, remove())
	assert.Equal(t, 2, removed)
}

// What a plan has written down for a deletion is known before anything is deleted.
func TestDeleteRecollects(t *testing.T) {
	r := thing()
	var order []string
	r.Remove = func(context.Context, *model) (diag.Diagnostics, error) {
		order = append(order, "removed")
		return nil, nil
	}
	recollected := failure(false)
	r.Recollect = func(_ context.Context, _ lifecycle.Private, m *model) diag.Diagnostics {
		order = append(order, "recollected "+m.Name.ValueString())
		return recollected
	}
	remove := func() {
		r.Delete(t.Context(), resource.DeleteRequest{State: state(t, "old")}, &resource.DeleteResponse{})
	}
	remove()
	recollected = failure(true)
	remove()
	assert.Equal(t, []string{"recollected a", "removed", "recollected a"}, order)
}
