package addon

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

const description = "An add-on of an ACK cluster and its settings: `kube-scheduler` with `enableReservation`, `ack-erdma-controller` with its driver, or any other.\n\n" +
	"An add-on that the cluster has already is not installed again, only configured. Of its configuration the resource owns the settings that `config` has: all others keep their values, whoever sets them. " +
	"A setting that leaves `config`, and all of them when the resource is destroyed, get the value back that they had before. An add-on that the resource has installed is uninstalled with it. " +
	"The service keeps no stamp of who installed an add-on: one whose installation was cut off before Terraform could save it counts as one that was there, and of one whose settings an apply was killed while changing, what the apply had changed counts as what was there."

func (r *addon) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "`CLUSTER/NAME`.",
				Computed:            true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the add-on, such as `kube-scheduler`. A change replaces the resource.",
				Required:            true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
				Validators:          []validator.String{stringvalidator.RegexMatches(nameForm, "must be the name of an add-on: small letters, digits and '-'")},
			},
			"version": schema.StringAttribute{
				MarkdownDescription: "Version of the add-on; a newer one upgrades it. Without it the newest that suits the cluster is installed, and what runs is left as it is.",
				Optional:            true, Computed: true,
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
				Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"config": schema.StringAttribute{
				MarkdownDescription: "Settings of the add-on as a JSON object, `jsonencode({ enableReservation = true })`. The plan checks them against the add-on's own schema. " +
					"A setting needs a value: the service takes an empty one (`null`, `\"\"`, `[]`, `{}`) for none, and gives the setting its default, which it also has when it is left out. Nothing secret belongs here: it is in the state.",
				CustomType: jsontypes.NormalizedType{},
				Optional:   true,
				Validators: []validator.String{object{}},
			},
			"keep_on_destroy": schema.BoolAttribute{
				MarkdownDescription: "Whether the add-on stays as it is when the resource is destroyed. Default `false`.",
				Optional:            true, Computed: true, Default: booldefault.StaticBool(false),
			},
			"installed": schema.BoolAttribute{
				MarkdownDescription: "Whether the resource has installed the add-on, and so uninstalls it.",
				Computed:            true,
			},
			"previous_config": schema.StringAttribute{
				MarkdownDescription: "What the settings of `config` were before, `null` for one that was not set.",
				CustomType:          jsontypes.NormalizedType{},
				Computed:            true,
			},
			"state": schema.StringAttribute{
				MarkdownDescription: "State of the add-on at the service, such as `active`.",
				Computed:            true,
			},
			"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true,
				CreateDescription: "How long the installation may take; default `30m`.",
				UpdateDescription: "How long an upgrade or a change may take; default `30m`.",
				DeleteDescription: "How long the removal may take; default `20m`.",
			})),
		},
	}
}

// model is the resource in Terraform's terms.
type model struct {
	ID             types.String         `tfsdk:"id"`
	Name           types.String         `tfsdk:"name"`
	Version        types.String         `tfsdk:"version"`
	Config         jsontypes.Normalized `tfsdk:"config"`
	KeepOnDestroy  types.Bool           `tfsdk:"keep_on_destroy"`
	Installed      types.Bool           `tfsdk:"installed"`
	PreviousConfig jsontypes.Normalized `tfsdk:"previous_config"`
	State          types.String         `tfsdk:"state"`
	Timeouts       timeouts.Value       `tfsdk:"timeouts"`
}
