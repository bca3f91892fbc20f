package propagationpolicy

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &data))
	return data
}

// A policy and what a hub makes of it are the same; whatever means something else is not.
func TestMinimal(t *testing.T) {
	const gang = "placement: {replicaScheduling: {customSchedulingType: Gang}}\n"
	for name, test := range map[string]struct {
		written, live string
		same          bool
	}{
		"defaults of the CRD":    {"{}", "{priority: 0, preemption: Never, conflictResolution: Abort, schedulerName: default-scheduler}", true},
		"another priority":       {"{}", "{priority: 1}", false},
		"no deps":                {"{propagateDeps: false}", "{}", true},
		"empty objects":          {"{failover: {}, placement: {}, suspension: {}}", "{}", true},
		"empty below":            {"{placement: {clusterAffinity: {labelSelector: {matchLabels: {}}, fieldSelector: {}, clusterNames: []}, clusterTolerations: []}}", "{}", true},
		"empty groups":           {"{placement: {clusterAffinities: [{affinityName: a, labelSelector: {}}]}}", "{placement: {clusterAffinities: [{affinityName: a}]}}", true},
		"namespace of selectors": {"{resourceSelectors: [{apiVersion: v1, kind: A}]}", "{resourceSelectors: [{apiVersion: v1, kind: A, namespace: here}]}", true},
		"another namespace":      {"{resourceSelectors: [{apiVersion: v1, kind: A}]}", "{resourceSelectors: [{apiVersion: v1, kind: A, namespace: there}]}", false},
		"order of selectors":     {"{resourceSelectors: [{kind: A}, {kind: B}]}", "{resourceSelectors: [{kind: B}, {kind: A}]}", false},
		"failover":               {"{failover: {application: {decisionConditions: {}}}}", "{failover: {application: {decisionConditions: {tolerationSeconds: 300}, purgeMode: Gracefully, gracePeriodSeconds: 600}}}", true},
		"no failover":            {"{}", "{failover: {application: {decisionConditions: {}}}}", false},
		"no patience":            {"{failover: {application: {decisionConditions: {}}}}", "{failover: {application: {decisionConditions: {tolerationSeconds: 0}}}}", false},
		"grace of another mode":  {"{failover: {application: {purgeMode: Never}}}", "{failover: {application: {purgeMode: Never, gracePeriodSeconds: 600}}}", false},
		"spread":                 {"{placement: {spreadConstraints: [{maxGroups: 2}]}}", "{placement: {spreadConstraints: [{spreadByField: cluster, minGroups: 1, maxGroups: 2}]}}", true},
		"spread by label":        {"{placement: {spreadConstraints: [{spreadByLabel: a}]}}", "{placement: {spreadConstraints: [{spreadByLabel: a, spreadByField: cluster}]}}", false},
		"replicas":               {"{placement: {replicaScheduling: {}}}", "{placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: {}}}}", true},
		"no replicas":            {"{}", "{placement: {replicaScheduling: {}}}", false},
		"duplicated":             {"{placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}}", "{placement: {replicaScheduling: {replicaSchedulingType: Duplicated, replicaDivisionPreference: Weighted}}}", false},
		"scheduler of gangs":     {gang, gang + "schedulerName: gpuplan-fleet-scheduler", true},
		"without gangs":          {"{}", "{schedulerName: gpuplan-fleet-scheduler}", false},
		"nothing waits":          {"{suspension: {dispatching: false, dispatchingOnClusters: {clusterNames: []}}}", "{}", true},
		"it waits":               {"{}", "{suspension: {scheduling: true}}", false},
		"fields of others":       {"{}", "{activationPreference: Lazy, failover: {cluster: {purgeMode: Directly}}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			written, err := minimal(parse(t, test.written), "here")
			require.NoError(t, err)
			live, err := minimal(parse(t, test.live), "here")
			require.NoError(t, err)
			assert.Equal(t, test.same, assert.ObjectsAreEqual(written, live), "%v %v", written, live)
		})
	}
	_, err := minimal(map[string]any{"priority": "high"}, "here")
	assert.ErrorContains(t, err, "the policy is not what its kind promises")
}

func TestComplete(t *testing.T) {
	for written, want := range map[string]string{
		"{resourceSelectors: [{kind: A, namespace: here}, {kind: B}], suspension: {}}": "{resourceSelectors: [{kind: A, namespace: here}, {kind: B, namespace: here}]}",
		"{failover: {application: {decisionConditions: {}, purgeMode: Gracefully}}}":   "{failover: {application: {decisionConditions: {tolerationSeconds: 300}, purgeMode: Gracefully}}}",
		"{placement: {clusterAffinity: {}, replicaScheduling: {}}}":                    "{placement: {replicaScheduling: {replicaSchedulingType: Divided}}}",
		"{preemption: Never, schedulerName: default-scheduler}":                        "{preemption: Never, schedulerName: default-scheduler}",
	} {
		got, err := complete(parse(t, written), "here")
		require.NoError(t, err)
		text, err := yaml.Marshal(got)
		require.NoError(t, err)
		assert.YAMLEq(t, want, string(text), written)
	}
}

// What others have added is taken out, as high up as it is theirs alone.
func TestAdded(t *testing.T) {
	ours := parse(t, "{a: 1, b: {c: 1, d: {e: 1}}, l: [1]}")
	theirs := parse(t, "{a: 2, b: {c: 1, d: {e: 1, f: 2}, g: {h: 1}}, l: [2], m: {n: 1}}")
	assert.Equal(t, map[string]any{"b": map[string]any{"d": map[string]any{"f": nil}, "g": nil}, "m": nil}, added(ours, theirs))
	assert.Empty(t, added(ours, ours))
}

// Values go to a policy and come back; what is unknown is left out, what has another type is null.
func TestValues(t *testing.T) {
	kind := types.ObjectType{AttrTypes: map[string]attr.Type{
		"api_version": types.StringType, "min_groups": types.Int64Type, "propagate_deps": types.BoolType,
		"match_labels": types.MapType{ElemType: types.StringType}, "cluster_names": types.ListType{ElemType: types.StringType},
	}}
	data := map[string]any{"apiVersion": "v1", "minGroups": int64(2), "propagateDeps": true, "matchLabels": map[string]any{"a_b": "c"}, "clusterNames": []any{"x"}}
	value := decode(kind, data)
	assert.Equal(t, data, encode(value))
	assert.False(t, value.IsNull())
	assert.Equal(t, map[string]any{}, encode(decode(kind, map[string]any{"apiVersion": nil, "minGroups": nil, "matchLabels": "x", "clusterNames": 1})))
	assert.True(t, decode(kind, nil).IsNull())
	assert.Nil(t, encode(types.StringUnknown()))
	assert.Equal(t, "replicaSchedulingType", field("replica_scheduling_type"))
	assert.Equal(t, "kind", field("kind"))
}
