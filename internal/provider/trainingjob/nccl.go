package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/nccl"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/assignment"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// ncclBytes is how much of the beginning of a log is read: NCCL says what it uses when a program sets it up.
const ncclBytes = 4 << 20

var (
	ncclType   = map[string]attr.Type{"network": types.StringType, "devices": types.ListType{ElemType: types.StringType}, "channels": types.ListType{ElemType: types.StringType}}
	ncclSchema = schema.SingleNestedAttribute{
		MarkdownDescription: fmt.Sprintf("What NCCL says that it uses, in the first %d MiB of the log of the first replica that has GPUs, the leading one before others, and of the launcher of an MPI job. "+
			"Null where it does not say, as without `NCCL_DEBUG=INFO` in the `env` (where `rdma_defaults` sets it) or the command of a role, "+
			"with an `NCCL_DEBUG_SUBSYS` without INIT, before the replica has started, and where the log is not to be had any more.", ncclBytes>>20),
		Computed: true,
		Attributes: map[string]schema.Attribute{
			"network": schema.StringAttribute{
				MarkdownDescription: "Over what it sends between nodes: `IB` is RDMA, eRDMA among it, `Socket` is TCP, of which a warning tells where replicas have an RDMA device. Anything else is a plugin of the image.",
				Computed:            true,
			},
			"devices": schema.ListAttribute{
				MarkdownDescription: "The devices for that: RDMA devices with port and link layer, such as `erdma_0:1/RoCE`, or network interfaces.",
				Computed:            true, ElementType: types.StringType,
			},
			"channels": schema.ListAttribute{
				MarkdownDescription: "The ways of its channels: `P2P/…` from GPU to GPU, over NVLink where they have one, `SHM/…` through the memory of the host, of which a warning tells where NVLinks join the GPUs of the job to a ring, `NET/…` over the network, with `/GDRDMA` where that reads and writes the memory of GPUs.",
				Computed:            true, ElementType: types.StringType,
			},
		},
	}
)

// ncclOf is what NCCL says that a job uses whose members are there, null where it does not say.
func ncclOf(ctx context.Context, at site, members []assignment.Model, diags *diag.Diagnostics) types.Object {
	none := types.ObjectNull(ncclType)
	spec, err := job.Parse(at.obj)
	if err != nil || !slices.ContainsFunc(spec.RoleNames(), spec.TellsNCCL) {
		return none
	}
	pods, err := at.seen.Pods(ctx, spec.Namespace, podLabels(spec))
	if err != nil {
		return none // which is said of its placement
	}
	pods = current(pods)
	leadFirst(pods)
	first := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
		role, _ := replica(p)
		return spec.TellsNCCL(role)
	})
	if first < 0 {
		return none
	}
	pod := pods[first]
	of, ok := logs(pod)
	if !ok {
		return none
	}
	use, err := readNCCL(ctx, at.client, pod, of)
	if use.Network == "" && len(use.Channels) == 0 {
		if err != nil && !errors.Is(err, context.Canceled) {
			diags.AddAttributeWarning(path.Root("nccl"), "Log cannot be read",
				fmt.Sprintf("What NCCL uses is not known of job %s: the log of pod %s/%s cannot be read. %s", spec.ID(), spec.Namespace, pod.Name, session.Sentence(err)))
		}
		return none
	}
	if use.Network == nccl.Socket && spec.AsksForRDMA() {
		diags.AddAttributeWarning(path.Root("nccl"), "Job does not use RDMA", fmt.Sprintf("Replicas of job %s have an RDMA device, but NCCL sends over TCP, as the log of pod %s/%s says. %s",
			spec.ID(), spec.Namespace, pod.Name, adviceOnRDMA(spec, pod)))
	}
	if node := linked(members); node != "" && slices.ContainsFunc(use.Channels, func(way string) bool { return strings.HasPrefix(way, "SHM/") }) {
		diags.AddAttributeWarning(path.Root("nccl"), "Job does not use NVLink", fmt.Sprintf("The GPUs of job %s on node %s have a ring of NVLinks, but NCCL sends through the memory of the host, as the log of pod %s/%s says. "+
			"Between pods it uses NVLink only with host_ipc, host_network and host_pid, and without shared_memory; within one look for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL in its env and image.", spec.ID(), node, spec.Namespace, pod.Name))
	}
	return types.ObjectValueMust(ncclType, map[string]attr.Value{"network": textOrNull(use.Network), "devices": listValue(use.Devices), "channels": listValue(use.Channels)})
}

// adviceOnRDMA is what to look at where a replica of a job that asks for RDMA devices sends over TCP.
func adviceOnRDMA(spec job.Spec, pod *corev1.Pod) string {
	if role, _ := replica(pod); !spec.Late(role) && !spec.Roles[role].RDMA {
		return fmt.Sprintf("That one has none, and NCCL needs one in each: set roles[%q].rdma to true.", role)
	}
	return "Look whether the image has the user-space driver of the device (`ibv_devinfo` in the pod shows it, with PORT_ACTIVE), and what the lines of the log with NET/IB say."
}

// linked is a node on which NVLinks join the GPUs of a job to a ring, "" for none, or where it has several GPUs on another that they do not.
func linked(members []assignment.Model) (node string) {
	gpus := map[string]int{}
	for _, m := range members {
		gpus[m.Node] += len(m.GPUs)
	}
	for _, m := range members {
		switch {
		case gpus[m.Node] < 2:
		case m.NVLinkRings == 0:
			return ""
		case node == "":
			node = m.Node
		}
	}
	return node
}

// readNCCL reads the beginning of a log.
func readNCCL(ctx context.Context, client *kube.Client, pod *corev1.Pod, of corev1.PodLogOptions) (nccl.Use, error) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	of.LimitBytes = ptr.To[int64](ncclBytes)
	stream, err := client.Typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &of).Stream(ctx)
	if err != nil {
		return nccl.Use{}, err
	}
	defer func() { _ = stream.Close() }()
	return nccl.Read(stream)
}
