package addon

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
)

// Attributes become settings and settings attributes; what is not given is not there.
func TestAttributesAreSettings(t *testing.T) {
	counts := func(m map[string]attr.Value) types.Map { return types.MapValueMust(types.Int64Type, m) }
	gates := func(m map[string]attr.Value) types.Map { return types.MapValueMust(types.BoolType, m) }
	for name, test := range map[string]struct {
		is       schedulerConfig
		settings string
		// live is what the settings have become, then what the resource is.
		live string
		then schedulerConfig
	}{
		"one": {schedulerConfig{EnableReservation: types.BoolValue(true)}, `{"enableReservation":true}`,
			`{"enableReservation":false}`, schedulerConfig{EnableReservation: types.BoolValue(false)}},
		"cleared": {schedulerConfig{PodMaxBackoffSeconds: types.Int64Value(60), PreemptionAlgorithm: types.StringValue("None")}, `{"podMaxBackoffSeconds":60,"preemptionAlgorithm":"None"}`,
			`{"preemptionAlgorithm":"Auto"}`, schedulerConfig{PreemptionAlgorithm: types.StringValue("Auto")}},
		"weights": {schedulerConfig{BinpackResourceWeight: counts(map[string]attr.Value{"nvidia.com/gpu": types.Int64Value(2), "cpu": types.Int64Value(1)})},
			`{"binpackResourceWeight":[{"resourceName":"cpu","resourceWeight":1},{"resourceName":"nvidia.com/gpu","resourceWeight":2}]}`,
			`{"binpackResourceWeight":[{"resourceName":"nvidia.com/gpu","resourceWeight":3}]}`,
			schedulerConfig{BinpackResourceWeight: counts(map[string]attr.Value{"nvidia.com/gpu": types.Int64Value(3)})}},
		"gates": {schedulerConfig{FeatureGates: gates(map[string]attr.Value{"A": types.BoolValue(true), "B": types.BoolValue(false)})},
			`{"featureGates":{"A":true,"B":false}}`, `{"featureGates":{"B":true}}`, schedulerConfig{FeatureGates: gates(map[string]attr.Value{"B": types.BoolValue(true)})}},
		"another type": {schedulerConfig{EnableReservation: types.BoolValue(true), BinpackPluginWeight: types.Int64Value(1), FeatureGates: gates(map[string]attr.Value{"A": types.BoolValue(true)})},
			`{"enableReservation":true,"binpackPluginWeight":1,"featureGates":{"A":true}}`, `{"enableReservation":"yes","binpackPluginWeight":"x","featureGates":"A"}`, schedulerConfig{}},
		"beside": {schedulerConfig{EnableReservation: types.BoolValue(true), typed: typed{ExtraConfig: jsontypes.NewNormalizedValue(`{"x":{"a":1},"y":2}`)}},
			`{"enableReservation":true,"x":{"a":1},"y":2}`, `{"enableReservation":true,"x":{"a":9}}`,
			schedulerConfig{EnableReservation: types.BoolValue(true), typed: typed{ExtraConfig: jsontypes.NewNormalizedValue(`{"x":{"a":9}}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.is
			assert.JSONEq(t, test.settings, m.settings().ValueString())
			m.take(read(t, m.settings().ValueString()))
			assert.JSONEq(t, test.settings, m.settings().ValueString(), "what is as it was")
			m.take(read(t, test.live))
			assert.Equal(t, test.then.settings(), m.settings())
			assert.Equal(t, test.then.EnableReservation, m.EnableReservation)
		})
	}
	none := schedulerConfig{}
	assert.True(t, none.settings().IsNull())
	for name, open := range map[string]schedulerConfig{
		"an attribute": {EnableReservation: types.BoolUnknown()},
		"beside":       {typed: typed{ExtraConfig: jsontypes.NewNormalizedUnknown()}},
		"a map":        {FeatureGates: types.MapUnknown(types.BoolType)},
		"in a map":     {FeatureGates: gates(map[string]attr.Value{"A": types.BoolUnknown()})},
	} {
		assert.True(t, open.settings().IsUnknown(), name)
	}
	controller := erdmaController{Driver: types.StringValue("ofed"), typed: typed{ExtraConfig: jsontypes.NewNormalizedValue(`{"agent":{"jumboFrameMTU":8500}}`)}}
	assert.JSONEq(t, `{"agent":{"preferDriver":"ofed","jumboFrameMTU":8500}}`, controller.settings().ValueString())
}

func TestPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		setting []string
		at      path.Path
		called  string
	}{
		"an attribute":   {[]string{"agent", "preferDriver"}, path.Root("driver"), "driver"},
		"below one":      {[]string{"agent", "preferDriver", "x"}, path.Root("driver"), "driver.x"},
		"beside":         {[]string{"agent", "jumboFrameMTU"}, path.Root("extra_config"), "extra_config.agent.jumboFrameMTU"},
		"above them":     {[]string{"agent"}, path.Root("extra_config"), "extra_config.agent"},
		"as a whole":     {nil, path.Root("extra_config"), "extra_config"},
		"something else": {[]string{"config"}, path.Root("extra_config"), "extra_config.config"},
	} {
		t.Run(name, func(t *testing.T) {
			at, called := new(erdmaController).place(test.setting)
			assert.Equal(t, test.at.String(), at.String())
			assert.Equal(t, test.called, called)
		})
	}
}
