package addon

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const addonType = "gpuplan_addon"

// New returns the resource of any add-on.
func New() resource.Resource {
	return newResource(&addon[anyAddon, *anyAddon]{schema: anySchema}, addonType, "Add-on")
}

const example = "{ enableReservation = true }"

func anySchema(ctx context.Context) schema.Schema {
	return schemaOf(ctx, "An add-on of an ACK cluster and its settings. `kube-scheduler` and `ack-erdma-controller` have resources of their own, `gpuplan_scheduler_config` and `gpuplan_erdma_controller`; one add-on belongs to one resource.", map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the add-on, such as `ack-koordinator`. A change replaces the resource.",
			Required:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			Validators:          []validator.String{stringvalidator.RegexMatches(nameForm, "must be the name of an add-on: small letters, digits and '-'")},
		},
		"config": schema.StringAttribute{
			MarkdownDescription: "Settings of the add-on as a JSON object, `jsonencode(" + example + ")`. The plan checks them against the add-on's own schema. " + needsValue,
			CustomType:          jsontypes.NormalizedType{},
			Optional:            true,
			Validators:          []validator.String{object{example}},
		},
	})
}

// anyAddon is the resource in Terraform's terms.
type anyAddon struct {
	common

	Name   types.String         `tfsdk:"name"`
	Config jsontypes.Normalized `tfsdk:"config"`
}

func (m *anyAddon) name() types.String             { return m.Name }
func (m *anyAddon) settings() jsontypes.Normalized { return m.Config }
func (m *anyAddon) take(is config)                 { m.Config = jsontypes.NewNormalizedValue(text(is)) }
func (m *anyAddon) read(is config)                 { m.Config = settingsText(is) }

func (m *anyAddon) place(setting []string) (at path.Path, called string) {
	return inObject(path.Root("config"))(setting)
}

// inObject places settings in an attribute that is a JSON object.
func inObject(at path.Path) func(setting []string) (path.Path, string) {
	return func(setting []string) (path.Path, string) {
		return at, strings.Join(append([]string{at.String()}, setting...), ".")
	}
}
