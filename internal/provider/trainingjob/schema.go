package trainingjob

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

const description = "A distributed training job: a PyTorchJob or an MPIJob of the Kubeflow training operator, a JobSet, a TrainJob of Kubeflow Trainer, or a Job of Kubernetes, whose members run all together or not at all.\n\n" +
	"The plan checks that the whole gang fits, and names the node and the GPUs of every member; the gpuplan scheduler then places it exactly so. " +
	"Give the job the capacity of the pools it may use, `pools = [gpuplan_node_pool.NAME.capacity]`: the check then works before the pool exists.\n\n" +
	"A job runs to completion. When it has finished, or was cleaned up after it finished, a plan has nothing to do; change `triggers` to run it again. " +
	"A job that vanished before it finished is created again. Most changes replace the job, because a running gang cannot change, and a new job is planned without what the old one holds, whatever its name; " +
	"`suspend`, `arena_compatible`, `tensorboard`, the clean-up settings, `labels` and `annotations` change in place, and so do `backoff_limit` and `active_deadline_seconds` unless the job is a JobSet or a TrainJob.\n\n" +
	"A plan counts on Terraform's usual order, in which the old job is deleted first; Terraform does not tell providers of another. With `create_before_destroy` the apply of a new " +
	"`name` or `namespace` ends with \"inconsistent final plan\" before either job has changed, unless the new job has the same place beside the old one. Leave `pools` out of such a job " +
	"(its place is then known after apply, beside the old one), or declare the new job as another resource and remove the old one afterwards."

func (r *trainingJob) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	all := schemas(jobAttributes)
	for _, a := range containerAttributes {
		all[a.name] = a.schema
	}
	all["timeouts"] = duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Delete: true,
		CreateDescription: "How long to wait for `wait_for`; default `20m`.",
		UpdateDescription: "How long a resumed job may take to run again; default `20m`.",
		DeleteDescription: "How long the pods may take to end; default `10m`.",
	}))
	resp.Schema = schema.Schema{Version: schemaVersion, MarkdownDescription: description, Attributes: all}
}
