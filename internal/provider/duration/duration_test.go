package duration_test

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

// Bounds are written as people write them: the longest was "2160h0m0s".
func TestBoundsInWords(t *testing.T) {
	for most, want := range map[time.Duration]string{
		90 * 24 * time.Hour: "2160h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 100 * time.Second: "1m40s",
		time.Hour + time.Second: "1h0m1s", 30 * time.Second: "30s", 1500 * time.Millisecond: "1.5s",
	} {
		between := duration.Between{Least: time.Second, Most: most}
		assert.Equal(t, "must be a positive duration such as 30s or 5m, from 1s to "+want, between.Description(t.Context()))
	}
}

// Another spelling of the same duration is no change.
func TestSpelling(t *testing.T) {
	null, unknown := types.StringNull(), types.StringUnknown()
	for name, c := range map[string]struct{ had, plan, want types.String }{
		"same length": {types.StringValue("5m"), types.StringValue("300s"), types.StringValue("5m")},
		"longer":      {types.StringValue("5m"), types.StringValue("301s"), types.StringValue("301s")},
		"new":         {null, types.StringValue("300s"), types.StringValue("300s")},
		"left out":    {types.StringValue("5m"), null, null},
		"unknown":     {types.StringValue("5m"), unknown, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			resp := planmodifier.StringResponse{PlanValue: c.plan}
			for _, modifier := range duration.Optional("", time.Second, time.Hour).PlanModifiers {
				modifier.PlanModifyString(t.Context(), planmodifier.StringRequest{StateValue: c.had, PlanValue: c.plan}, &resp)
			}
			assert.Empty(t, resp.Diagnostics)
			assert.Equal(t, c.want, resp.PlanValue)
		})
	}
}

// What was read back keeps the spelling and the absence of what was written.
func TestLive(t *testing.T) {
	null := duration.Value{GoDuration: timetypes.NewGoDurationNull()}
	value := func(text string) duration.Value {
		return duration.Value{GoDuration: timetypes.NewGoDurationValueFromStringMust(text)}
	}
	for name, c := range map[string]struct {
		text          string
		written, want duration.Value
	}{
		"none":                    {"", value("5m"), null},
		"as written":              {"5m0s", value("300s"), value("300s")},
		"another":                 {"6m0s", value("300s"), value("6m0s")},
		"the default, unwritten":  {"10m0s", null, null},
		"the default, as written": {"10m0s", value("600s"), value("600s")},
		"not the default":         {"5m0s", null, value("5m0s")},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, duration.Live(c.text, c.written, 10*time.Minute))
		})
	}
}

// Values are as equal as they are long, for the framework, which holds them together after a refresh.
func TestSemanticEquality(t *testing.T) {
	value := func(text string) duration.Value {
		v, err := duration.Type{}.ValueFromTerraform(t.Context(), tftypes.NewValue(tftypes.String, text))
		require.NoError(t, err)
		return v.(duration.Value)
	}
	for text, want := range map[string]bool{"5m": true, "300s": true, "301s": false} {
		same, diags := value(text).StringSemanticEquals(t.Context(), value("5m0s"))
		assert.Empty(t, diags)
		assert.Equal(t, want, same, text)
	}
}
