// Package server is the provider as Terraform talks to it: the plugin framework's
// server, and around it what holds for every resource alike and the framework leaves
// out. Numbers that cannot be what the schema wants are refused in plain words, a
// plan check never stands in the way of a destroy, and what a plan has said is not said again.
package server

import (
	"context"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/capacity"
)

// Command is what the server knows of the command that started the provider.
type Command struct {
	// Destroys means that it plans to destroy everything.
	Destroys bool
	// Plan is the file of the saved plan that it applies, "" for none.
	Plan string
	// Notes are those of the command's processes, nil for none.
	Notes Notes
}

// Provider is a provider that tells with what it has configured its resources.
type Provider interface {
	provider.Provider
	ResourceData() any
}

// New returns the server of a provider.
func New(p Provider, command Command) tfprotov6.ProviderServer {
	schemas := sync.OnceValue(func() map[string]typed { return schemasOf(context.Background(), p) })
	halves := sync.OnceValue(func() map[string]*halves { return halvesOf(context.Background(), p, schemas()) })
	framework := providerserver.NewProtocol6(p)()
	lists, _ := framework.(tfprotov6.ListResourceServer)
	actions, _ := framework.(tfprotov6.ActionServer)
	return &server{
		ProviderServer:     framework,
		ListResourceServer: lists,
		ActionServer:       actions,
		command:            command,
		earlier:            sync.OnceValue(func() map[string]bool { return earlier(command) }),
		claims:             claims{objects: map[string]bool{}, deletes: map[string]bool{}},
		schemas:            schemas,
		halves:             halves,
		compact:            providerserver.NewProtocol6(compact{p, halves})(),
		only:               sync.OnceValue(func() map[string]string { return onlyOf(context.Background(), p) }),
	}
}

type server struct {
	tfprotov6.ProviderServer
	tfprotov6.ListResourceServer
	tfprotov6.ActionServer

	// compact answers about resources of which the framework is shown a part.
	compact tfprotov6.ProviderServer
	halves  func() map[string]*halves

	command Command
	// earlier are the warnings that were given before this walk, by their digests.
	earlier func() map[string]bool
	schemas func() map[string]typed
	// only are the objects of the types which have one, as another type has them.
	only   func() map[string]string
	claims claims
	offers capacity.Offers
}

// typed is the part of a schema that says which type stands at a path.
type typed interface {
	Type() attr.Type
	TypeAtTerraformPath(context.Context, *tftypes.AttributePath) (attr.Type, error)
}

// resourcesOf are the constructors of all resources by name.
func resourcesOf(ctx context.Context, p provider.Provider) map[string]func() resource.Resource {
	var of provider.MetadataResponse
	p.Metadata(ctx, provider.MetadataRequest{}, &of)
	all := map[string]func() resource.Resource{}
	for _, create := range p.Resources(ctx) {
		var meta resource.MetadataResponse
		create().Metadata(ctx, resource.MetadataRequest{ProviderTypeName: of.TypeName}, &meta)
		all[meta.TypeName] = create
	}
	return all
}

// schemasOf returns the schemas of all resources, data sources and actions by name; data sources
// and actions have a prefix of their own.
func schemasOf(ctx context.Context, p provider.Provider) map[string]typed {
	schemas := map[string]typed{}
	for name, create := range resourcesOf(ctx, p) {
		var s resource.SchemaResponse
		create().Schema(ctx, resource.SchemaRequest{}, &s)
		schemas[name] = s.Schema
	}
	var of provider.MetadataResponse
	p.Metadata(ctx, provider.MetadataRequest{}, &of)
	for _, create := range p.DataSources(ctx) {
		d := create()
		var meta datasource.MetadataResponse
		d.Metadata(ctx, datasource.MetadataRequest{ProviderTypeName: of.TypeName}, &meta)
		var s datasource.SchemaResponse
		d.Schema(ctx, datasource.SchemaRequest{}, &s)
		schemas[dataPrefix+meta.TypeName] = s.Schema
	}
	if with, ok := p.(provider.ProviderWithActions); ok {
		for _, create := range with.Actions(ctx) {
			a := create()
			var meta action.MetadataResponse
			a.Metadata(ctx, action.MetadataRequest{ProviderTypeName: of.TypeName}, &meta)
			var s action.SchemaResponse
			a.Schema(ctx, action.SchemaRequest{}, &s)
			schemas[actionPrefix+meta.TypeName] = s.Schema
		}
	}
	return schemas
}

const dataPrefix, actionPrefix = "data.", "action."

// halvesOf divides the schemas of all resources that a plan may ask for a part.
func halvesOf(ctx context.Context, p provider.Provider, schemas map[string]typed) map[string]*halves {
	all := map[string]*halves{}
	for name, create := range resourcesOf(ctx, p) {
		if _, ok := create().(planned); !ok {
			continue
		}
		whole, _ := schemas[name].(schema.Schema) // a resource has this one
		if h, ok := halve(ctx, whole); ok {
			all[name] = h
		}
	}
	return all
}

// onlyOf returns the objects of the types of resources that are each for one, which another type may
// be for as well.
func onlyOf(ctx context.Context, p provider.Provider) map[string]string {
	objects := map[string]string{}
	for name, create := range resourcesOf(ctx, p) {
		if manager, ok := create().(interface{ Manages() string }); ok && manager.Manages() != "" {
			objects[name] = manager.Manages()
		}
	}
	return objects
}

// ValidateResourceConfig refuses values that are none of the schema's before the
// framework sees them, which would call them an error of the provider. What else is wrong keeps nobody from destroying
// what is there.
func (s *server) ValidateResourceConfig(ctx context.Context, req *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	light := *req
	ctx, light.Config = s.aside(ctx, req.TypeName, req.Config)
	if wrong := s.wrongValues(ctx, req.TypeName, light.Config); len(wrong) > 0 {
		return &tfprotov6.ValidateResourceConfigResponse{Diagnostics: wrong}, nil
	}
	resp, err := s.ProviderServer.ValidateResourceConfig(ctx, &light)
	if err == nil && s.command.Destroys {
		warnOnly(resp.Diagnostics)
	}
	return resp, err
}

// warnOnly makes warnings of errors.
func warnOnly(diags []*tfprotov6.Diagnostic) {
	for _, d := range diags {
		d.Severity = tfprotov6.DiagnosticSeverityWarning
	}
}

// ValidateDataResourceConfig does the same for data sources.
func (s *server) ValidateDataResourceConfig(ctx context.Context, req *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	if wrong := s.wrongValues(ctx, dataPrefix+req.TypeName, req.Config); len(wrong) > 0 {
		return &tfprotov6.ValidateDataResourceConfigResponse{Diagnostics: wrong}, nil
	}
	return s.ProviderServer.ValidateDataResourceConfig(ctx, req)
}

// ValidateActionConfig does the same for actions.
func (s *server) ValidateActionConfig(ctx context.Context, req *tfprotov6.ValidateActionConfigRequest) (*tfprotov6.ValidateActionConfigResponse, error) {
	if wrong := s.wrongValues(ctx, actionPrefix+req.ActionType, req.Config); len(wrong) > 0 {
		return &tfprotov6.ValidateActionConfigResponse{Diagnostics: wrong}, nil
	}
	return s.ActionServer.ValidateActionConfig(ctx, req)
}

// PlanAction holds what is known by now of an action's configuration against its rules once more: Terraform validates it
// before it knows variables and resources, and no second time, as it does for resources.
func (s *server) PlanAction(ctx context.Context, req *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	if wrong, err := s.wrongAction(ctx, req.ActionType, req.Config); err != nil || failed(wrong) {
		return &tfprotov6.PlanActionResponse{Diagnostics: wrong}, err
	}
	return s.ActionServer.PlanAction(ctx, req)
}

// InvokeAction does the same for what only the apply knows.
func (s *server) InvokeAction(ctx context.Context, req *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	wrong, err := s.wrongAction(ctx, req.ActionType, req.Config)
	if err != nil {
		return nil, err
	}
	if failed(wrong) {
		completed := tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: wrong}}
		return &tfprotov6.InvokeActionServerStream{Events: func(yield func(tfprotov6.InvokeActionEvent) bool) { yield(completed) }}, nil
	}
	return s.ActionServer.InvokeAction(ctx, req)
}

func (s *server) wrongAction(ctx context.Context, actionType string, config *tfprotov6.DynamicValue) ([]*tfprotov6.Diagnostic, error) {
	resp, err := s.ValidateActionConfig(ctx, &tfprotov6.ValidateActionConfigRequest{ActionType: actionType, Config: config})
	if err != nil {
		return nil, err
	}
	return resp.Diagnostics, nil
}

// ConfigureProvider begins a walk of Terraform's graph.
func (s *server) ConfigureProvider(ctx context.Context, req *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	s.claims.forget()
	s.offers.Forget()
	resp, err := s.ProviderServer.ConfigureProvider(ctx, req)
	if err != nil || failed(resp.Diagnostics) {
		return resp, err
	}
	if _, err := s.compact.ConfigureProvider(ctx, req); err != nil {
		return nil, err
	}
	return resp, nil
}

// ReadResource refreshes a resource.
func (s *server) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	if resp, ok, err := s.readCompact(ctx, req); ok {
		return resp, err
	}
	return s.ProviderServer.ReadResource(ctx, req)
}

// withNodes are the types whose deletion takes nodes or their GPUs from running jobs: it is checked in every plan.
var withNodes = []string{"gpuplan_node_pool", "gpuplan_node_gpu"}

// PlanResourceChange refuses a second resource for one object, and lets every plan pass
// that only precedes a destroy. Terraform refreshes before a destroy by a plan of everything in the configuration, also of what
// was never created, and stops when that fails; what is planned then is thrown away. An apply
// of a saved plan plans once more, and says nothing that the plan has said.
func (s *server) PlanResourceChange(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	light := *req
	ctx, light.Config = s.aside(ctx, req.TypeName, req.Config)
	light.ProposedNewState = s.written(req.TypeName, req.ProposedNewState)
	resp, ok, err := s.planCompact(ctx, &light)
	if !ok {
		resp, err = s.ProviderServer.PlanResourceChange(ctx, &light)
	}
	if err != nil {
		return nil, err
	}
	s.saidInPlan(req, resp)
	if twice := s.held(ctx, req); twice != nil {
		resp.Diagnostics = append(resp.Diagnostics, twice)
	}
	if !failed(resp.Diagnostics) {
		if second := s.claimed(ctx, req, resp); second != nil {
			resp.Diagnostics = append(resp.Diagnostics, second)
		}
	}
	deletes := isNull(req.ProposedNewState)
	if !s.command.Destroys || !failed(resp.Diagnostics) || deletes && slices.Contains(withNodes, req.TypeName) {
		return resp, nil
	}
	warnOnly(resp.Diagnostics)
	if deletes { // of what the configuration has no more, whose visit may have completed findings about others
		return resp, nil
	}
	resp.PlannedState, resp.RequiresReplace = s.unplanned(ctx, req.TypeName, req.ProposedNewState), nil
	return resp, nil
}

// unplanned returns a resource as a plan may have it that nobody made: without the values
// that are the configuration's alone, which Terraform accepts in no plan, and with all that
// the provider would have found out unknown. Others may refer to it.
func (s *server) unplanned(ctx context.Context, typeName string, state *tfprotov6.DynamicValue) *tfprotov6.DynamicValue {
	of, ok := s.schemas()[typeName].(schema.Schema)
	if !ok {
		return state
	}
	wanted := of.Type().TerraformType(ctx)
	value, err := state.Unmarshal(wanted)
	if err == nil {
		value, err = tftypes.Transform(value, func(at *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
			if a, err := of.AttributeAtTerraformPath(ctx, at); err == nil && a.IsWriteOnly() {
				return tftypes.NewValue(v.Type(), nil), nil
			}
			return v, nil
		})
	}
	var attributes map[string]tftypes.Value
	if err != nil || value.As(&attributes) != nil {
		return state
	}
	for name, attribute := range of.Attributes {
		if value := attributes[name]; attribute.IsComputed() && value.IsNull() {
			attributes[name] = tftypes.NewValue(value.Type(), tftypes.UnknownValue)
		}
	}
	without, err := tfprotov6.NewDynamicValue(wanted, tftypes.NewValue(wanted, attributes))
	if err != nil {
		return state
	}
	return &without
}

func failed(diags []*tfprotov6.Diagnostic) bool {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return true
		}
	}
	return false
}
