package server

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// compact is the provider with resources of which the framework is shown a part; see [halves]. The
// provider itself is configured before it.
type compact struct {
	Provider
	halves func() map[string]*halves
}

// Configure hands on what the provider was configured with.
func (c compact) Configure(_ context.Context, _ provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	resp.ResourceData = c.ResourceData()
}

// Resources are those that have halves.
func (c compact) Resources(ctx context.Context) (all []func() resource.Resource) {
	for name, create := range resourcesOf(ctx, c.Provider) {
		if h, ok := c.halves()[name]; ok {
			all = append(all, func() resource.Resource {
				r, _ := create().(planned) // what has halves is
				return compactResource{r, h}
			})
		}
	}
	return all
}

// DataSources are none.
func (compact) DataSources(context.Context) []func() datasource.DataSource { return nil }

// planned is a resource with all methods that a plan calls.
type planned interface {
	resource.ResourceWithConfigure
	resource.ResourceWithIdentity
	resource.ResourceWithModifyPlan
}

// compactResource is a resource of which the framework is shown a part.
type compactResource struct {
	planned
	*halves
}

// Schema is the part that is shown.
func (r compactResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = r.compact()
}

// ModifyPlan asks the resource, with all attributes.
func (r compactResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	config, _, err := r.expand(req.Config.Raw)
	var state, plan tftypes.Value
	if err == nil {
		state, _, err = r.expand(req.State.Raw)
	}
	var touched bool
	if err == nil {
		plan, touched, err = r.expand(req.Plan.Raw)
	}
	if err == nil && touched {
		plan, err = r.unknown(plan, config)
	}
	if err == nil {
		req.Config, req.State = tfsdk.Config{Raw: config, Schema: r.schema}, tfsdk.State{Raw: state, Schema: r.schema}
		req.Plan = tfsdk.Plan{Raw: plan, Schema: r.schema}
		answer := *resp
		answer.Plan = tfsdk.Plan{Raw: plan.Copy(), Schema: r.schema}
		r.planned.ModifyPlan(ctx, req, &answer)
		answer.Plan.Raw, err = r.reduce(ctx, answer.Plan.Raw)
		answer.Plan.Schema = resp.Plan.Schema
		*resp = answer
	}
	if err != nil {
		resp.Diagnostics.AddError("The plan cannot be made", "This is an error in the provider: "+err.Error())
	}
}

// Read asks the resource, with all attributes.
func (r compactResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, _, err := r.expand(req.State.Raw)
	if err == nil {
		req.State = tfsdk.State{Raw: state, Schema: r.schema}
		answer := *resp
		answer.State = tfsdk.State{Raw: state.Copy(), Schema: r.schema}
		r.planned.Read(ctx, req, &answer)
		answer.State.Raw, err = r.reduce(ctx, answer.State.Raw)
		answer.State.Schema = resp.State.Schema
		*resp = answer
	}
	if err != nil {
		resp.Diagnostics.AddError("The resource cannot be read", "This is an error in the provider: "+err.Error())
	}
}

// planCompact plans a change with what the framework is to be shown of it; ok is false where it is to be shown all.
func (s *server) planCompact(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest) (resp *tfprotov6.PlanResourceChangeResponse, ok bool, err error) {
	h, ok := s.halves()[req.TypeName]
	if !ok {
		return nil, false, nil
	}
	short := *req
	var configOK, stateOK, planOK bool
	short.Config, configOK = h.split(req.Config, false)
	short.PriorState, stateOK = h.split(req.PriorState, false)
	short.ProposedNewState, planOK = h.split(req.ProposedNewState, true)
	if !configOK || !stateOK || !planOK {
		return nil, false, nil
	}
	resp, err = s.compact.PlanResourceChange(ctx, &short)
	if err != nil {
		return nil, true, err
	}
	resp.PlannedState, err = h.join(resp.PlannedState)
	return resp, true, err
}

// readCompact refreshes a resource in the same way.
func (s *server) readCompact(ctx context.Context, req *tfprotov6.ReadResourceRequest) (resp *tfprotov6.ReadResourceResponse, ok bool, err error) {
	h, ok := s.halves()[req.TypeName]
	if !ok {
		return nil, false, nil
	}
	short := *req
	if short.CurrentState, ok = h.split(req.CurrentState, false); !ok {
		return nil, false, nil
	}
	resp, err = s.compact.ReadResource(ctx, &short)
	if err != nil {
		return nil, true, err
	}
	resp.NewState, err = h.join(resp.NewState)
	return resp, true, err
}

// UpgradeResourceState hands on a state that the schema of today has written, as the framework does, without
// what the framework looks at besides: blocks, of which there are none.
func (s *server) UpgradeResourceState(ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	h, ok := s.halves()[req.TypeName]
	if !ok || req.Version != h.schema.Version || req.RawState == nil {
		return s.ProviderServer.UpgradeResourceState(ctx, req)
	}
	value, err := req.RawState.UnmarshalWithOpts(h.whole, tfprotov6.UnmarshalOpts{
		ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true},
	})
	var state tfprotov6.DynamicValue
	if err == nil {
		state, err = tfprotov6.NewDynamicValue(h.whole, value)
	}
	if err != nil {
		return s.ProviderServer.UpgradeResourceState(ctx, req) // it says what is wrong
	}
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &state}, nil
}
