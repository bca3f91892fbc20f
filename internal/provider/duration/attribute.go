package duration

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Optional is an attribute of a resource that may have a duration in these bounds.
func Optional(description string, least, most time.Duration) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description,
		Optional:            true, CustomType: Type{},
		Validators:    []validator.String{Between{Least: least, Most: most}},
		PlanModifiers: []planmodifier.String{keepSpelling{}},
	}
}

// keepSpelling plans no change where the configuration spells the duration of the state in another way. The
// framework compares values by their meaning after a refresh and an apply, but not for a plan.
type keepSpelling struct{}

// Description says what it does.
func (keepSpelling) Description(context.Context) string {
	return "another spelling of the same duration is no change"
}

// MarkdownDescription says what it does.
func (k keepSpelling) MarkdownDescription(ctx context.Context) string { return k.Description(ctx) }

// PlanModifyString plans what the state has.
func (keepSpelling) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}
	planned, had := timetypes.GoDuration{StringValue: req.PlanValue}, timetypes.GoDuration{StringValue: req.StateValue}
	same, diags := planned.StringSemanticEquals(ctx, had)
	if resp.Diagnostics.Append(diags...); same {
		resp.PlanValue = req.StateValue
	}
}
