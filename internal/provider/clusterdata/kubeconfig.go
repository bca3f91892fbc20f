package clusterdata

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// Times that a kubeconfig can be for, which are the service's, and what it is for without one.
const (
	shortest = 15 * time.Minute
	longest  = 72 * time.Hour
	standard = time.Hour
)

// NewKubeconfig returns the ephemeral resource.
func NewKubeconfig() ephemeral.EphemeralResource { return &kubeconfig{} }

type kubeconfig struct{ session *session.Session }

type kubeconfigModel struct {
	Duration             duration.Value `tfsdk:"duration"`
	PrivateAddress       types.Bool     `tfsdk:"private_address"`
	Content              types.String   `tfsdk:"content"`
	Host                 types.String   `tfsdk:"host"`
	ClusterCACertificate types.String   `tfsdk:"cluster_ca_certificate"`
	ClientCertificate    types.String   `tfsdk:"client_certificate"`
	ClientKey            types.String   `tfsdk:"client_key"`
	Token                types.String   `tfsdk:"token"`
	Expiration           types.String   `tfsdk:"expiration"`
}

func (k *kubeconfig) Metadata(_ context.Context, req ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_kubeconfig"
}

func (k *kubeconfig) Configure(_ context.Context, req ephemeral.ConfigureRequest, resp *ephemeral.ConfigureResponse) {
	k.session = session.Of(req.ProviderData, &resp.Diagnostics)
}

func (k *kubeconfig) Schema(_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	secret := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true, Sensitive: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Access to the Kubernetes API of the ACK cluster that the provider is configured for, which ends by itself. It is in no state and in no plan file. " +
			"It has the rights that the access key's user has in the cluster.\n\n" +
			"Each plan and each apply gets one of its own: `duration` has to be as long as the longest of them.",
		Attributes: map[string]schema.Attribute{
			"duration": schema.StringAttribute{
				MarkdownDescription: "How long the access lasts, from `15m` to `72h`. Default `1h`.", Optional: true, CustomType: duration.Type{},
				Validators: []validator.String{duration.Between{Least: shortest, Most: longest}},
			},
			"private_address": schema.BoolAttribute{
				MarkdownDescription: "Use the API server's address inside of the VPC. Default `false`.", Optional: true,
			},
			"content":                secret("The kubeconfig, for `kubeconfig_content` of a provider block."),
			"host":                   text("URL of the API server."),
			"cluster_ca_certificate": text("Certificate of the authority that the API server is known by, PEM."),
			"client_certificate":     text("Certificate of the user, PEM; null without one."),
			"client_key":             secret("Key of the user's certificate, PEM; null without one."),
			"token":                  secret("Token of the user; null without one."),
			"expiration":             text("When the access ends, RFC 3339."),
		},
	}
}

// Open asks the service for a kubeconfig.
func (k *kubeconfig) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	var m kubeconfigModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	access, err := k.get(ctx, m)
	if err == nil {
		err = m.set(access)
	}
	if err != nil {
		resp.Diagnostics.AddError("There is no kubeconfig", session.Sentence(err))
		return
	}
	resp.Diagnostics.Append(resp.Result.Set(ctx, m)...)
}

func (k *kubeconfig) get(ctx context.Context, m kubeconfigModel) (acs.Kubeconfig, error) {
	client, err := k.session.ACS()
	if err != nil {
		return acs.Kubeconfig{}, err
	}
	lasts := standard
	if !m.Duration.IsNull() {
		if lasts, err = m.Duration.Length(); err != nil {
			return acs.Kubeconfig{}, fmt.Errorf("duration: %w", err)
		}
	}
	return client.UserKubeconfig(ctx, k.session.ClusterID, int64(lasts.Minutes()), m.PrivateAddress.ValueBool())
}

// set fills in what a kubeconfig says.
func (m *kubeconfigModel) set(access acs.Kubeconfig) error {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(access.Config))
	if err != nil {
		return fmt.Errorf("the service has sent a kubeconfig that cannot be used: %w", err)
	}
	text := func(s string) types.String {
		if s == "" {
			return types.StringNull()
		}
		return types.StringValue(s)
	}
	m.Content, m.Host, m.Expiration = types.StringValue(access.Config), types.StringValue(config.Host), text(access.Expiration)
	m.ClusterCACertificate = text(string(config.CAData))
	m.ClientCertificate, m.ClientKey, m.Token = text(string(config.CertData)), text(string(config.KeyData)), text(config.BearerToken)
	return nil
}
