package addon

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

// owns is said of every type.
const owns = "An add-on that the cluster has already is not installed again, only configured. Of its configuration the resource owns the settings that it is given: all others keep their values, whoever sets them. " +
	"A setting that is taken out, and all of them when the resource is destroyed, get the value back that they had before. An import reads all settings that the add-on has, and owns none: the plan after it is empty where the add-on has those of the configuration, and an update shows what it leaves out as taken out, which keeps its value. An add-on that the resource has installed is uninstalled with it. " +
	"The service keeps no stamp of who installed an add-on: one whose installation was cut off before Terraform could save it counts as one that was there, and of one whose settings an apply was killed while changing, what the apply had changed counts as what was there."

// needsValue is said of settings that are JSON.
const needsValue = "A setting needs a value: the service takes an empty one (`null`, `\"\"`, `[]`, `{}`) for none, and gives the setting its default, which it also has when it is left out. Nothing secret belongs here: it is in the state."

// schemaOf is the schema of a type with these attributes beside those that all have.
func schemaOf(ctx context.Context, description string, attributes map[string]schema.Attribute) schema.Schema {
	for name, attribute := range attributes {
		attributes[name] = readable(attribute)
	}
	maps.Copy(attributes, map[string]schema.Attribute{
		"id": schema.StringAttribute{
			MarkdownDescription: "`CLUSTER/NAME`.",
			Computed:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"version": schema.StringAttribute{
			MarkdownDescription: "Version of the add-on; a newer one upgrades it. Without it the newest that suits the cluster is installed, and what runs is left as it is.",
			Optional:            true, Computed: true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			Validators:    []validator.String{stringvalidator.LengthAtLeast(1)},
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
			MarkdownDescription: "What the settings of the resource were before, as JSON, `null` for one that was not set.",
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
	})
	return schema.Schema{MarkdownDescription: description + "\n\n" + owns, Attributes: attributes}
}

// readable is the attribute of a setting that an import may have read where the configuration does not have it.
func readable(setting schema.Attribute) schema.Attribute {
	switch a := setting.(type) {
	case schema.BoolAttribute:
		a.Computed = a.Optional
		return a
	case schema.Int64Attribute:
		a.Computed = a.Optional
		return a
	case schema.MapAttribute:
		a.Computed = a.Optional
		return a
	case schema.StringAttribute:
		a.Computed = a.Optional
		return a
	}
	return setting
}

// common is what every type of resource has.
type common struct {
	ID             types.String         `tfsdk:"id"`
	Version        types.String         `tfsdk:"version"`
	KeepOnDestroy  types.Bool           `tfsdk:"keep_on_destroy"`
	Installed      types.Bool           `tfsdk:"installed"`
	PreviousConfig jsontypes.Normalized `tfsdk:"previous_config"`
	State          types.String         `tfsdk:"state"`
	Timeouts       timeouts.Value       `tfsdk:"timeouts"`
}

func (c *common) base() *common { return c }

// cluster is the ID of the add-on's cluster.
func (c *common) cluster() string {
	clusterID, _, _ := strings.Cut(c.ID.ValueString(), "/")
	return clusterID
}

// imported reports whether an import has read the settings, and no update has owned any since.
func (c *common) imported() bool { return !c.Installed.ValueBool() && c.PreviousConfig.IsNull() }

// uninstalls reports whether the add-on goes with the resource.
func (c *common) uninstalls() bool { return c.Installed.ValueBool() && !c.KeepOnDestroy.ValueBool() }

// settleUnknown gives a value to everything that a change left open, or that broke off.
func (c *common) settleUnknown(previous jsontypes.Normalized) {
	if c.PreviousConfig.IsUnknown() {
		c.PreviousConfig = previous
	}
	for _, s := range []*types.String{&c.Version, &c.State} {
		if s.IsUnknown() {
			*s = types.StringNull()
		}
	}
}

// object checks that a text is a JSON object whose settings have values. example is one.
type object struct{ example string }

func (object) Description(context.Context) string               { return "must be a JSON object" }
func (v object) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (v object) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	c, err := parse(req.ConfigValue.ValueString())
	if err != nil || req.ConfigValue.ValueString() == "" {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid configuration", fmt.Sprintf(
			"%s is no JSON object: write it as %[1]s = jsonencode(%s).", req.Path, v.example))
	}
	resp.Diagnostics.Append(checkEmpty(c, inObject(req.Path))...)
}
