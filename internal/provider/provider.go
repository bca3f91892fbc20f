// Package provider is the Terraform provider: its configuration, its resources and
// its data sources.
package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/addon"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/clusterdata"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/drain"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleet"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/gpunodes"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/instancetypes"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodeagent"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodegpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/placementdata"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/propagationpolicy"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/queues"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/quotatree"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/scheduler"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/sibling"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/trainingjob"
)

// Command is what is known of the Terraform command that started the provider.
type Command struct {
	// Targets means that Terraform visits a part of the configuration only.
	Targets bool
	// Applies means that it is `terraform apply`, whose second walk nothing tells from its first.
	Applies bool
	// Parallelism is how many resources Terraform visits at a time, 0 where that is not known.
	Parallelism int
	// Refreshes means that it takes over what there is, and changes nothing.
	Refreshes bool
	// Tests means that it is `terraform test`.
	Tests bool
	// Siblings are the other processes of this provider that it runs, nil for none.
	Siblings *sibling.Group
}

// New returns a constructor of the provider of the given version.
func New(version string, by Command) func() *Provider {
	return func() *Provider { return &Provider{version: version, command: by} }
}

// Provider is the provider.
type Provider struct {
	version string
	command Command
	session *session.Session // since it was configured
}

type config struct {
	Region            types.String `tfsdk:"region"`
	ClusterID         types.String `tfsdk:"cluster_id"`
	Endpoint          types.String `tfsdk:"endpoint"`
	Kubeconfig        types.String `tfsdk:"kubeconfig"`
	KubeconfigContent types.String `tfsdk:"kubeconfig_content"`
	KubeContext       types.String `tfsdk:"kube_context"`
	PlacementCheck    types.String `tfsdk:"placement_check"`
	Owner             types.String `tfsdk:"owner"`
	credentials
}

func (p *Provider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "gpuplan", p.version
}

func (p *Provider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	optional := func(attribute, description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description + environment(attribute), Optional: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Declares GPU clusters: node pools, the gpuplan scheduler and node agent, quota trees and training jobs. " +
			"The plan shows where every gang will run, and fails when one does not fit.\n\n" +
			"Every setting but `kubeconfig_content`, and `policy`, `external_id` and the OIDC session's expiration of roles to assume, can come from the environment instead; a plan connects to a service only when one of its resources needs it.",
		Blocks: credentialsBlocks(),
		Attributes: map[string]schema.Attribute{
			session.Region:    optional(session.Region, "Region of the cluster, such as `cn-hangzhou`; else that of the profile that is used."),
			session.ClusterID: optional(session.ClusterID, "ID of the ACK cluster."),
			session.Endpoint:  optional(session.Endpoint, "URL of the Container Service API, for private networks and local platforms; without it the region's public endpoint."),
			session.Kubeconfig: schema.StringAttribute{
				MarkdownDescription: "Path of the kubeconfig of the cluster. Environment: `KUBECONFIG`, which may list several files; else `~/.kube/config`; else, in a pod, its service account.",
				Optional:            true,
			},
			session.KubeconfigContent: schema.StringAttribute{MarkdownDescription: "Content of a kubeconfig; used instead of `kubeconfig`.", Optional: true, Sensitive: true},
			session.KubeContext:       optional(session.KubeContext, "Context of the kubeconfig; without it the current one."),
			session.PlacementCheck: schema.StringAttribute{
				MarkdownDescription: "What a gang that does not fit does to the plan: `error` (default) fails it, `warn` warns, `off` does not check. A training job can override it." + environment(session.PlacementCheck),
				Optional:            true,
				Validators:          []validator.String{stringvalidator.OneOf(session.Checks()...)},
			},
			session.Owner: schema.StringAttribute{
				MarkdownDescription: "Stamp by which this configuration knows what it created (label or tag `gpuplan.dev/owner`): up to 63 letters, digits, `-`, `_` and `.`. " +
					"What an apply created that was killed before it could be saved in the state is continued by the next apply; what carries another stamp or none never is. " +
					"Default: made of the place of the state (backend and workspace; for a local state the machine, the path of the file and the workspace). " +
					"Set it where neither stays the same, such as a local state that is carried from one container to the next; no two configurations may share one. " +
					"Environment: `GPUPLAN_OWNER`.",
				Optional:   true,
				Validators: []validator.String{ownerStamp{}},
			},
		},
	}
	maps.Copy(resp.Schema.Attributes, credentialsAttributes())
}

func (p *Provider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var c config
	resp.Diagnostics.Append(req.Config.Get(ctx, &c)...)
	if resp.Diagnostics.HasError() {
		return
	}
	settings := session.Settings{
		UserAgent: "terraform-provider-gpuplan/" + p.version,
		Targets:   p.command.Targets, Applies: p.command.Applies, Refreshes: p.command.Refreshes, Parallelism: p.command.Parallelism,
	}
	settings.Unknown = readAll([]setting{
		{session.Region, c.Region, &settings.Region},
		{session.ClusterID, c.ClusterID, &settings.ClusterID},
		{session.Endpoint, c.Endpoint, &settings.Endpoint},
		{session.Kubeconfig, c.Kubeconfig, &settings.Kubeconfig}, // the client reads KUBECONFIG, which may list files
		{session.KubeconfigContent, c.KubeconfigContent, &settings.KubeconfigContent},
		{session.KubeContext, c.KubeContext, &settings.KubeContext},
		{session.PlacementCheck, c.PlacementCheck, (*string)(&settings.PlacementCheck)},
	})
	if settings.Region == "" && !c.Region.IsUnknown() { // an empty text, as modules pass on, names none
		settings.Region = fromEnvironment(session.Region)
	}
	var unknown []string
	settings.Identity, unknown = c.credentials.read(ctx, &resp.Diagnostics)
	settings.Unknown = append(settings.Unknown, unknown...)
	if settings.Region == "" && !c.Region.IsUnknown() && len(unknown) == 0 {
		settings.Region = settings.Identity.Region()
	}
	switch settings.PlacementCheck {
	case session.CheckError, session.CheckWarn, session.CheckOff:
	case "":
		settings.PlacementCheck = session.CheckError
	default:
		resp.Diagnostics.AddAttributeError(path.Root(session.PlacementCheck), "Invalid placement check",
			fmt.Sprintf("The environment variable GPUPLAN_PLACEMENT_CHECK is %q; it must be one of %s.", settings.PlacementCheck, strings.Join(session.Checks(), ", ")))
	}
	settings.Owner = p.command.stampOf(c.Owner, &resp.Diagnostics)
	checkKubeconfig(settings, &resp.Diagnostics)
	if len(settings.Unknown) > 0 {
		resp.Diagnostics.AddWarning("Live state is not checked",
			fmt.Sprintf("The provider's %s is unknown until apply, so this plan asks neither the cloud nor the cluster: "+
				"what is planned in this configuration is checked, what exists is not.", strings.Join(settings.Unknown, ", ")))
	}
	p.checkAlone(ctx, settings, &resp.Diagnostics)
	s := session.New(settings)
	p.session = s
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData, resp.ListResourceData, resp.ActionData = s, s, s, s, s
}

// ResourceData is what resources of this walk are configured with.
func (p *Provider) ResourceData() any { return p.session }

// checkAlone refuses a second provider configuration for a cluster: each has a process and a ledger of
// its own, so that nothing would be compared between them, not even two jobs of one name.
func (p *Provider) checkAlone(ctx context.Context, s session.Settings, diags *diag.Diagnostics) {
	scope, address := sibling.Scope{Owner: s.Owner, ClusterID: s.ClusterID}, ""
	if !slices.ContainsFunc(s.Unknown, func(name string) bool {
		return name == session.Kubeconfig || name == session.KubeconfigContent || name == session.KubeContext
	}) {
		if access, err := kube.ConfigFrom(kube.Access{Path: s.Kubeconfig, Content: s.KubeconfigContent, Context: s.KubeContext}); err == nil {
			address = access.Host
			scope.Reach(access)
		}
	}
	shared, err := p.command.Siblings.Meet(ctx, scope)
	if err != nil {
		tflog.Warn(ctx, "whether another provider configuration is for the same cluster is not known", map[string]any{"error": err.Error()})
	}
	if !shared {
		return
	}
	cluster := address
	if scope.ClusterID != "" { // of two local platforms it is the same, and nothing else
		cluster = strings.TrimPrefix(address+", cluster_id "+scope.ClusterID, ", ")
	}
	diags.AddError("Two provider configurations for one cluster", fmt.Sprintf(
		"Another provider configuration (an alias) of this configuration is for the same cluster, %s. Terraform runs a process for each, so nothing could be compared between the two: "+
			"jobs of one name would overwrite and delete each other, and jobs that do not fit together would not be refused. "+
			"If they are meant for two clusters, give each its own kubeconfig (or kube_context) and cluster_id. Else use one provider configuration for a cluster, and set what differs, such as placement_check, on the resources. "+
			"Or give each an owner: they are then strangers to each other, like two configurations, and know of each other's jobs only what runs.",
		cluster))
}

// checkKubeconfig finds mistakes in what the configuration says about the kubeconfig,
// without connecting.
func checkKubeconfig(s session.Settings, diags *diag.Diagnostics) {
	attribute := session.Kubeconfig
	switch {
	case s.KubeconfigContent != "":
		attribute = session.KubeconfigContent
	case s.Kubeconfig == "":
		return
	}
	if _, err := kube.ConfigFrom(kube.Access{Path: s.Kubeconfig, Content: s.KubeconfigContent, Context: s.KubeContext}); err != nil {
		diags.AddAttributeError(path.Root(attribute), "Kubeconfig cannot be used", session.Sentence(err))
	}
}

// Actions are what can be done beside creating and changing resources.
func (p *Provider) Actions(context.Context) []func() action.Action {
	return []func() action.Action{drain.New, trainingjob.NewRerun}
}

// ListResources are the lists of what there is, which `terraform query` asks for.
func (p *Provider) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{nodepool.NewList, trainingjob.NewList}
}

func (p *Provider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{nodepool.New, nodegpu.New, addon.New, addon.NewSchedulerConfig, addon.NewERDMAController, propagationpolicy.New, quotatree.New, scheduler.New, nodeagent.New, trainingjob.New}
}

func (p *Provider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		addon.NewData, clusterdata.New, fleet.New, gpunodes.New, instancetypes.New, nodepool.NewData, placementdata.New, queues.New, quotatree.NewData, scheduler.NewData, trainingjob.NewData, trainingjob.NewLogs,
	}
}

func (p *Provider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{instancetypes.NewFunction, placementdata.NewFunction}
}

func (p *Provider) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{clusterdata.NewKubeconfig}
}
