package gpunodes

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/labels"
)

func (d *gpuNodes) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The nodes of the cluster that have GPUs: their hardware as the node agent publishes it, or, where none runs, as the catalogue knows it; " +
			"the health of each GPU; and what the planner of the plan and of the scheduler finds free. Terraform reads it in the plan.",
		Attributes: map[string]schema.Attribute{
			"pool": schema.StringAttribute{
				MarkdownDescription: "Name of the node pool whose nodes to list, or ACK's ID of a pool that is not this provider's. Default: the nodes of all pools and of none.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"label_selector": schema.StringAttribute{
				MarkdownDescription: "Labels that the nodes must have, as for `kubectl get -l`: `\"team=research,env!=test\"`.",
				Optional:            true,
				Validators:          []validator.String{labelSelector{}},
			},
			"nodes": schema.ListNestedAttribute{
				MarkdownDescription: "The nodes, in the order in which equal nodes are filled: by pool, age and name.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: nodeAttributes()},
			},
		},
	}
}

func nodeAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name":          computed("Name of the node."),
		"pool":          computed("Name of its node pool, or ACK's ID of a pool that is not this provider's; null for a node of no pool."),
		"instance_type": computed("Its instance type; null when no label says it."),
		"zone":          computed("Its zone; null when no label says it."),
		"mode":          computed("How it offers its GPUs: `default`, `topology`, `share`, `cgpu`, `core_mem`, `mps`, `mig` or `disabled`."),
		"ready":         flag("Whether its kubelet says that it is ready."),
		"schedulable":   flag("Whether it takes new pods that tolerate its `taints`: `false` while it is cordoned."),
		"taints":        list("Taints that keep pods away, `KEY=VALUE:EFFECT`. Those of a node that has only just joined, which go by themselves, are left out."),
		"problem":       computed("Why none of its GPUs can be used at the moment; null when they can. Of single GPUs see `gpus`."),
		"gpus": schema.ListNestedAttribute{
			MarkdownDescription: "Its GPUs.", Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"index":      number("Index as `nvidia-smi` numbers it."),
				"uuid":       computed("UUID; null where no node agent publishes it."),
				"model":      computed("Product name; null when nobody knows it."),
				"memory_gib": number("Memory in whole GiB, as the driver reports it, without what the device plugin keeps for the driver; 0 when nobody knows it."),
				"healthy":    flag("Whether jobs may be placed on it."),
				"reasons":    list("What speaks against it, the worst first. A GPU that is still healthy may be under suspicion."),
			}},
		},
		"topology": schema.SingleNestedAttribute{
			MarkdownDescription: "The links between its GPUs.", Computed: true,
			Attributes: map[string]schema.Attribute{
				"published":       flag("Whether a node agent publishes the hardware. Otherwise it is what the catalogue says of the instance type, or counted from what the node offers, without links."),
				"wiring":          computed("Name of the link graph, for example `dgx1-v100`; null for one without a name."),
				"links":           list("Rows of the link matrix as `nvidia-smi topo -m` prints it, in the order of `gpus`: `X NV1 NV2 SYS`."),
				"pcie_links":      list("The PCIe paths that are hidden under NVLinks, in the same form; empty when not known."),
				"nvlink_gbps":     schema.Float64Attribute{MarkdownDescription: "Bandwidth of one NVLink in GB/s, one direction; 0 without NVLinks.", Computed: true},
				"nvswitch":        flag("Whether NVSwitches join its GPUs."),
				"nvlink_domain":   computed("NVLink domain that it shares with other nodes; null for none."),
				"pcie_generation": number("Generation of its PCIe links; 0 when not known."),
				"nics": schema.ListNestedAttribute{
					MarkdownDescription: "Its network devices.", Computed: true,
					NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
						"name":  computed("Name of the device."),
						"links": computed("Path to each GPU, in the order of `gpus`: `PIX SYS`; null when not known."),
						"port":  computed("State of its port, `ACTIVE` when it can be used; null when not known."),
						"gid": computed("Index of the port's first GID of RoCE v2, for `NCCL_IB_GID_INDEX`; `none` when it has none, so that RDMA reaches nobody; " +
							"null when not known."),
						"mtu_bytes": number("MTU of its network interface in bytes; null when not known."),
						"driver":    computed("Its kernel module, such as `erdma`; null when not known."),
						"redirected_by": list("PCI addresses of bridges that send what it and GPUs below the same switch send each other over the CPU (Access Control Services), which makes " +
							"GPUDirect RDMA slow; empty when there are none, or nobody knows."),
					}},
				},
				"lockable_kib":   number("How much memory containers without the capability `IPC_LOCK` may lock, in KiB, which RDMA needs; null when there is no limit, or it is not known."),
				"driver_version": computed("Version of the NVIDIA driver; null when not known."),
			},
		},
		"allocatable": amountsAttribute("What it offers to pods when none is on it: healthy GPUs alone count."),
		"free":        amountsAttribute("What is left of that beside the pods on it."),
	}
}

func amountsAttribute(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: description, Computed: true,
		Attributes: map[string]schema.Attribute{
			"gpus":             number("Whole GPUs, in the modes `default` and `topology`; 0 in others."),
			"gpu_memory_gib":   number("GPU memory in GiB, over all GPUs, in the modes whose GPUs are shared; 0 in others."),
			"gpu_core_percent": number("Compute in percent of a GPU, over all GPUs, in mode `core_mem`; 0 in others."),
			"milli_cpu":        number("CPU in thousandths of a core."),
			"memory_mib":       number("Main memory in MiB."),
			"pods":             number("Number of pods."),
			"extended": schema.MapAttribute{
				MarkdownDescription: "Other resources by name, such as `aliyun/erdma`.", Computed: true, ElementType: types.Int64Type,
			},
		},
	}
}

func computed(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
}

func flag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Computed: true}
}

func list(description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
}

// labelSelector accepts what kubectl accepts as a label selector.
type labelSelector struct{}

func (labelSelector) Description(context.Context) string { return "a label selector of Kubernetes" }

func (v labelSelector) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (labelSelector) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := labels.Parse(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid label selector",
			fmt.Sprintf("%s cannot be used: %s. Write it as for kubectl get -l, as in \"team=research,env!=test\".", req.ConfigValue, err))
	}
}
