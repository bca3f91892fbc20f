package instancetypes

import (
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// facts are what the catalogue knows of one instance type.
type facts struct {
	Name           string             `tfsdk:"name"`
	Family         string             `tfsdk:"family"`
	VCPU           int64              `tfsdk:"vcpu"`
	MemoryGiB      float64            `tfsdk:"memory_gib"`
	GPUs           int64              `tfsdk:"gpus"`
	GPUModel       string             `tfsdk:"gpu_model"`
	GPUMemoryGiB   int64              `tfsdk:"gpu_memory_gib"`
	GPUMemoryMiB   int64              `tfsdk:"gpu_memory_mib"`
	Wiring         string             `tfsdk:"wiring"`
	Links          []string           `tfsdk:"links"`
	NVLinkGBps     float64            `tfsdk:"nvlink_gbps"`
	NVSwitch       bool               `tfsdk:"nvswitch"`
	PCIeGeneration int64              `tfsdk:"pcie_generation"`
	NetworkGbps    float64            `tfsdk:"network_gbps"`
	ERDMADevices   int64              `tfsdk:"erdma_devices"`
	ERDMAGbps      float64            `tfsdk:"erdma_gbps"`
	Allocatable    map[string]amounts `tfsdk:"allocatable"`
	Source         string             `tfsdk:"source"`
	Date           string             `tfsdk:"date"`
	Note           string             `tfsdk:"note"`
}

// amounts are what a fresh node offers to pods in one mode.
type amounts struct {
	MilliCPU  int64            `tfsdk:"milli_cpu"`
	MemoryMiB int64            `tfsdk:"memory_mib"`
	Pods      int64            `tfsdk:"pods"`
	Extended  map[string]int64 `tfsdk:"extended"`
}

// factsOf looks an instance type of the catalogue up there.
func factsOf(it catalog.InstanceType) facts {
	machine, _ := catalog.Machine(it.Name)
	status := contract.StatusOf(machine)
	f := facts{
		Name: it.Name, Family: it.Family, VCPU: int64(it.VCPU), MemoryGiB: it.MemoryGiB,
		GPUs: int64(it.GPUs), GPUModel: it.GPUModel, GPUMemoryGiB: int64(it.GPUMemoryGiB), GPUMemoryMiB: it.GPUMemoryMiB,
		Wiring: it.Wiring, Links: status.Links, NVLinkGBps: machine.NVLinkGBps, NVSwitch: machine.NVSwitch, PCIeGeneration: int64(machine.PCIeGeneration),
		NetworkGbps: it.NetworkGbps, ERDMADevices: int64(it.ERDMADevices), ERDMAGbps: it.ERDMAGbps,
		Allocatable: map[string]amounts{}, Source: it.Source, Date: it.Date, Note: it.Note,
	}
	for _, mode := range catalog.Modes() {
		q, err := catalog.Allocatable(it, mode.Name, catalog.Setup{})
		if err != nil {
			continue // it is one of the catalogue's own
		}
		maps.DeleteFunc(q.Extended, func(_ string, count int64) bool { return count == 0 })
		f.Allocatable[mode.Name] = amounts{MilliCPU: q.MilliCPU, MemoryMiB: q.MemoryBytes >> 20, Pods: q.Pods, Extended: q.Extended}
	}
	return f
}

// attributes describe [facts].
func attributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	count := func(description string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	amount := func(description string) schema.Attribute {
		return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
	}
	return map[string]schema.Attribute{
		"name":           text("Name, `ecs.gn6v-c10g1.20xlarge`."),
		"family":         text("Instance family, `ecs.gn6v`."),
		"vcpu":           count("Virtual CPUs."),
		"memory_gib":     amount("Main memory in GiB."),
		"gpus":           count("GPUs."),
		"gpu_model":      text("Product name of the GPUs."),
		"gpu_memory_gib": count("Memory of each GPU in GiB, as the vendor sells it."),
		"gpu_memory_mib": count("Memory of each GPU in MiB, as the driver reports it, which is what pods can have."),
		"wiring":         text("Name of the link graph between the GPUs, for example `dgx1-v100`; `dgx1-v100:0,1` is a slice of it."),
		"links": schema.ListAttribute{
			MarkdownDescription: "Rows of the link matrix as `nvidia-smi topo -m` prints it.", Computed: true, ElementType: types.StringType,
		},
		"nvlink_gbps":     amount("Bandwidth of one NVLink in GB/s, one direction; 0 without NVLinks."),
		"nvswitch":        schema.BoolAttribute{MarkdownDescription: "Whether NVSwitches join the GPUs.", Computed: true},
		"pcie_generation": count("Generation of the PCIe links."),
		"network_gbps":    amount("Base bandwidth of the network in Gbit/s; 0 when it is not documented."),
		"erdma_devices":   count("eRDMA devices; 0 for none."),
		"erdma_gbps":      amount("Bandwidth of eRDMA in Gbit/s; 0 when it is not documented."),
		"allocatable": schema.MapNestedAttribute{
			MarkdownDescription: "What a fresh node offers to pods, by the mode in which it offers its GPUs. A node that exists tells its own numbers.", Computed: true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"milli_cpu":  count("CPU in thousandths of a core."),
				"memory_mib": count("Main memory in MiB."),
				"pods":       count("Number of pods."),
				"extended": schema.MapAttribute{
					MarkdownDescription: "GPUs, parts of GPUs and devices by the name of their resource, such as `aliyun.com/gpu` or `aliyun/erdma`.",
					Computed:            true, ElementType: types.Int64Type,
				},
			}},
		},
		"source": text("Where the numbers are from."),
		"date":   text("When the facts were taken from the source."),
		"note":   text("What of the facts is inferred; empty for nothing."),
	}
}

// factTypes are the types of [attributes].
func factTypes() map[string]attr.Type {
	of := map[string]attr.Type{}
	for name, a := range attributes() {
		of[name] = a.GetType()
	}
	return of
}
