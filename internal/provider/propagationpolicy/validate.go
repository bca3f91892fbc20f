package propagationpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// longestCluster is the longest name of a cluster that Karmada takes.
const longestCluster = 48

// known is the spec as far as it is known, and which attributes are known altogether.
func (m *model) known(ctx context.Context) (s spec, whole func(...attr.Value) bool) {
	data, _ := m.data(ctx)
	_ = recode(data, &s) // the schema has the types
	return s, func(values ...attr.Value) bool { return known.Wholly(ctx, values...) }
}

// ValidateConfig applies every rule of policies to what is known.
func (r *policy) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m model
	if resp.Diagnostics.Append(req.Config.Get(ctx, &m)...); resp.Diagnostics.HasError() {
		return
	}
	s, whole := m.known(ctx)
	c := checks{}
	if whole(m.ResourceSelectors, m.Namespace) {
		c.selectors(s.ResourceSelectors, m.namespace())
		if whole(m.Preemption) && s.Preemption == always {
			c.preemption(s.ResourceSelectors)
		}
	}
	if whole(m.Failover, m.PropagateDeps) {
		c.failover(s)
	}
	if whole(m.Placement) && s.Placement != nil {
		c.placement(*s.Placement)
	}
	if whole(m.Failover, m.Placement) {
		c.gang(s)
	}
	if whole(m.ResourceSelectors, m.Placement, m.Suspension) {
		c.trainJobs(s)
	}
	if whole(m.Suspension) && s.Suspension != nil {
		c.suspension(*s.Suspension)
	}
	resp.Diagnostics.Append(c.diags...)
}

// checks collects which rules a policy breaks.
type checks struct{ diags diag.Diagnostics }

func (c *checks) refuse(at path.Path, text string, values ...any) {
	c.diags.AddAttributeError(at, title+" is not valid", fmt.Sprintf("%s: %s.", at, fmt.Sprintf(text, values...)))
}

func (c *checks) warn(at path.Path, text string, values ...any) {
	c.diags.AddAttributeWarning(at, title+" may not work as meant", fmt.Sprintf("%s: %s.", at, fmt.Sprintf(text, values...)))
}

func (c *checks) selectors(all []selector, namespace string) {
	for i, s := range all {
		at := path.Root("resource_selectors").AtListIndex(i)
		if group, err := schema.ParseGroupVersion(s.APIVersion); err != nil || group.Version == "" {
			c.refuse(at.AtName("api_version"), "%.80q is no version of an API: write it as in kubeflow.org/v1, or v1 for the core of Kubernetes", s.APIVersion)
		}
		if s.Kind == "" {
			c.refuse(at.AtName("kind"), "a kind is needed, such as PyTorchJob")
		}
		if s.Namespace != "" && s.Namespace != namespace {
			c.refuse(at.AtName("namespace"), "the policy is in the namespace %.80q, and selects objects of that one only: leave it out, or make a policy in %.80q", namespace, s.Namespace)
		}
		c.labels(at.AtName("label_selector"), s.LabelSelector)
		if s.Name != "" && s.LabelSelector != nil {
			c.warn(at.AtName("label_selector"), "beside a name labels do not count")
		}
		if first := slices.IndexFunc(all, func(o selector) bool {
			return o.LabelSelector == nil && s.LabelSelector == nil && o.APIVersion == s.APIVersion && o.Kind == s.Kind && o.Name == s.Name
		}); first >= 0 && first < i {
			c.refuse(at, "this is the same as resource_selectors[%d]: leave it out", first)
			return
		}
	}
}

func (c *checks) preemption(all []selector) {
	for i, s := range all {
		if s.Name == "" {
			at := path.Root("resource_selectors").AtListIndex(i)
			c.refuse(at, "with preemption = %q every selector needs a name, so that the policy takes over no other objects than those that are meant", always)
		}
	}
}

func (c *checks) labels(at path.Path, selector *metav1.LabelSelector) {
	if selector == nil {
		return
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		c.refuse(at, "this is no selector of labels: %.300s", err)
	}
}

func (c *checks) failover(s spec) {
	if s.Failover == nil || s.Failover.Application == nil {
		return
	}
	at, a := path.Root("failover").AtName("application"), s.Failover.Application
	if !s.PropagateDeps {
		c.refuse(at, "a job can move to another cluster only with what it refers to: set propagate_deps = true")
	}
	if !a.graceful() && a.GracePeriodSeconds != 0 {
		c.refuse(at.AtName("grace_period_seconds"), "only purge_mode = %q waits for the job in the new cluster, and this is %q: leave it out", gracefully, a.PurgeMode)
	}
}

// gang holds what says how replicas are placed against each other: a gang is in one cluster, whole. A hub of Karmada alone knows gangs by
// the scheduler of their policy.
func (c *checks) gang(s spec) {
	by := fmt.Sprintf("placement.replica_scheduling.custom_scheduling_type = %q", gang)
	switch {
	case s.isGang():
	case s.SchedulerName == contract.FleetSchedulerName:
		by = fmt.Sprintf("scheduler_name = %q", contract.FleetSchedulerName)
	default:
		return
	}
	if a := s.Failover; a != nil && a.Application != nil && (a.Application.graceful() || a.Application.PurgeMode == never) {
		mode := a.Application.PurgeMode
		if mode == "" {
			mode = gracefully + ", the default,"
		}
		c.refuse(path.Root("failover").AtName("application").AtName("purge_mode"),
			"%s lets a gang (%s) that moves to another cluster run in both: write %q, or %q by its older name, with which it is deleted first", mode, by, directly, immediately)
	}
	if s.PreserveResourcesOnDeletion && s.Failover != nil {
		c.refuse(path.Root("preserve_resources_on_deletion"), "what it leaves of a gang (%s) in the cluster from which that moves runs on there: leave it out, or failover", by)
	}
	if p := s.Placement; p != nil && p.ReplicaScheduling != nil && p.ReplicaScheduling.ReplicaSchedulingType == duplicated {
		c.refuse(path.Root("placement").AtName("replica_scheduling").AtName("replica_scheduling_type"),
			"%q sends the whole job to every cluster, and %s sends it to one: write %q", duplicated, by, divided)
	}
}

// trainJobs holds that nobody on a hub knows the pods of a TrainJob: neither our scheduler of gangs nor our queue there lets one go.
func (c *checks) trainJobs(s spec) {
	held := s.Suspension != nil && s.Suspension.Scheduling
	for i, selected := range s.ResourceSelectors {
		if kind := schema.FromAPIVersionAndKind(selected.APIVersion, selected.Kind); kind.Group != contract.TrainerGroup || kind.Kind != contract.TrainJobKind {
			continue
		}
		const why = "has its pods in a TrainingRuntime, which the hub does not have"
		switch at := path.Root("resource_selectors").AtListIndex(i); {
		case s.SchedulerName == contract.FleetSchedulerName:
			c.refuse(at, "a TrainJob %s, and %s sends none to a cluster: select JobSets, and make the jobs those", why, contract.FleetSchedulerName)
		case s.isGang(), held:
			c.warn(at, "a TrainJob %s: neither the scheduler of gangs of gpuplan nor its queue lets one go. Where these work select JobSets, and make the jobs those", why)
		}
	}
}

func (c *checks) placement(p placement) {
	root := path.Root("placement")
	if p.ClusterAffinity != nil {
		c.affinity(root.AtName("cluster_affinity"), *p.ClusterAffinity)
		if p.ClusterAffinities != nil {
			c.refuse(root.AtName("cluster_affinities"), "not together with cluster_affinity: leave one of them out")
		}
	}
	names := map[string]int{}
	for i, term := range p.ClusterAffinities {
		at := root.AtName("cluster_affinities").AtListIndex(i)
		c.affinity(at, term.affinity)
		if faults := validation.IsQualifiedName(term.AffinityName); len(faults) > 0 || len(term.AffinityName) > 32 {
			c.refuse(at.AtName("affinity_name"), "%.80q cannot be the name of a group: write up to 32 letters, digits, '-', '_' or '.'", term.AffinityName)
		}
		if first, again := names[term.AffinityName]; again {
			c.refuse(at.AtName("affinity_name"), "the name %.80q is that of cluster_affinities[%d] already", term.AffinityName, first)
			break
		}
		names[term.AffinityName] = i
	}
	for i, t := range p.ClusterTolerations {
		c.toleration(root.AtName("cluster_tolerations").AtListIndex(i), t)
	}
	c.spread(root.AtName("spread_constraints"), p.SpreadConstraints)
	if p.ReplicaScheduling != nil {
		c.replicas(root.AtName("replica_scheduling"), *p.ReplicaScheduling)
	}
}

func (c *checks) affinity(at path.Path, a affinity) {
	c.labels(at.AtName("label_selector"), a.LabelSelector)
	c.clusters(at.AtName("cluster_names"), a.ClusterNames)
	c.clusters(at.AtName("exclude"), a.Exclude)
	if a.FieldSelector == nil {
		return
	}
	for i, e := range a.FieldSelector.MatchExpressions {
		at := at.AtName("field_selector").AtName("match_expressions").AtListIndex(i)
		if keys := []string{"provider", "region", "zone"}; !slices.Contains(keys, e.Key) {
			c.refuse(at.AtName("key"), "%.80q is no field of clusters that can be selected by: write %s", e.Key, listed(keys))
		}
		if len(e.Values) == 0 {
			c.refuse(at.AtName("values"), "at least one value is needed")
		}
	}
}

func (c *checks) clusters(at path.Path, names []string) {
	seen := map[string]bool{}
	for i, name := range names {
		if faults := validation.IsDNS1123Label(name); len(faults) > 0 || len(name) > longestCluster {
			c.refuse(at.AtListIndex(i), "%.80q cannot be the name of a cluster: write up to %d lower-case letters, digits and '-'", name, longestCluster)
			return
		}
		if seen[name] {
			c.refuse(at.AtListIndex(i), "the cluster %q is there twice", name)
			return
		}
		seen[name] = true
	}
}

func (c *checks) toleration(at path.Path, t corev1.Toleration) {
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		c.refuse(at.AtName("value"), "with operator Exists no value counts: leave it out")
	}
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		c.refuse(at, "without a key it is for every taint, which needs operator = \"Exists\"")
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.refuse(at.AtName("toleration_seconds"), "only taints with effect NoExecute are tolerated for a time: leave it out, or write effect = \"NoExecute\"")
	}
}

func (c *checks) spread(at path.Path, constraints []spread) {
	byField := map[string]bool{}
	for i, s := range constraints {
		at := at.AtListIndex(i)
		by := s.SpreadByField
		if by != "" && s.SpreadByLabel != "" {
			c.refuse(at.AtName("spread_by_label"), "not together with spread_by_field: leave one of them out")
		}
		if s.MaxGroups > 0 && s.MaxGroups < s.MinGroups {
			c.refuse(at.AtName("max_groups"), "%d is less than min_groups, %d", s.MaxGroups, s.MinGroups)
		}
		if by == "" && s.SpreadByLabel == "" {
			by = byCluster
		}
		if by == "" {
			continue
		}
		if byField[by] {
			c.refuse(at.AtName("spread_by_field"), "there is a constraint by %s already", by)
			return
		}
		byField[by] = true
	}
	if len(byField) > 0 && !byField[byCluster] {
		c.refuse(at, "a constraint by a field of clusters needs one by %s beside it, which says in how many clusters", byCluster)
	}
}

func (c *checks) replicas(at path.Path, r replicaScheduling) {
	preference := at.AtName("weight_preference")
	if w := r.WeightPreference; w != nil {
		for i, s := range w.StaticWeightList {
			c.affinity(preference.AtName("static_weight_list").AtListIndex(i).AtName("target_cluster"), s.TargetCluster)
		}
		if len(w.StaticWeightList) > 0 && w.DynamicWeight != "" {
			c.refuse(preference.AtName("dynamic_weight"), "not together with static_weight_list, which does not count beside it: leave one of them out")
		}
		if r.ReplicaDivisionPreference == aggregated {
			c.warn(preference, "weights do not count with replica_division_preference = %q", aggregated)
		}
	}
	if r.ReplicaSchedulingType == duplicated && (r.ReplicaDivisionPreference != "" || r.WeightPreference != nil) {
		c.warn(at, "with replica_scheduling_type = %q nothing is divided, and replica_division_preference and weight_preference do not count", duplicated)
	}
}

func (c *checks) suspension(s suspension) {
	if s.DispatchingOnClusters == nil {
		return
	}
	at := path.Root("suspension").AtName("dispatching_on_clusters")
	c.clusters(at.AtName("cluster_names"), s.DispatchingOnClusters.ClusterNames)
	if s.Dispatching && len(s.DispatchingOnClusters.ClusterNames) > 0 {
		c.refuse(at, "not together with dispatching = true, which is for all clusters: leave one of them out")
	}
}

// clusterName is the name of a cluster, and where a configuration has it.
type clusterName struct {
	at   path.Path
	text string
}

// clusters are all names of clusters in the policy.
func (s *spec) clusters() (all []clusterName) {
	add := func(at path.Path, names []string) {
		for i, name := range names {
			all = append(all, clusterName{at.AtListIndex(i), name})
		}
	}
	within := func(at path.Path, a affinity) {
		add(at.AtName("cluster_names"), a.ClusterNames)
		add(at.AtName("exclude"), a.Exclude)
	}
	if p, root := s.Placement, path.Root("placement"); p != nil {
		if p.ClusterAffinity != nil {
			within(root.AtName("cluster_affinity"), *p.ClusterAffinity)
		}
		for i, term := range p.ClusterAffinities {
			within(root.AtName("cluster_affinities").AtListIndex(i), term.affinity)
		}
		if p.ReplicaScheduling != nil && p.ReplicaScheduling.WeightPreference != nil {
			for i, w := range p.ReplicaScheduling.WeightPreference.StaticWeightList {
				within(root.AtName("replica_scheduling").AtName("weight_preference").AtName("static_weight_list").AtListIndex(i).AtName("target_cluster"), w.TargetCluster)
			}
		}
	}
	if s.Suspension != nil && s.Suspension.DispatchingOnClusters != nil {
		add(path.Root("suspension").AtName("dispatching_on_clusters").AtName("cluster_names"), s.Suspension.DispatchingOnClusters.ClusterNames)
	}
	return all
}

// listed are names to choose from, in a sentence.
func listed(names []string) string {
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// policyName says what the name of a policy may be: Karmada writes it into labels.
type policyName struct{}

func (policyName) Description(context.Context) string {
	return "a name of Kubernetes of up to 63 characters"
}
func (v policyName) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (policyName) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	name := req.ConfigValue
	if known.Set(name) && (len(validation.IsDNS1123Subdomain(name.ValueString())) > 0 || len(name.ValueString()) > validation.LabelValueMaxLength) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid name", fmt.Sprintf(
			"%s: %.80q cannot be the name of a policy: write up to 63 lower-case letters, digits, '-' and '.', which begin and end with a letter or digit.", req.Path, name.ValueString()))
	}
}

// namespaceName says what the name of a namespace may be.
type namespaceName struct{}

func (namespaceName) Description(context.Context) string               { return "a name of a namespace" }
func (v namespaceName) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (namespaceName) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if name := req.ConfigValue; known.Set(name) && len(validation.IsDNS1123Label(name.ValueString())) > 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid namespace", fmt.Sprintf("%s: %.80q cannot be a namespace: write up to 63 lower-case letters, digits and '-'.", req.Path, name.ValueString()))
	}
}
