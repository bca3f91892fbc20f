package addon

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewData returns the data source: what the service knows of an add-on, and what the cluster has of it.
func NewData() datasource.DataSource { return &addonData{session.DataSource{Type: "gpuplan_addon"}} }

type addonData struct{ session.DataSource }

type dataModel struct {
	Name             types.String         `tfsdk:"name"`
	Version          types.String         `tfsdk:"version"`
	InstalledVersion types.String         `tfsdk:"installed_version"`
	State            types.String         `tfsdk:"state"`
	Config           jsontypes.Normalized `tfsdk:"config"`
	ConfigSchema     jsontypes.Normalized `tfsdk:"config_schema"`
	NewerVersions    []versionModel       `tfsdk:"newer_versions"`
	Managed          types.Bool           `tfsdk:"managed"`
	ByDefault        types.Bool           `tfsdk:"install_by_default"`
	Actions          []string             `tfsdk:"supported_actions"`
}

type versionModel struct {
	Version               string `tfsdk:"version"`
	MinimumClusterVersion string `tfsdk:"minimum_cluster_version"`
	Upgradable            bool   `tfsdk:"upgradable"`
}

func (d *addonData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	flag := func(description string) schema.BoolAttribute {
		return schema.BoolAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "An add-on of an ACK cluster: which versions there are, what the cluster has of it, and which settings it knows. It fails for an add-on that the service does not have.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the add-on, such as `ack-koordinator`.", Required: true,
				Validators: []validator.String{stringvalidator.RegexMatches(nameForm, "must be the name of an add-on: small letters, digits and '-'")},
			},
			"version": schema.StringAttribute{
				MarkdownDescription: "Version to describe. Default: the one that is installed, or else the newest that suits the cluster.",
				Optional:            true, Computed: true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"installed_version": text("Version that the cluster has; null when the add-on is not installed."),
			"state":             text("State of the add-on at the service, such as `active`; null when it is not installed."),
			"config": schema.StringAttribute{
				MarkdownDescription: "All settings that the add-on has in the cluster as a JSON object, those of the service included; null when it is not installed. It is in the state: do not read an add-on that keeps secrets in its settings.",
				CustomType:          jsontypes.NormalizedType{}, Computed: true, Sensitive: true,
			},
			"config_schema": schema.StringAttribute{
				MarkdownDescription: "JSON schema of the settings of `version`, which `jsondecode` takes apart. Empty (`{}`) for an add-on without one.",
				CustomType:          jsontypes.NormalizedType{}, Computed: true,
			},
			"newer_versions": schema.ListNestedAttribute{
				MarkdownDescription: "Versions that are newer than `version`.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"version":                 text("The version."),
					"minimum_cluster_version": text("Kubernetes version that it needs; empty for any."),
					"upgradable":              flag("Whether the cluster can have it as it is."),
				}},
			},
			"managed":            flag("Whether it runs outside the cluster."),
			"install_by_default": flag("Whether every new cluster has it."),
			"supported_actions": schema.ListAttribute{
				MarkdownDescription: "What the service does with it: `Install`, `Upgrade`, `Modify`, `Uninstall`.", Computed: true, ElementType: types.StringType,
			},
		},
	}
}

// Read asks the service.
func (d *addonData) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m dataModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	client, err := d.Session.ACS()
	var live acs.AddonInstance
	if err == nil {
		if live, err = client.GetAddon(ctx, d.Session.ClusterID, m.Name.ValueString()); acs.Code(err) == "AddonNotFound" {
			err = nil
		}
	}
	var info acs.AddonInfo
	if err == nil {
		info, err = client.DescribeAddon(ctx, d.Session.ClusterID, m.Name.ValueString(), cmp.Or(m.Version.ValueString(), live.Version))
	}
	switch {
	case acs.Code(err) == "AddonNotFound":
		resp.Diagnostics.AddAttributeError(path.Root("name"), "No such add-on", fmt.Sprintf("The service has no add-on %q for cluster %s. The console lists those that it has, under Add-ons.", m.Name.ValueString(), d.Session.ClusterID))
		return
	case err != nil:
		resp.Diagnostics.AddError("Add-on cannot be read", session.Unread(err))
		return
	}
	m.set(live, info)
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// set fills in what the service says; live has no name where the add-on is not installed.
func (m *dataModel) set(live acs.AddonInstance, info acs.AddonInfo) {
	m.Version = types.StringValue(info.Version)
	if live.Name != "" {
		m.InstalledVersion, m.State = types.StringValue(live.Version), types.StringValue(live.State)
		m.Config = jsontypes.NewNormalizedValue(cmp.Or(live.Config, "{}"))
	}
	m.ConfigSchema = jsontypes.NewNormalizedValue(cmp.Or(info.ConfigSchema, "{}"))
	m.NewerVersions = []versionModel{}
	for _, v := range info.NewerVersions {
		m.NewerVersions = append(m.NewerVersions, versionModel(v))
	}
	m.Managed, m.ByDefault = types.BoolValue(info.Managed), types.BoolValue(info.InstallByDefault)
	m.Actions = append([]string{}, info.SupportedActions...)
}
