package addon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// NewERDMAController returns the resource of the controller of eRDMA devices.
func NewERDMAController() resource.Resource {
	return newResource(&addon[erdmaController, *erdmaController]{schema: erdmaSchema, only: contract.ERDMAController, visit: visitPools, rules: erdmaRules},
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
		boolean("allocate_all_devices", &m.AllDevices, "agent", "allocateAllDevices"),
	}
}

func (m *erdmaController) name() types.String { return types.StringValue(contract.ERDMAController) }
func (m *erdmaController) settings() jsontypes.Normalized {
	return settingsOf(m.fields(), m.ExtraConfig)
}
func (m *erdmaController) take(is config) { takeOver(m.fields(), &m.ExtraConfig, is) }
func (m *erdmaController) place(setting []string) (at path.Path, called string) {
	return placeIn(m.fields(), setting)
}

// byNUMANode tells whether the plan says that pods get one device, by NUMA node.
func (m *erdmaController) byNUMANode() bool {
	return !m.AllDevices.IsNull() && !m.AllDevices.IsUnknown() && !m.AllDevices.ValueBool()
}

// erdmaRules refuses one device by NUMA node where nodes do not pin CPUs, by which the device is chosen.
func erdmaRules(ctx context.Context, client *acs.Client, clusterID string, plan *erdmaController) diag.Diagnostics {
	diags := apart(plan.fields()).check(plan.ExtraConfig.ValueString())
	if !plan.byNUMANode() {
		return diags
	}
	pools, err := client.ListNodePools(ctx, clusterID)
	if err != nil {
		diags.AddError("Node pools cannot be listed", session.Sentence(err))
		return diags
	}
	var others []string
	for _, p := range pools {
		if !pins(p) && p.Status.Total > 0 && slices.ContainsFunc(p.ScalingGroup.InstanceTypes, hasERDMA) {
			others = append(others, p.Info.Name)
		}
	}
	return append(diags, notPinned(others)...)
}

// pins reports whether the nodes of a pool pin CPUs, whichever of the two settings says so.
func pins(p acs.NodePool) bool {
	kubelet := p.NodeConfig.Kubelet
	return p.KubernetesConfig.CPUPolicy == acs.CPUPolicyStatic || kubelet != nil && kubelet.CPUManagerPolicy == acs.CPUPolicyStatic
}

// visitPools says the same of pools of the walk that come or change.
func visitPools(walk *ledger.Ledger, plan *erdmaController) diag.Diagnostics {
	if !plan.byNUMANode() {
		return nil
	}
	return notPinned(walk.DevicesByNUMANode())
}

func notPinned(pools []string) (diags diag.Diagnostics) {
	if len(pools) > 0 {
		diags.AddAttributeError(path.Root("allocate_all_devices"), "CPU policy is not static", fmt.Sprintf(
			"allocate_all_devices is false: each pod gets the eRDMA device of its NUMA node, which takes nodes with the CPU policy static, and the nodes of these pools have eRDMA devices and another policy: %s. "+
				"Replace them by pools with cpu_policy = \"static\", since nodes get it when they join, or give pods all devices of their nodes with allocate_all_devices = true.", strings.Join(pools, ", ")))
	}
	return diags
}

// hasERDMA tells whether nodes of an instance type have eRDMA devices, as far as the catalogue knows.
func hasERDMA(instanceType string) bool {
	it, ok := catalog.Lookup(instanceType)
	return ok && it.ERDMADevices > 0
}

func erdmaSchema(ctx context.Context) schema.Schema {
	return schemaOf(ctx, "The add-on `ack-erdma-controller` (ACK eRDMA Controller in the console), which sets up the eRDMA devices of nodes that join after it, and offers them as `aliyun/erdma`. "+
		"Name it in `depends_on` of the node pools. Clusters with Terway must keep Terway off those network interfaces.", map[string]schema.Attribute{
		"driver": schema.StringAttribute{
			MarkdownDescription: "Driver of the devices on the nodes (`preferDriver`): `default`, `compat` (as RDMA over converged Ethernet) or `ofed`, which is the one for GPUs and NCCL.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("default", "compat", "ofed")},
		},
		"allocate_all_devices": schema.BoolAttribute{
			MarkdownDescription: "Whether a pod gets all eRDMA devices of its node. With `false` it gets one, by NUMA node, which takes node pools with `cpu_policy = \"static\"`: the plan refuses others.",
			Optional:            true,
		},
		"extra_config": extraConfig("{ agent = { jumboFrameMTU = 8500 } }", new(erdmaController).fields()),
	})
}
