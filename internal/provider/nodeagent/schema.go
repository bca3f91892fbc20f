package nodeagent

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func describe(ctx context.Context) schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The gpuplan node agent: on every GPU node it looks at the cards and the links between them, and publishes what it sees (`GPUNode`), for the scheduler and for the plan.\n\n" +
			"It runs on nodes with the label `ack.node.gpu.schedule`, also on those that join later. Objects that somebody deleted or changed show up as drift and are restored.",
		Attributes: map[string]schema.Attribute{
			"image": schema.StringAttribute{
				MarkdownDescription: "Container image of the agent.",
				Required:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"interval": schema.StringAttribute{
				MarkdownDescription: "How often the agent looks at the cards, as in `30s`. Default: the agent's own.",
				Optional:            true,
				Validators:          []validator.String{duration{}},
			},
			"metrics_port": schema.Int64Attribute{
				MarkdownDescription: "Port for metrics. Default 0: none.",
				Optional:            true, Computed: true, Default: int64default.StaticInt64(0),
				Validators: []validator.Int64{int64validator.Between(0, 65535)},
			},
			"id": schema.StringAttribute{
				MarkdownDescription: "Namespace and name of the DaemonSet, for import.", Computed: true,
			},
			"drifted_objects": schema.ListAttribute{
				MarkdownDescription: "Objects that are missing, or differ from what was applied, with the fields. Empty after an apply.",
				Computed:            true, ElementType: types.StringType,
			},
			"timeouts": timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
				CreateDescription: "Default `10m`.", UpdateDescription: "Default `10m`.", DeleteDescription: "Default `10m`."}),
		},
	}
}

// duration checks that a string is a positive duration.
type duration struct{}

func (duration) Description(context.Context) string {
	return "must be a positive duration such as 30s or 5m"
}
func (v duration) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (v duration) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if d, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || d <= 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration", fmt.Sprintf("%q %s.", req.ConfigValue.ValueString(), v.Description(ctx)))
	}
}
