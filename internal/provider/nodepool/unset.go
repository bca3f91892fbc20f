package nodepool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
)

// emptyIsUnset makes "" and [] mean what leaving the attribute out means: what the cloud has stays.
type emptyIsUnset struct{}

var (
	_ planmodifier.String = emptyIsUnset{}
	_ planmodifier.Set    = emptyIsUnset{}
)

func (emptyIsUnset) Description(context.Context) string {
	return "Empty is the same as left out."
}

func (m emptyIsUnset) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (emptyIsUnset) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if known(req.ConfigValue) && req.ConfigValue.ValueString() == "" && known(req.StateValue) {
		resp.PlanValue = req.StateValue
	}
}

func (emptyIsUnset) PlanModifySet(_ context.Context, req planmodifier.SetRequest, resp *planmodifier.SetResponse) {
	if known(req.ConfigValue) && len(req.ConfigValue.Elements()) == 0 && known(req.StateValue) {
		resp.PlanValue = req.StateValue
	}
}
