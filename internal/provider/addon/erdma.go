package addon

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/erdma"
)

// NewERDMAController returns the resource of the controller of eRDMA devices.
func NewERDMAController() resource.Resource {
	return newResource(&addon[erdmaController, *erdmaController]{schema: erdmaSchema, only: contract.ERDMAController, rules: erdmaRules},
		"gpuplan_erdma_controller", "eRDMA controller")
}

// erdmaController is the controller in Terraform's terms.
type erdmaController struct {
	typed

	Driver     types.String `tfsdk:"driver"`
	AllDevices types.Bool   `tfsdk:"allocate_all_devices"`
}

func (m *erdmaController) fields() []field {
	return []field{
		word("driver", &m.Driver, "agent", "preferDriver"),
		boolean("allocate_all_devices", &m.AllDevices, erdma.AllDevices...),
	}
}

func (m *erdmaController) name() types.String { return types.StringValue(contract.ERDMAController) }
func (m *erdmaController) settings() jsontypes.Normalized {
	return settingsOf(m.fields(), m.ExtraConfig)
}
func (m *erdmaController) take(is config) { takeOver(m.fields(), &m.ExtraConfig, is) }
func (m *erdmaController) read(is config) { readAll(m.fields(), &m.ExtraConfig, is) }
func (m *erdmaController) place(setting []string) (at path.Path, called string) {
	return placeIn(m.fields(), setting)
}

// erdmaRules looks once more at what may have been unknown before.
func erdmaRules(_ context.Context, _ *acs.Client, _ string, plan *erdmaController) diag.Diagnostics {
	return apart(plan.fields()).check(plan.ExtraConfig.ValueString())
}

// checkClusterType refuses the controller of eRDMA devices in clusters that are not managed (ACK: "Submit eRDMA-accelerated
// PyTorch distributed training jobs by using Arena", restrictions). Where the service does not say what a cluster is, it
// refuses nothing.
func (r *addon[M, P]) checkClusterType(ctx context.Context) (diags diag.Diagnostics) {
	cluster, err := r.Session.Record(ctx)
	if err != nil || cluster.Type == "" || cluster.Type == acs.ManagedCluster {
		return nil
	}
	diags.AddAttributeError(r.atName(), "eRDMA needs an ACK managed cluster", fmt.Sprintf(
		"The add-on %s works in ACK managed clusters, and cluster %s is of the type %s. Migrate it to a managed cluster, or remove this resource, and rdma from the roles of jobs.",
		contract.ERDMAController, cluster.ID, cluster.Type))
	return diags
}

func erdmaSchema(ctx context.Context) schema.Schema {
	return schemaOf(ctx, "The add-on `ack-erdma-controller` (ACK eRDMA Controller in the console), which sets up the eRDMA devices of nodes that join after it, and offers them as `aliyun/erdma`. "+
		"Name it in `depends_on` of the node pools. The plan refuses it in clusters that are not ACK managed clusters. Clusters with Terway must keep Terway off those network interfaces, by `eni_tag_filter` in the ConfigMap `eni-config`; a plan warns where that is missing.", map[string]schema.Attribute{
		"driver": schema.StringAttribute{
			MarkdownDescription: "Driver of the devices on the nodes (`preferDriver`): `default`, `compat` (as RDMA over converged Ethernet) or `ofed`, which is the one for GPUs and NCCL.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("default", "compat", "ofed")},
		},
		"allocate_all_devices": schema.BoolAttribute{
			MarkdownDescription: "Whether a pod gets all eRDMA devices of its node. Otherwise it gets one, by NUMA node, which takes node pools with `cpu_policy = \"static\"`: the plan refuses others. Left out it is what the add-on has, `false` in one that is installed.",
			Optional:            true,
		},
		"extra_config": extraConfig("{ agent = { jumboFrameMTU = 8500 } }", new(erdmaController).fields()),
	})
}
