package propagationpolicy

import (
	"context"
	"maps"
	"math"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/duration"
)

func (r *policy) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := specAttributes()
	maps.Copy(attributes, map[string]schema.Attribute{
		"id": schema.StringAttribute{
			MarkdownDescription: "Namespace and name of the policy, for import.", Computed: true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"api_version": schema.StringAttribute{
			MarkdownDescription: "Group and version of the policy, as the hub serves them: `policy.one.alibabacloud.com/v1alpha1` of ACK One's Fleet, or `policy.karmada.io/v1alpha1` of Karmada.", Computed: true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the policy.", Required: true,
			Validators:    []validator.String{policyName{}},
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"namespace": schema.StringAttribute{
			MarkdownDescription: "Namespace of the policy, and of all that it selects. Default `default`.",
			Optional:            true, Computed: true, Default: stringdefault.StaticString(defaultNamespace),
			Validators:    []validator.String{namespaceName{}},
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"timeouts": duration.Timeouts(timeouts.Attributes(ctx, timeouts.Opts{Create: true, Update: true, Delete: true,
			CreateDescription: "Default `5m`.", UpdateDescription: "Default `5m`.", DeleteDescription: "Default `5m`."})),
	})
	resp.Schema = schema.Schema{
		MarkdownDescription: "A policy of a fleet (`PropagationPolicy`): which objects of the hub go to which of its member clusters. The provider, or an alias of it, is configured for the hub: the Fleet of ACK One, or a hub of Karmada, " +
			"from which that derives.\n\n" +
			"The attributes are the fields of the policy with their names. What is not written is left to the hub, whose defaults are no drift. " +
			"What others change of the fields that are here shows up as drift; other fields of the policy are left alone. " +
			"Policies of whole clusters (`ClusterPropagationPolicy`) are not managed.\n\n" +
			"The fields `suspension.scheduling` and `custom_scheduling_type` are ACK's: a hub of Karmada alone refuses them in the plan. The hub of the local platform has them, " +
			"and a queue: with `suspension.scheduling` jobs wait until the hub's quota tree lets them go. With `failover` a gang that fails in its cluster, or waits there because it has lost its place while another one has room, goes to another one; from a cluster that is lost once someone removes that from the fleet. " +
			"Destroying a policy leaves what it has sent to member clusters where it is.",
		Attributes: attributes,
	}
}

// specTypes are the types of the attributes that are fields of the policy.
func specTypes() types.ObjectType {
	all := map[string]attr.Type{}
	for name, a := range specAttributes() {
		all[name] = a.GetType()
	}
	return types.ObjectType{AttrTypes: all}
}

// specAttributes are the attributes that are fields of the policy.
func specAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"resource_selectors": schema.ListNestedAttribute{
			MarkdownDescription: "The objects that the policy sends to clusters: those that one of the entries selects.", Required: true,
			Validators: []validator.List{listvalidator.SizeAtLeast(1)},
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"api_version":    required(text("Group and version of the objects, such as `kubeflow.org/v1`.")),
				"kind":           required(text("Kind of the objects, such as `PyTorchJob`.")),
				"name":           text("Name of one object; without it all of the kind that `label_selector` matches."),
				"namespace":      text("Namespace of the objects: that of the policy, which it may repeat."),
				"label_selector": labelSelector("Labels of the objects; without it, and without `name`, all of the kind."),
			}},
		},
		"propagate_deps": flag("Sends what the objects refer to (ConfigMaps, Secrets, volumes) along with them, as far as the hub knows that: by itself Karmada 1.17 does of PyTorchJobs and Jobs. Default `false`; `failover.application` needs it."),
		"priority":       number("The policy with the highest priority has an object that several select. Default 0.", math.MinInt32),
		"preemption":     text("Whether the policy takes over objects that one of lower priority has: `Always`, which needs selectors with names, or `Never` (default).", always, never),
		"conflict_resolution": text("What is done where a member cluster has an object of the same name already: `Abort` (default) leaves it, `Overwrite` takes it over.",
			abort, overwrite),
		"preserve_resources_on_deletion": flag("Leaves objects in the member clusters when they are deleted on the hub. Default `false`."),
		"scheduler_name":                 text("The scheduler that chooses clusters. Without it the hub decides: `default-scheduler`, or a scheduler of gangs that it has. Karmada's webhook refuses to change that of a policy: `terraform apply -replace` makes another one."),
		"failover": object("What is done with jobs that fail. With `gpuplan-fleet-scheduler` those are jobs of all kinds, with another scheduler those of which the hub knows when they have failed: by itself Karmada 1.17 knows that of PyTorchJobs and MPIJobs `v2beta1`. Nothing without it.", map[string]schema.Attribute{
			"application": object("Failure of a job, while its cluster is well.", map[string]schema.Attribute{
				"decision_conditions": schema.SingleNestedAttribute{MarkdownDescription: "When it counts as failed.", Required: true, Attributes: map[string]schema.Attribute{
					"toleration_seconds": number("How many seconds it may be unhealthy, and with `gpuplan-fleet-scheduler` also for how many its gang may wait in the cluster for places. Default 300.", 0),
				}},
				"purge_mode": text("What becomes of the job in the cluster that it leaves: `Directly`, or `Immediately` by its older name, deletes it before it starts elsewhere; `Gracefully` (default, `Graciously` by its older name) once it is well in the new cluster; `Never`. "+
					"A gang must be deleted first: otherwise it would run in two clusters at a time.", directly, immediately, gracefully, graciously, never),
				"grace_period_seconds": number("How many seconds `Gracefully` waits for the job in the new cluster at most. Default 600.", 1),
			}),
		}),
		"placement": object("Which clusters objects go to. All clusters without it.", map[string]schema.Attribute{
			"cluster_affinity": object("The clusters that may be chosen; all without it. Not together with `cluster_affinities`.", affinityAttributes()),
			"cluster_affinities": schema.ListNestedAttribute{
				MarkdownDescription: "Groups of clusters, of which the first counts that has room.", Optional: true,
				NestedObject: schema.NestedAttributeObject{Attributes: with(affinityAttributes(), "affinity_name", required(text("Name of the group, of up to 32 characters.")))},
			},
			"cluster_tolerations": schema.ListNestedAttribute{
				MarkdownDescription: "Taints of clusters that do not matter.", Optional: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"key":                text("Key of the taint; without it every taint, with operator `Exists`."),
					"operator":           text("`Equal` (default) or `Exists`.", "Equal", "Exists"),
					"value":              text("Value of the taint, with operator `Equal`."),
					"effect":             text("`NoSchedule`, `PreferNoSchedule` or `NoExecute`; without it every effect.", "NoSchedule", "PreferNoSchedule", "NoExecute"),
					"toleration_seconds": number("How many seconds a `NoExecute` taint does not matter; for ever without it.", 0),
				}},
			},
			"spread_constraints": schema.ListNestedAttribute{
				MarkdownDescription: "Over how many groups of clusters objects are spread.", Optional: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"spread_by_field": text("What makes a group: `cluster` (default), `region`, `zone` or `provider`. One constraint must be by `cluster` where there are others by field.", byCluster, "region", "zone", "provider"),
					"spread_by_label": text("Label of clusters that makes a group, in place of `spread_by_field`."),
					"min_groups":      number("Smallest number of groups. Default 1.", 0),
					"max_groups":      number("Largest number of groups; no limit for 0 or without it.", 0),
				}},
			},
			"replica_scheduling": object("How the replicas of a job are given to clusters.", map[string]schema.Attribute{
				"replica_scheduling_type":     text("`Divided` (default) divides replicas among clusters, `Duplicated` gives each cluster all of them.", divided, duplicated),
				"replica_division_preference": text("How `Divided` divides: `Weighted` (default) or `Aggregated`, among few clusters.", weighted, aggregated),
				"weight_preference": object("Weights for `Weighted`; all clusters have the same without it.", map[string]schema.Attribute{
					"static_weight_list": schema.ListNestedAttribute{
						MarkdownDescription: "Weights of clusters. Not together with `dynamic_weight`.", Optional: true,
						NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
							"target_cluster": schema.SingleNestedAttribute{MarkdownDescription: "The clusters that have the weight.", Required: true, Attributes: affinityAttributes()},
							"weight":         schema.Int64Attribute{MarkdownDescription: "The weight, from 1.", Required: true, Validators: []validator.Int64{int64validator.Between(1, math.MaxInt32)}},
						}},
					},
					"dynamic_weight": text("`AvailableReplicas` weighs clusters by how many replicas have room there.", available),
				}),
				"custom_scheduling_type": text("`Gang` sends a job to a cluster as a whole, in which all its pods can run together. ACK's field.", gang),
			}),
		}),
		"suspension": object("What waits.", map[string]schema.Attribute{
			"dispatching": flag("Sends nothing to clusters. Not together with `dispatching_on_clusters`."),
			"dispatching_on_clusters": object("Sends nothing to some clusters.", map[string]schema.Attribute{
				"cluster_names": texts("Names of these clusters."),
			}),
			"scheduling": flag("No cluster is chosen for a job until the hub's queue (`ack-kube-queue`) releases it. ACK's field."),
		}),
	}
}

func affinityAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"cluster_names":  texts("Names of the clusters; all without it."),
		"exclude":        texts("Names of clusters that are left out."),
		"label_selector": labelSelector("Labels of the clusters."),
		"field_selector": object("Fields of the clusters.", map[string]schema.Attribute{
			"match_expressions": expressions("Conditions that all hold.", "`provider`, `region` or `zone`; `In` selects a cluster of several zones where all of them are among the values.", "In", "NotIn"),
		}),
	}
}

func labelSelector(description string) schema.SingleNestedAttribute {
	return object(description, map[string]schema.Attribute{
		"match_labels":      schema.MapAttribute{MarkdownDescription: "Labels with their values.", Optional: true, ElementType: types.StringType},
		"match_expressions": expressions("Conditions that all hold.", "Key of the label.", "In", "NotIn", "Exists", "DoesNotExist"),
	})
}

func expressions(description, key string, operators ...string) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{MarkdownDescription: description, Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"key":      required(text(key)),
		"operator": required(text("How the values count: "+listed(operators)+".", operators...)),
		"values":   texts("The values."),
	}}}
}

// text is an attribute that may be left out, one of these values where there are some.
func text(description string, values ...string) schema.StringAttribute {
	a := schema.StringAttribute{MarkdownDescription: description, Optional: true}
	if len(values) > 0 {
		a.Validators = []validator.String{stringvalidator.OneOf(values...)}
	}
	return a
}

func required(a schema.StringAttribute) schema.StringAttribute {
	a.Optional, a.Required = false, true
	return a
}

func texts(description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, Optional: true, ElementType: types.StringType}
}

// number is an attribute with a whole number, from the least one up to what an int32 holds.
func number(description string, least int64) schema.Int64Attribute {
	return schema.Int64Attribute{MarkdownDescription: description, Optional: true, Validators: []validator.Int64{int64validator.Between(least, math.MaxInt32)}}
}

func flag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{MarkdownDescription: description, Optional: true}
}

func object(description string, attributes map[string]schema.Attribute) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{MarkdownDescription: description, Optional: true, Attributes: attributes}
}

func with(attributes map[string]schema.Attribute, name string, a schema.Attribute) map[string]schema.Attribute {
	attributes[name] = a
	return attributes
}
