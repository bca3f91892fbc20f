package addon

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// NewSchedulerConfig returns the resource of the parameters of ACK's scheduler.
func NewSchedulerConfig() resource.Resource {
	return newResource(&addon[schedulerConfig, *schedulerConfig]{schema: schedulerSchema, only: contract.KubeScheduler, rules: schedulerRules},
		"gpuplan_scheduler_config", "Scheduler configuration")
}

// schedulerConfig are the parameters in Terraform's terms.
type schedulerConfig struct {
	typed

	EnableReservation        types.Bool   `tfsdk:"enable_reservation"`
	PreemptionAlgorithm      types.String `tfsdk:"preemption_algorithm"`
	PodMaxBackoffSeconds     types.Int64  `tfsdk:"pod_max_backoff_seconds"`
	PercentageOfNodesToScore types.Int64  `tfsdk:"percentage_of_nodes_to_score"`
	BinpackPluginWeight      types.Int64  `tfsdk:"binpack_plugin_weight"`
	BinpackResourceWeight    types.Map    `tfsdk:"binpack_resource_weight"`
	LoadAwareAggregation     types.String `tfsdk:"load_aware_aggregation"`
	FeatureGates             types.Map    `tfsdk:"feature_gates"`
}

// fields are the parameters by their documented names.
func (m *schedulerConfig) fields() []field {
	return []field{
		boolean("enable_reservation", &m.EnableReservation, "enableReservation"),
		word("preemption_algorithm", &m.PreemptionAlgorithm, "preemptionAlgorithm"),
		number("pod_max_backoff_seconds", &m.PodMaxBackoffSeconds, "podMaxBackoffSeconds"),
		number("percentage_of_nodes_to_score", &m.PercentageOfNodesToScore, "percentageOfNodesToScore"),
		number("binpack_plugin_weight", &m.BinpackPluginWeight, "binpackPluginWeight"),
		weights("binpack_resource_weight", &m.BinpackResourceWeight, "binpackResourceWeight"),
		word("load_aware_aggregation", &m.LoadAwareAggregation, "loadAwareAggregatedUsageAggregationType"),
		switches("feature_gates", &m.FeatureGates, "featureGates"),
	}
}

func (m *schedulerConfig) name() types.String { return types.StringValue(contract.KubeScheduler) }
func (m *schedulerConfig) settings() jsontypes.Normalized {
	return settingsOf(m.fields(), m.ExtraConfig)
}
func (m *schedulerConfig) take(is config) { takeOver(m.fields(), &m.ExtraConfig, is) }
func (m *schedulerConfig) read(is config) { readAll(m.fields(), &m.ExtraConfig, is) }
func (m *schedulerConfig) place(setting []string) (at path.Path, called string) {
	return placeIn(m.fields(), setting)
}

// schedulerRules looks once more at what may have been unknown before.
func schedulerRules(_ context.Context, _ *acs.Client, _ string, plan *schedulerConfig) diag.Diagnostics {
	return apart(plan.fields()).check(plan.ExtraConfig.ValueString())
}

func schedulerSchema(ctx context.Context) schema.Schema {
	const limit = 100_000
	return schemaOf(ctx, "The parameters of ACK's own scheduler, the add-on `kube-scheduler` (Kube Scheduler in the console). It is not `gpuplan_scheduler`, which runs beside it. "+
		"What is left out here is not touched.", map[string]schema.Attribute{
		"enable_reservation": schema.BoolAttribute{
			MarkdownDescription: "Whether the scheduler reserves resources for what a fleet (ACK One) places in this cluster, so that both agree; without it the fleet compares sums over all nodes. Needs Kubernetes 1.28 and version 6.8.0 of the scheduler.",
			Optional:            true,
		},
		"preemption_algorithm": schema.StringAttribute{
			MarkdownDescription: "Who is evicted for pods that do not fit: `Default`, `ElasticQuota` (by the quota tree), `Auto` or `None`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("Default", "ElasticQuota", "Auto", "None")},
		},
		"pod_max_backoff_seconds": schema.Int64Attribute{
			MarkdownDescription: "Longest time in seconds after which a pod that does not fit is tried again, 1 to 100,000.",
			Optional:            true,
			Validators:          []validator.Int64{int64validator.Between(1, limit)},
		},
		"percentage_of_nodes_to_score": schema.Int64Attribute{
			MarkdownDescription: "How many of the nodes are looked at for a pod, in percent, 0 to 100; 0 leaves it to the scheduler.",
			Optional:            true,
			Validators:          []validator.Int64{int64validator.Between(0, 100)},
		},
		"binpack_plugin_weight": schema.Int64Attribute{
			MarkdownDescription: "How much it counts that nodes fill up one after the other.",
			Optional:            true,
			Validators:          []validator.Int64{int64validator.AtLeast(0)},
		},
		"binpack_resource_weight": schema.MapAttribute{
			MarkdownDescription: "How much each resource counts for that, `{ \"nvidia.com/gpu\" = 2, cpu = 1 }`.",
			Optional:            true, ElementType: types.Int64Type,
			Validators: []validator.Map{mapvalidator.SizeAtLeast(1), mapvalidator.ValueInt64sAre(int64validator.AtLeast(0))},
		},
		"load_aware_aggregation": schema.StringAttribute{
			MarkdownDescription: "Which of the measured loads of a node counts where the scheduler looks at loads: `avg`, `p50`, `p90`, `p95` or `p99`.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf("avg", "p50", "p90", "p95", "p99")},
		},
		"feature_gates": schema.MapAttribute{
			MarkdownDescription: "Features that are on or off, by name; others are left as they are.",
			Optional:            true, ElementType: types.BoolType,
			Validators: []validator.Map{mapvalidator.SizeAtLeast(1)},
		},
		"extra_config": extraConfig("{ loadAwareThreshold = [{ resourceName = \"cpu\", threshold = 80 }] }", new(schedulerConfig).fields()),
	})
}
