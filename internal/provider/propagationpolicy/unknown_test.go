package propagationpolicy_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/propagationpolicy"
)

// Whatever is unknown of a policy until apply, the plan has not said what the apply does otherwise.
func TestUnknownAttributes(t *testing.T) {
	hub(t, karmadas)
	type object = acctest.Object
	type list = acctest.List
	values, needed := map[string][2]any{}, []string{"placement.cluster_tolerations.0.key"}
	add := func(at string, first, second any) { values[at] = [2]any{first, second} }
	text := func(at, first, second string) { add(at, `"`+first+`"`, `"`+second+`"`) }
	flag := func(at string) { add(at, "true", "false") }
	expression := func(at, key string) {
		add(at, list{object{"key": `"` + key + `"`, "operator": `"In"`, "values": list{`"x"`}}}, list{object{"key": `"` + key + `"`, "operator": `"In"`, "values": list{`"y"`}}})
		text(at+".0.key", key, key)
		text(at+".0.operator", "In", "NotIn")
		add(at+".0.values", list{`"x"`}, list{`"y"`})
		needed = append(needed, at+".0.values")
	}
	labels := func(at string) {
		add(at, object{"match_labels": object{"a": `"x"`}, "match_expressions": list{object{"key": `"b"`, "operator": `"In"`, "values": list{`"x"`}}}}, object{"match_labels": object{"a": `"y"`}})
		add(at+".match_labels", object{"a": `"x"`}, object{"a": `"y"`})
		expression(at+".match_expressions", "b")
	}
	affinity := func(at string, within object) {
		whole := object{
			"cluster_names": list{`"a"`}, "exclude": list{`"b"`}, "label_selector": object{"match_labels": object{"a": `"x"`}},
			"field_selector": object{"match_expressions": list{object{"key": `"zone"`, "operator": `"In"`, "values": list{`"x"`}}}},
		}
		for name, value := range within {
			whole[name] = value
		}
		if within == nil {
			add(at, whole, object{"cluster_names": list{`"b"`}})
		}
		add(at+".cluster_names", list{`"a"`}, list{`"b"`})
		add(at+".exclude", list{`"a"`}, list{`"b"`})
		labels(at + ".label_selector")
		add(at+".field_selector", whole["field_selector"], object{})
		expression(at+".field_selector.match_expressions", "zone")
	}
	text("name", "a", "b")
	text("namespace", "default", "default")
	add("resource_selectors", list{object{"api_version": `"v1"`, "kind": `"ConfigMap"`}}, list{object{"api_version": `"v1"`, "kind": `"Secret"`}})
	text("resource_selectors.0.api_version", "v1", "v1")
	text("resource_selectors.0.kind", "ConfigMap", "Secret")
	text("resource_selectors.0.name", "a", "b")
	text("resource_selectors.0.namespace", "default", "default")
	labels("resource_selectors.0.label_selector")
	flag("propagate_deps")
	add("priority", "1", "2")
	text("preemption", "Never", "Never")
	text("conflict_resolution", "Abort", "Overwrite")
	flag("preserve_resources_on_deletion")
	text("scheduler_name", "a", "b")
	application := object{"decision_conditions": object{"toleration_seconds": "1"}, "grace_period_seconds": "1"}
	add("failover", object{"application": application}, object{})
	add("failover.application", application, object{"decision_conditions": object{}})
	add("failover.application.decision_conditions", object{"toleration_seconds": "1"}, object{})
	add("failover.application.decision_conditions.toleration_seconds", "1", "2")
	text("failover.application.purge_mode", "Gracefully", "Graciously")
	add("failover.application.grace_period_seconds", "1", "2")
	add("placement", object{"spread_constraints": list{object{"max_groups": "2"}}}, object{})
	affinity("placement.cluster_affinity", nil)
	add("placement.cluster_affinities", list{object{"affinity_name": `"a"`}}, list{object{"affinity_name": `"b"`}})
	text("placement.cluster_affinities.0.affinity_name", "a", "b")
	affinity("placement.cluster_affinities.0", object{"affinity_name": `"a"`})
	add("placement.cluster_tolerations", list{object{"key": `"a"`, "effect": `"NoExecute"`}}, list{object{"key": `"b"`}})
	const toleration = "placement.cluster_tolerations.0."
	text(toleration+"key", "a", "b")
	text(toleration+"operator", "Equal", "Exists")
	text(toleration+"value", "a", "b")
	text(toleration+"effect", "NoExecute", "NoExecute")
	add(toleration+"toleration_seconds", "1", "2")
	const spread = "placement.spread_constraints"
	add(spread, list{object{"max_groups": "2"}}, list{object{"max_groups": "3"}})
	text(spread+".0.spread_by_field", "cluster", "cluster")
	text(spread+".0.spread_by_label", "a", "b")
	add(spread+".0.min_groups", "1", "2")
	add(spread+".0.max_groups", "2", "3")
	const replicas = "placement.replica_scheduling"
	static := func(weight string) object {
		return object{"static_weight_list": list{object{"target_cluster": object{"cluster_names": list{`"a"`}}, "weight": weight}}}
	}
	add(replicas, object{"replica_scheduling_type": `"Divided"`}, object{})
	text(replicas+".replica_scheduling_type", "Divided", "Duplicated")
	text(replicas+".replica_division_preference", "Weighted", "Aggregated")
	text(replicas+".custom_scheduling_type", "Gang", "Gang")
	const weights = replicas + ".weight_preference"
	add(weights, object{}, static("2"))
	text(weights+".dynamic_weight", "AvailableReplicas", "AvailableReplicas")
	add(weights+".static_weight_list", static("1")["static_weight_list"], static("2")["static_weight_list"])
	add(weights+".static_weight_list.0.weight", "1", "2")
	add(weights+".static_weight_list.0.target_cluster", object{"cluster_names": list{`"a"`}}, object{})
	affinity(weights+".static_weight_list.0.target_cluster", object{})
	on := object{"cluster_names": list{`"a"`}}
	add("suspension", object{"scheduling": "true"}, object{})
	flag("suspension.dispatching")
	flag("suspension.scheduling")
	add("suspension.dispatching_on_clusters", on, object{})
	add("suspension.dispatching_on_clusters.cluster_names", list{`"a"`}, list{`"b"`})
	times := [2]any{`"9m"`, `"8m"`}
	add("timeouts", object{"create": `"9m"`}, object{"create": `"8m"`})
	for _, of := range []string{"create", "update", "delete"} {
		values["timeouts."+of] = times
	}
	acctest.Unknown{
		Type: "gpuplan_propagation_policy", Resource: propagationpolicy.New(),
		Base: func(name string) object {
			name = fmt.Sprintf("p-%x", sha256.Sum256([]byte(name)))[:20] // paths are longer than names may be
			return object{"name": `"` + name + `"`, "resource_selectors": list{object{"api_version": `"v1"`, "kind": `"ConfigMap"`}}}
		},
		With:   map[string]object{"failover": {"propagate_deps": "true"}},
		Values: values, Needed: needed,
	}.Test(t)
}
