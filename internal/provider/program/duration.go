package program

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Duration checks that a string is a positive duration.
type Duration struct{}

// Description says what is allowed.
func (Duration) Description(context.Context) string {
	return "must be a positive duration such as 30s or 5m"
}

// MarkdownDescription says what is allowed.
func (v Duration) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString refuses everything else.
func (v Duration) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if d, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || d <= 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration", fmt.Sprintf("%q %s.", req.ConfigValue.ValueString(), v.Description(ctx)))
	}
}

// FlagDuration is the duration of a flag of a workload's container, null without it. A
// written one of the same length keeps its spelling.
func FlagDuration(workload *unstructured.Unstructured, name string, written types.String) types.String {
	live, err := time.ParseDuration(Flag(workload, name))
	if err != nil {
		return types.StringNull()
	}
	if d, err := time.ParseDuration(written.ValueString()); err == nil && d == live {
		return written
	}
	return types.StringValue(live.String())
}

// ParseDuration reads a duration, 0 for null.
func ParseDuration(value types.String) (time.Duration, error) {
	if value.ValueString() == "" {
		return 0, nil
	}
	return time.ParseDuration(value.ValueString())
}
