package trainingjob_test

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/quotatree"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/trainingjob"
)

type tp struct{}

type cfg struct {
	K types.String `tfsdk:"kubeconfig"`
	P types.String `tfsdk:"placement_check"`
}

func (tp) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "gpuplan"
}
func (tp) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{Attributes: map[string]schema.Attribute{"kubeconfig": schema.StringAttribute{Optional: true}, "placement_check": schema.StringAttribute{Optional: true}}}
}
func (tp) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var c cfg
	resp.Diagnostics.Append(req.Config.Get(ctx, &c)...)
	st := session.Settings{PlacementCheck: session.CheckError, Kubeconfig: c.K.ValueString()}
	if !c.P.IsNull() {
		st.PlacementCheck = session.Check(c.P.ValueString())
	}
	s := session.New(st)
	resp.ResourceData, resp.DataSourceData = s, s
}
func (tp) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{nodepool.New, quotatree.New, trainingjob.New}
}
func (tp) DataSources(context.Context) []func() datasource.DataSource { return nil }

var factories = map[string]func() (tfprotov6.ProviderServer, error){"gpuplan": providerserver.NewProtocol6WithError(tp{})}
