package scheduler

import (
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/program"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The gpuplan scheduler: a kube-scheduler that places gangs as a whole, picks GPUs by the links between them, and keeps quotas. " +
			"It runs beside the cluster's own scheduler and places the pods that name it, as those of `gpuplan_training_job` do, and those that are sent to it (`route_pods`). It needs Kubernetes 1.34 or newer, which a plan checks.\n\n" +
			"It also installs the controller of the job queue, in which jobs with `queue = true` wait for their quota, and the kinds `ElasticQuotaTree`, `PodGroup`, `Queue`, `QueueUnit` and `GangReservation` where they are missing. A quota tree of the same configuration should name the scheduler in `depends_on`. " +
			"Objects that someone deleted or changed show up as drift and are restored. A delete keeps a kind of which others have objects, and names them in a warning; an install, here or in another configuration, takes it over.",
		Attributes: map[string]schema.Attribute{
			"image": schema.StringAttribute{
				MarkdownDescription: "Container image of the scheduler.",
				Required:            true,
				Validators:          []validator.String{program.ImageName()},
			},
			"replicas": schema.Int64Attribute{
				MarkdownDescription: "Number of schedulers, and of queue controllers, 1 to 10; one of each leads, the others take over when it fails. Default 2.",
				Optional:            true, Computed: true, Default: int64default.StaticInt64(deploy.DefaultReplicas),
				Validators: []validator.Int64{int64validator.Between(1, 10)},
			},
			"log_level": schema.Int64Attribute{
				MarkdownDescription: "Verbosity of the log, 0 (default) to 10, as `-v` of kube-scheduler. Why a gang waits is told by its events and `kubectl gpuplan why`, whatever the verbosity.",
				Optional:            true, Computed: true, Default: int64default.StaticInt64(0),
				Validators: []validator.Int64{int64validator.Between(0, 10)},
			},
			"port": schema.Int64Attribute{
				MarkdownDescription: "Port for health and metrics: of the scheduler by HTTPS, of the queue controller by HTTP. On the next one the scheduler answers what `kubectl gpuplan` does. Default 0: none. The Helm chart has 10259.",
				Optional:            true, Computed: true, Default: int64default.StaticInt64(0),
				Validators: []validator.Int64{int64validator.Between(0, 65534)}, // explain's port is the next one
			},
			"unreachable_grace": duration.Optional(
				"How long a node may be unreachable before the members of gangs on it are failed, so that their jobs recreate them elsewhere, as in `2m`. Default: the scheduler's own, 1 minute.",
				time.Second, 24*time.Hour),
			"reserve_after": duration.Optional(
				"How long a gang waits before capacity is reserved for it, so that smaller jobs cannot pass it for ever, as in `10m`. GPUs idle for a reservation, so it should be longer than most short jobs take. Default: the scheduler's own, 5 minutes.",
				time.Second, 30*24*time.Hour),
			"stale_after": duration.Optional(
				"How long a gang that has lost members, and runs with fewer than it needs, may find no place for others before the whole gang is evicted, as in `30m`. Its job makes its members again, and it waits for a place as a whole, while others use its GPUs. Default: never.",
				time.Second, 30*24*time.Hour),
			"route_pods": schema.BoolAttribute{
				MarkdownDescription: "Send pods to this scheduler that ask for GPUs, or carry the labels of a gang, and name no scheduler, so that manifests and `arena` commands work as they are. Default `true`.\n\n" +
					"A mutating admission policy does it (Kubernetes 1.36, or 1.34 and 1.35 with its feature gate; the plan warns where the API server has none). " +
					"It leaves alone pods that name another scheduler or a node, those of a DaemonSet or in `kube-system`, and pods and namespaces labelled `gpuplan.dev/route=false`. " +
					"It is in force only while the scheduler is installed: it comes last, and goes first.",
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			},
			"scheduler_name": schema.StringAttribute{
				MarkdownDescription: "What pods write into `schedulerName`.", Computed: true,
			},
		},
	}
}
