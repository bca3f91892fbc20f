// Package fleet is the data source gpuplan_fleet: the member clusters of a fleet, as its hub sees them.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

var kind = kubeschema.GroupVersionKind{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Kind: contract.KarmadaClusterKind}

// New returns the data source.
func New() datasource.DataSource { return &fleetData{session.DataSource{Type: "gpuplan_fleet"}} }

type fleetData struct{ session.DataSource }

type model struct {
	Clusters map[string]clusterModel `tfsdk:"clusters"`
}

type clusterModel struct {
	Ready             types.Bool               `tfsdk:"ready"`
	Reason            types.String             `tfsdk:"reason"`
	Message           types.String             `tfsdk:"message"`
	KubernetesVersion types.String             `tfsdk:"kubernetes_version"`
	Provider          types.String             `tfsdk:"provider"`
	Region            types.String             `tfsdk:"region"`
	Zones             []string                 `tfsdk:"zones"`
	Labels            map[string]string        `tfsdk:"labels"`
	Taints            []taintModel             `tfsdk:"taints"`
	Nodes             types.Int64              `tfsdk:"nodes"`
	ReadyNodes        types.Int64              `tfsdk:"ready_nodes"`
	Resources         map[string]resourceModel `tfsdk:"resources"`
	Jobs              []jobModel               `tfsdk:"jobs"`
}

type taintModel struct {
	Key    string `tfsdk:"key"`
	Value  string `tfsdk:"value"`
	Effect string `tfsdk:"effect"`
}

type resourceModel struct {
	Allocatable int64 `tfsdk:"allocatable"`
	Allocated   int64 `tfsdk:"allocated"`
	Pending     int64 `tfsdk:"pending"`
	Free        int64 `tfsdk:"free"`
}

type jobModel struct {
	APIVersion string `tfsdk:"api_version"`
	Kind       string `tfsdk:"kind"`
}

func (d *fleetData) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	count := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	objects := func(attributes map[string]schema.Attribute) schema.NestedAttributeObject {
		return schema.NestedAttributeObject{Attributes: attributes}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The member clusters of a fleet, as its hub sees them. The provider, or an alias of it, is configured for the hub: one that serves clusters as `cluster.karmada.io`, as Karmada does.",
		Attributes: map[string]schema.Attribute{
			"clusters": schema.MapNestedAttribute{MarkdownDescription: "The clusters by name.", Computed: true, NestedObject: objects(map[string]schema.Attribute{
				"ready":              schema.BoolAttribute{MarkdownDescription: "Whether the hub reaches the cluster, and it is well.", Computed: true},
				"reason":             text("Why it is ready or not, in a word; null where the hub has not looked yet."),
				"message":            text("`reason` in words."),
				"kubernetes_version": text("Version of Kubernetes; null where it is not known."),
				"provider":           text("Provider of the cluster; null where nobody says so, as for `region`."),
				"region":             text("Region of the cluster."),
				"zones":              schema.ListAttribute{MarkdownDescription: "Zones of the cluster.", Computed: true, ElementType: types.StringType},
				"labels":             schema.MapAttribute{MarkdownDescription: "Labels of the cluster, by which policies select it.", Computed: true, ElementType: types.StringType},
				"taints": schema.ListNestedAttribute{MarkdownDescription: "Taints of the cluster, which keep jobs away from it that do not tolerate them.", Computed: true, NestedObject: objects(map[string]schema.Attribute{
					"key": text("Key of the taint."), "value": text("Value of the taint."), "effect": text("Effect of the taint."),
				})},
				"nodes":       count("Number of nodes; null where it is not known."),
				"ready_nodes": count("Number of nodes that are ready."),
				"resources": schema.MapNestedAttribute{
					MarkdownDescription: "GPUs, and parts of them, by the name of the resource, such as `aliyun.com/gpu`: sums over all nodes, as the cluster was seen last. Null where the hub does not know them.",
					Computed:            true, NestedObject: objects(map[string]schema.Attribute{
						"allocatable": count("What the nodes have for pods."),
						"allocated":   count("What pods on nodes have."),
						"pending":     count("What pods ask for that wait for a node."),
						"free": count("What is left: `allocatable` without `allocated` and `pending`, from 0. By this sum a fleet chooses a cluster for a job that it reserves nothing for. " +
							"It does not say that a job has room: what is free may be in pieces on several nodes."),
					}),
				},
				"jobs": schema.ListNestedAttribute{MarkdownDescription: "Kinds of training jobs that the cluster serves, with the names that `resource_selectors` of a policy have.", Computed: true, NestedObject: objects(map[string]schema.Attribute{
					"api_version": text("Group and version of the kind."), "kind": text("The kind, such as `PyTorchJob`."),
				})},
			})},
		},
	}
}

// Read asks the hub for its clusters.
func (d *fleetData) Read(ctx context.Context, _ datasource.ReadRequest, resp *datasource.ReadResponse) {
	fail := func(err error) { resp.Diagnostics.AddError("Fleet cannot be read", session.Unread(err)) }
	client, err := d.Session.Kube()
	if err != nil {
		fail(err)
		return
	}
	items, err := client.List(ctx, kind, "", "")
	if errors.Is(err, kube.ErrNotServed) {
		err = fmt.Errorf("the cluster is no hub of Karmada: it does not serve the clusters of a fleet as %s. Configure the provider, or an alias of it, for the hub; "+
			"the hub of another fleet shows its clusters by its own tools", kind.Group)
	}
	if err != nil {
		fail(err)
		return
	}
	m := model{Clusters: map[string]clusterModel{}}
	for i := range items {
		c, err := contract.FleetClusterOf(&items[i])
		if err != nil {
			fail(err)
			return
		}
		m.Clusters[c.Name] = modelOf(c)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, m)...)
}

// gpuDomains are those of the resources by which pods ask for GPUs.
var gpuDomains = []string{"aliyun.com/", "nvidia.com/"}

// jobKinds are the kinds of training jobs by their groups.
var jobKinds = map[string][]string{
	contract.KubeflowGroup: {contract.PyTorchJobKind, contract.MPIJobKind}, contract.TrainerGroup: {contract.TrainJobKind}, contract.JobSetGroup: {contract.JobSetKind}, batchv1.GroupName: {contract.BatchJobKind},
}

// modelOf is a cluster in Terraform.
func modelOf(c *contract.FleetCluster) clusterModel {
	m := clusterModel{
		Ready: types.BoolValue(false), KubernetesVersion: written(c.Status.KubernetesVersion), Provider: written(c.Spec.Provider), Region: written(c.Spec.Region),
		Zones: append([]string{}, c.Spec.Zones...), Labels: map[string]string{}, Taints: []taintModel{}, Jobs: jobsOf(c),
	}
	maps.Copy(m.Labels, c.Labels)
	if ready := c.Ready(); ready != nil {
		m.Ready, m.Reason, m.Message = types.BoolValue(ready.Status == metav1.ConditionTrue), written(ready.Reason), written(ready.Message)
	}
	for _, t := range c.Spec.Taints {
		m.Taints = append(m.Taints, taintModel{t.Key, t.Value, string(t.Effect)})
	}
	if n := c.Status.NodeSummary; n != nil {
		m.Nodes, m.ReadyNodes = types.Int64Value(n.TotalNum), types.Int64Value(n.ReadyNum)
	}
	if s := c.Status.ResourceSummary; s != nil {
		m.Resources = map[string]resourceModel{}
		for name, amount := range s.Allocatable {
			if !slices.ContainsFunc(gpuDomains, func(domain string) bool { return strings.HasPrefix(string(name), domain) }) {
				continue
			}
			allocated, pending := s.Allocated[name], s.Allocating[name]
			r := resourceModel{Allocatable: amount.Value(), Allocated: allocated.Value(), Pending: pending.Value()}
			r.Free = max(0, r.Allocatable-r.Allocated-r.Pending)
			m.Resources[string(name)] = r
		}
	}
	return m
}

// jobsOf are the kinds of training jobs that a cluster serves.
func jobsOf(c *contract.FleetCluster) []jobModel {
	found := []jobModel{}
	for _, api := range c.Status.APIEnablements {
		group, err := kubeschema.ParseGroupVersion(api.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range api.Resources {
			if slices.Contains(jobKinds[group.Group], r.Kind) {
				found = append(found, jobModel{api.GroupVersion, r.Kind})
			}
		}
	}
	slices.SortFunc(found, func(a, b jobModel) int { return strings.Compare(a.APIVersion+a.Kind, b.APIVersion+b.Kind) })
	return slices.Compact(found)
}

// written is a text, null for none.
func written(text string) types.String {
	if text == "" {
		return types.StringNull()
	}
	return types.StringValue(text)
}
