package nodeagent

import (
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

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
		},
	}
}
