package queues

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

type model struct {
	Queues []queueModel `tfsdk:"queues"`
}

type queueModel struct {
	Name       string            `tfsdk:"name"`
	Path       string            `tfsdk:"path"`
	Namespaces []string          `tfsdk:"namespaces"`
	Min        map[string]string `tfsdk:"min"`
	Max        map[string]string `tfsdk:"max"`
	Used       map[string]string `tfsdk:"used"`
	Borrowed   map[string]string `tfsdk:"borrowed"`
	Jobs       int64             `tfsdk:"jobs"`
	MaxJobs    types.Int64       `tfsdk:"max_jobs"`
	Policy     types.String      `tfsdk:"policy"`
	Priority   types.Int64       `tfsdk:"priority"`
	Queued     []jobModel        `tfsdk:"queued"`
}

type jobModel struct {
	Kind      string      `tfsdk:"kind"`
	Namespace string      `tfsdk:"namespace"`
	Name      string      `tfsdk:"name"`
	Priority  int64       `tfsdk:"priority"`
	Position  types.Int64 `tfsdk:"position"`
	Phase     string      `tfsdk:"phase"`
	Message   string      `tfsdk:"message"`
}

func (d *queues) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	number := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	amounts := func(description string) schema.MapAttribute {
		return schema.MapAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The leaves of the cluster's quota tree as they are now: what each is guaranteed, what it uses and borrows, and the jobs that wait in its queue. " +
			"Terraform reads it in the plan. A tree that is not valid is an error.",
		Attributes: map[string]schema.Attribute{
			"queues": schema.ListNestedAttribute{
				MarkdownDescription: "The leaves in the order of the tree; none where the cluster has no tree.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name": text("Name of the leaf, which a job names as its `quota`."),
					"path": text("Where it is in the tree, `root/research/vision`."),
					"namespaces": schema.ListAttribute{
						MarkdownDescription: "Namespaces whose pods are charged to it when they name no leaf themselves.", Computed: true, ElementType: types.StringType,
					},
					"min":      amounts("Guaranteed quantity of each resource."),
					"max":      amounts("Largest quantity of each resource; no limit for a resource that is not listed, other than those above it in the tree."),
					"used":     amounts("What the pods that are charged to it request; also of resources that the tree does not name."),
					"borrowed": amounts("What it uses beyond `min`, of minimums that others leave idle."),
					"jobs":     number("Jobs that run; a pod on its own is no job."),
					"max_jobs": number("Largest number of jobs that run at a time; null for no limit."),
					"policy":   text("Order in which its queued jobs start: `Priority`, or `Block`, where nothing passes the first that must wait. Null where it has no queue."),
					"priority": number("Priority among queues that compete for the same limit, highest first; null for none."),
					"queued": schema.ListNestedAttribute{
						MarkdownDescription: "Jobs that wait suspended in its queue, in the order of their positions; those that are not in line come last.", Computed: true,
						NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
							"kind":      text("Kind of the job, as in `PyTorchJob`."),
							"namespace": text("Namespace of the job."),
							"name":      text("Name of the job."),
							"priority":  number("Its priority."),
							"position":  number("Its position in the queue, from 1; null while it is not in line."),
							"phase":     text("`Enqueued`, or `TimeoutBackoff` for one that the queue has sent back for a time."),
							"message":   text("Why it waits."),
						}},
					},
				}},
			},
		},
	}
}

// describe says what the tree says of a leaf.
func describe(tree *quota.Tree, leaf string) queueModel {
	q := queueModel{
		Name: leaf, Path: tree.Path(leaf), Namespaces: []string{}, Queued: []jobModel{},
		Min: quantities(tree.Min(leaf)), Max: quantities(tree.Max(leaf)),
	}
	q.Namespaces = append(q.Namespaces, tree.Namespaces(leaf)...)
	used, borrowed := tree.Used(leaf), tree.Borrowed(leaf)
	for _, limits := range []quota.Resources{tree.Min(leaf), tree.Max(leaf)} {
		for name := range limits { // so that a configuration can ask for them
			used[name] += 0
			borrowed[name] += 0
		}
	}
	q.Used, q.Borrowed = quantities(used), quantities(borrowed)
	running, most := tree.JobsOf(leaf)
	q.Jobs = running
	if most > 0 {
		q.MaxJobs = types.Int64Value(most)
	}
	return q
}

// setQueue fills in what waits in the leaf's queue; the units are in order.
func (q *queueModel) setQueue(queue *contract.Queue, units []contract.QueueUnit) {
	q.Policy = types.StringValue(string(queue.Spec.QueuePolicy))
	if queue.Spec.Priority != nil {
		q.Priority = types.Int64Value(int64(*queue.Spec.Priority))
	}
	waits := []contract.QueueUnitPhase{"", contract.UnitEnqueued, contract.UnitBackoff}
	for _, u := range units {
		if u.Spec.Queue != queue.Name || !slices.Contains(waits, u.Status.Phase) {
			continue
		}
		job := jobModel{
			Kind: u.Spec.ConsumerRef.Kind, Namespace: u.Namespace, Name: u.Spec.ConsumerRef.Name,
			Phase: string(contract.UnitEnqueued), Message: u.Status.Message,
		}
		if u.Status.Phase != "" { // the queue has not looked at it yet
			job.Phase = string(u.Status.Phase)
		}
		if u.Spec.Priority != nil {
			job.Priority = int64(*u.Spec.Priority)
		}
		if u.Status.Position > 0 {
			job.Position = types.Int64Value(int64(u.Status.Position))
		}
		q.Queued = append(q.Queued, job)
	}
}

// quantities writes amounts as Kubernetes does.
func quantities(amounts quota.Resources) map[string]string {
	out := map[string]string{}
	for name, amount := range amounts {
		q := inventory.Quantity(name, amount)
		out[name] = q.String()
	}
	return out
}
