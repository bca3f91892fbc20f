package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// What the framework is not shown of a resource changes nothing: plans and refreshes are those
// that it makes when it is shown everything.
func TestWhatIsCarriedPastTheFramework(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	ours := server.New(provider.New("test", provider.Command{})(), server.Command{})
	framework := providerserver.NewProtocol6(provider.New("test", provider.Command{})())()
	schemas, err := framework.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	require.NoError(t, err)
	for name, s := range schemas.ResourceSchemas {
		t.Run(name, func(t *testing.T) {
			c := comparison{ours: ours, framework: framework, provider: schemas.Provider, name: name, schema: s}
			kind := s.ValueType()
			none := tftypes.NewValue(kind, nil)
			base := build(kind, needed[name])
			applied := settled(c.plan(t, "as it is", none, base), kind)
			require.False(t, applied.IsNull())
			c.plan(t, "the same", applied, base)
			c.plan(t, "deleted", applied, none)
			c.read(t, applied)
			for _, at := range (hostile{}).attributes(s.Block.Attributes, nil) {
				for i, value := range some(at.kind) {
					what := fmt.Sprintf("%s #%d", strings.Join(at.path, "."), i)
					config := build(kind, with(needed[name], at.path, value))
					if made := settled(c.plan(t, what+" new", none, config), kind); !made.IsNull() {
						c.plan(t, what+" left out", made, base)
					} else {
						c.plan(t, what+" changed", applied, config)
					}
				}
			}
		})
	}
}

// some are values of a type: an unknown one, and one with something in it.
func some(kind tftypes.Type) []any {
	switch kind := kind.(type) {
	case tftypes.Map:
		return []any{tftypes.UnknownValue, map[string]any{"a": sample(kind.ElementType)}}
	case tftypes.List:
		return []any{tftypes.UnknownValue, []any{sample(kind.ElementType)}}
	case tftypes.Set:
		return []any{tftypes.UnknownValue, []any{sample(kind.ElementType)}}
	}
	return []any{tftypes.UnknownValue, sample(kind)}
}

type comparison struct {
	ours, framework tfprotov6.ProviderServer
	provider        *tfprotov6.Schema
	name            string
	schema          *tfprotov6.Schema
}

// plan plans a configuration on a state in both ways.
func (c comparison) plan(t *testing.T, what string, state, config tftypes.Value) tftypes.Value {
	t.Helper()
	kind := c.schema.ValueType()
	req := &tfprotov6.PlanResourceChangeRequest{
		TypeName: c.name, PriorState: encoded(t, kind, state), ProposedNewState: encoded(t, kind, c.proposed(state, config)), Config: encoded(t, kind, config),
	}
	configure(t, c.ours, c.provider) // a walk of its own
	got, err := c.ours.PlanResourceChange(t.Context(), req)
	require.NoError(t, err, what)
	configure(t, c.framework, c.provider)
	want, err := c.framework.PlanResourceChange(t.Context(), req)
	require.NoError(t, err, what)
	assert.Equal(t, said(want.Diagnostics), said(got.Diagnostics), what)
	if len(want.Diagnostics) > 0 && slices.ContainsFunc(want.Diagnostics, func(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityError }) {
		return tftypes.NewValue(kind, nil) // Terraform takes no more of it
	}
	planned := decoded(t, kind, want.PlannedState)
	if found := decoded(t, kind, got.PlannedState); !assert.True(t, planned.Equal(found), what) {
		differences, err := planned.Diff(found)
		require.NoError(t, err)
		for _, d := range differences {
			t.Log(what, d)
		}
	}
	assert.Equal(t, want.RequiresReplace, got.RequiresReplace, what)
	assert.Equal(t, want.PlannedIdentity, got.PlannedIdentity, what)
	return planned
}

// read refreshes a state in both ways.
func (c comparison) read(t *testing.T, state tftypes.Value) {
	t.Helper()
	kind := c.schema.ValueType()
	req := &tfprotov6.ReadResourceRequest{TypeName: c.name, CurrentState: encoded(t, kind, state)}
	configure(t, c.ours, c.provider)
	got, err := c.ours.ReadResource(t.Context(), req)
	require.NoError(t, err)
	configure(t, c.framework, c.provider)
	want, err := c.framework.ReadResource(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, said(want.Diagnostics), said(got.Diagnostics))
	assert.True(t, decoded(t, kind, want.NewState).Equal(decoded(t, kind, got.NewState)))
	assert.Equal(t, want.NewIdentity, got.NewIdentity)
}

// proposed is what Terraform proposes: what is configured, and of what is not and is computed what there is.
func (c comparison) proposed(state, config tftypes.Value) tftypes.Value {
	if config.IsNull() || state.IsNull() {
		return config
	}
	var had, wanted map[string]tftypes.Value
	if state.As(&had) != nil || config.As(&wanted) != nil {
		return config
	}
	wanted = maps.Clone(wanted) // the value has this one
	for _, a := range c.schema.Block.Attributes {
		if a.Computed && wanted[a.Name].IsNull() {
			wanted[a.Name] = had[a.Name]
		}
	}
	return tftypes.NewValue(c.schema.ValueType(), wanted)
}

// settled is a plan as it is after its apply: something is known in the place of what is not.
func settled(plan tftypes.Value, kind tftypes.Type) tftypes.Value {
	if plan.IsNull() {
		return plan
	}
	value, err := tftypes.Transform(plan, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return filled(v.Type()), nil
	})
	if err != nil {
		return tftypes.NewValue(kind, nil)
	}
	return value
}

// filled is a value of a type that is known and has no null in it.
func filled(kind tftypes.Type) tftypes.Value {
	switch kind := kind.(type) {
	case tftypes.Object:
		attributes := map[string]tftypes.Value{}
		for name, below := range kind.AttributeTypes {
			attributes[name] = filled(below)
		}
		return tftypes.NewValue(kind, attributes)
	case tftypes.Map:
		return tftypes.NewValue(kind, map[string]tftypes.Value{})
	case tftypes.List, tftypes.Set:
		return tftypes.NewValue(kind, []tftypes.Value{})
	}
	return tftypes.NewValue(kind, sample(kind))
}

func said(diags []*tfprotov6.Diagnostic) (all []string) {
	for _, d := range diags {
		all = append(all, fmt.Sprint(d.Severity, d.Summary, d.Detail, d.Attribute))
	}
	slices.Sort(all) // attributes come in the order of a map
	return all
}

func encoded(t *testing.T, kind tftypes.Type, value tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()
	d, err := tfprotov6.NewDynamicValue(kind, value)
	require.NoError(t, err)
	return &d
}

func decoded(t *testing.T, kind tftypes.Type, value *tfprotov6.DynamicValue) tftypes.Value {
	t.Helper()
	v, err := value.Unmarshal(kind)
	require.NoError(t, err)
	return v
}
