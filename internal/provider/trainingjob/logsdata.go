package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// mostLines is how many lines of each log can be asked for.
const mostLines = 1000

// NewLogs returns the data source: the ends of the logs of a job.
func NewLogs() datasource.DataSource { return &jobLogs{session.DataSource{Type: "gpuplan_job_logs"}} }

type jobLogs struct{ session.DataSource }

type logsModel struct {
	ID       types.String  `tfsdk:"id"`
	Lines    types.Int64   `tfsdk:"lines"`
	Replicas []replicaLogs `tfsdk:"replicas"`
}

type replicaLogs struct {
	Replica string       `tfsdk:"replica"`
	Pod     string       `tfsdk:"pod"`
	Node    types.String `tfsdk:"node"`
	Phase   string       `tfsdk:"phase"`
	Log     types.String `tfsdk:"log"`
}

func (d *jobLogs) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The ends of the logs of a training job, one for each replica. Name the job's resource in `depends_on`, so that Terraform looks after it has created or replaced the job.\n\n" +
			"What is read is in the state, as everything that a data source reads: leave it to programs that write nothing secret. Of a job that fails while an apply waits for it, the error shows the end of the log, and stores nothing.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "Namespace and name of the job, `gpuplan_training_job.NAME.id`. A job that the cluster does not have has no replicas.",
				Required:            true, Validators: []validator.String{jobID{}},
			},
			"lines": schema.Int64Attribute{
				MarkdownDescription: fmt.Sprintf("How many lines of each log to read, 1 to 1,000; default %d. Lines are cut after %d characters.", logLines, lineLength),
				Optional:            true, Validators: []validator.Int64{int64validator.Between(1, mostLines)},
			},
			"replicas": schema.ListNestedAttribute{
				MarkdownDescription: "The replicas that have pods, the leading one first. Of one whose pod was made again it is the newest.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"replica": text("Role and index, `worker-3`."),
					"pod":     text("Name of the pod."),
					"node":    text("Node that it runs on; null before it has one."),
					"phase":   text("Where the pod stands: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`."),
					"log": schema.StringAttribute{
						MarkdownDescription: "The last lines that its program wrote; of one that is to be started again those before it ended. Null before it has started, and where the log cannot be read, which is a warning.",
						Computed:            true, Sensitive: true,
					},
				}},
			},
		},
	}
}

// Read looks for the pods of the job of either framework.
func (d *jobLogs) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m logsModel
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	client, err := d.Session.Kube()
	var pods []*corev1.Pod
	if err == nil {
		pods, err = d.pods(ctx, m.ID.ValueString())
	}
	if err != nil {
		resp.Diagnostics.AddError("Logs cannot be read", session.Unread(err))
		return
	}
	lines := int64(logLines)
	if !m.Lines.IsNull() {
		lines = m.Lines.ValueInt64()
	}
	m.Replicas = []replicaLogs{}
	for _, pod := range pods {
		r := replicaLogs{Replica: memberName(pod), Pod: pod.Name, Phase: string(pod.Status.Phase)}
		if pod.Spec.NodeName != "" {
			r.Node = types.StringValue(pod.Spec.NodeName)
		}
		var more diag.Diagnostics
		r.Log, more = logOf(ctx, client, pod, lines)
		resp.Diagnostics.Append(more...)
		m.Replicas = append(m.Replicas, r)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// pods are those of the job, the leading role's first.
func (d *jobLogs) pods(ctx context.Context, id string) (pods []*corev1.Pod, err error) {
	seen, err := d.Session.Cluster()
	if err != nil {
		return nil, err
	}
	namespace, name, _ := parseID(id)
	for _, framework := range job.Frameworks() {
		if framework == job.TrainJob {
			continue // its pods are those of a JobSet
		}
		if framework == job.Batch && len(pods) > 0 {
			break // a Job of that name is another one
		}
		found, err := seen.Pods(ctx, namespace, podLabels(job.Spec{Name: name, Framework: framework}))
		if err != nil {
			return nil, fmt.Errorf("pods of job %s: %w", id, err)
		}
		pods = append(pods, current(found)...)
	}
	leadFirst(pods)
	return pods, nil
}

// leadFirst sorts the replicas of a job, the leading role's first.
func leadFirst(pods []*corev1.Pod) {
	leads := func(p *corev1.Pod) int {
		if role, _ := replica(p); slices.Contains([]string{job.MPI.Roles()[0], job.PyTorch.Roles()[0]}, role) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return cmp.Or(cmp.Compare(leads(a), leads(b)), compareReplicas(a, b)) })
}

// logs is which log of a pod's first container there is: of one that is to be started again that of before. ok is false where it has
// none yet.
func logs(pod *corev1.Pod) (of corev1.PodLogOptions, ok bool) {
	container := pod.Spec.Containers[0].Name
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container })
	if at < 0 {
		return of, false
	}
	status := pod.Status.ContainerStatuses[at]
	again := status.State.Waiting != nil && status.LastTerminationState.Terminated != nil
	return corev1.PodLogOptions{Container: container, Previous: again}, status.State.Running != nil || status.State.Terminated != nil || again
}

// logOf reads the log of a pod's first container, null where there is none.
func logOf(ctx context.Context, client *kube.Client, pod *corev1.Pod, lines int64) (log types.String, diags diag.Diagnostics) {
	of, ok := logs(pod)
	if !ok {
		return types.StringNull(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	read, err := readLog(ctx, client, pod.Namespace, pod.Name, of, lines)
	if err != nil && !errors.Is(err, context.Canceled) {
		diags.AddAttributeWarning(path.Root("replicas"), "Log cannot be read", fmt.Sprintf("The log of pod %s/%s cannot be read. %s", pod.Namespace, pod.Name, session.Sentence(err)))
		return types.StringNull(), diags
	}
	return types.StringValue(strings.Join(read, "\n")), diags
}
