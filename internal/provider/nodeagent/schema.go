package nodeagent

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
)

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The gpuplan node agent: on every GPU node it looks at the GPUs and the links between them, and publishes what it sees (`GPUNode`), for the scheduler and for the plan.\n\n" +
			"It runs on nodes with the label `ack.node.gpu.schedule`, also on those that join later. Objects that someone deleted or changed show up as drift and are restored.",
		Attributes: map[string]schema.Attribute{
			"image": schema.StringAttribute{
				MarkdownDescription: "Container image of the agent.",
				Required:            true,
				Validators:          []validator.String{program.ImageName()},
			},
			"interval": duration.Optional(
				"How often the agent looks at the GPUs, as in `10s`, at most two minutes. Default: the agent's own, 30 seconds.",
				time.Second, contract.NodeAgentLongestInterval),
			"metrics_port": schema.Int64Attribute{
				MarkdownDescription: fmt.Sprintf("Port for metrics; not %d, on which the agent answers its liveness probe. Default 0: none. The Helm chart has 9400.", contract.NodeAgentHealthPort),
				Optional:            true, Computed: true, Default: int64default.StaticInt64(0),
				Validators: []validator.Int64{int64validator.Between(0, 65535), int64validator.NoneOf(contract.NodeAgentHealthPort)},
			},
			"device_plugins": schema.BoolAttribute{
				MarkdownDescription: "Whether the agent is the device plugin of its node, so that each container gets exactly the GPUs of its pod's allocation record, or does not start. " +
					"It then runs as root with folders of the host, and may read and annotate pods. It leaves alone what another plugin on the node offers, such as ACK's. " +
					"It needs containerd 1.7 or newer, or CRI-O. Default `false`: another plugin gives containers their GPUs, and chooses them by itself.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			},
			"mps": schema.BoolAttribute{
				MarkdownDescription: "Whether the agent keeps containers to their parts of GPUs, memory and cores, by NVIDIA's MPS; a container whose part cannot be enforced does not start. It needs `device_plugins`, " +
					"GPUs of compute capability 7.0 (Volta) or newer that are not split into MIG devices, and no other user of MPS on the node, such as cGPU. The agent is then privileged, with the processes of the host. " +
					"[This page](https://github.com/gpuplan/terraform-provider-gpuplan/blob/main/docs/node-agent.md#parts-of-gpus) says what MPS keeps apart, and what not. Default `false`: parts of GPUs are accounted for, and nobody enforces them, unless another program of the node does. " +
					"To turn it off again, drain the nodes first: daemons of MPS that run then stay.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				Validators: []validator.Bool{needsDevicePlugins{}},
			},
			"feature_labels": schema.BoolAttribute{
				MarkdownDescription: "Whether the agent labels its node as NVIDIA's GPU feature discovery does (`nvidia.com/gpu.product`, `nvidia.com/gpu.memory` and so on), " +
					"where that does not run. Default `true`. With `false` the labels that agents have written go.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			},
		},
	}
}

// needsDevicePlugins refuses to enforce what another program gives to containers.
type needsDevicePlugins struct{}

func (needsDevicePlugins) Description(context.Context) string {
	return "true only with device_plugins = true"
}

func (v needsDevicePlugins) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (needsDevicePlugins) ValidateBool(ctx context.Context, req validator.BoolRequest, resp *validator.BoolResponse) {
	var plugins types.Bool
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("device_plugins"), &plugins)...)
	if req.ConfigValue.ValueBool() && !plugins.IsUnknown() && !plugins.ValueBool() {
		resp.Diagnostics.AddAttributeError(req.Path, "MPS needs the device plugin",
			"Only an agent that gives containers their parts of GPUs can keep them to these: set device_plugins = true, or leave mps out.")
	}
}
