package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/fleet"
)

// cluster is a member cluster as a hub has it.
func cluster(t *testing.T, text string) *contract.FleetCluster {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	c, err := contract.FleetClusterOf(object)
	require.NoError(t, err)
	return c
}

func TestWhereAJobMayGo(t *testing.T) {
	const ready = `
metadata: {name: m, labels: {tier: gpu}}
spec: {provider: aliyun, region: cn-hangzhou, zones: [h, i]}
status:
  conditions: [{type: Ready, status: "True"}]
  apiEnablements: [{groupVersion: kubeflow.org/v1, resources: [{kind: PyTorchJob}]}]`
	for name, test := range map[string]struct {
		placement, cluster, barred string
		weight                     int64
		term                       int
	}{
		"anywhere":             {},
		"by name":              {placement: `{clusterAffinity: {clusterNames: [m, other]}}`},
		"another name":         {placement: `{clusterAffinity: {clusterNames: [other]}}`, barred: "the policy's affinity does not select it"},
		"excluded":             {placement: `{clusterAffinity: {exclude: [m]}}`, barred: "the policy's affinity does not select it"},
		"by labels":            {placement: `{clusterAffinity: {labelSelector: {matchLabels: {tier: gpu}}}}`},
		"other labels":         {placement: `{clusterAffinity: {labelSelector: {matchLabels: {tier: cpu}}}}`, barred: "the policy's affinity does not select it"},
		"labels that are none": {placement: `{clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Near}]}}}`, barred: `the policy's affinity cannot be used: "Near" is not a valid label selector operator`},
		"by zones":             {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [g, h, i]}]}}}`},
		"in other zones, too":  {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [i]}]}}}`, barred: "the policy's affinity does not select it"},
		"not in these zones":   {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [g]}]}}}`},
		"in one of them":       {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [g, i]}]}}}`, barred: "the policy's affinity does not select it"},
		"by region":            {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [cn-hangzhou]}, {key: provider, operator: NotIn, values: [other]}]}}}`},
		"another region":       {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [cn-hangzhou]}]}}}`, barred: "the policy's affinity does not select it"},
		"an unknown field":     {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: color, operator: In, values: [i]}]}}}`, barred: `the policy's affinity cannot be used: fieldSelector has the key "color"; it may have provider, region and zone`},
		"an unknown operator":  {placement: `{clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}}`, barred: `the policy's affinity cannot be used: fieldSelector has the operator "Exists"; it may have In and NotIn`},
		"the second affinity":  {placement: `{clusterAffinities: [{affinityName: a, clusterNames: [other]}, {affinityName: b, clusterNames: [m]}, {affinityName: c}]}`, term: 1},
		"none of them":         {placement: `{clusterAffinities: [{affinityName: a, clusterNames: [other]}]}`, barred: "the policy's affinity does not select it"},
		"not ready":            {cluster: `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "False"}]}}`, barred: "it is not ready"},
		"without the kind":     {cluster: `{metadata: {name: m}, status: {conditions: [{type: Ready, status: "True"}]}}`, barred: "it does not serve PyTorchJob of kubeflow.org/v1"},
		"being removed":        {cluster: `{metadata: {name: m, deletionTimestamp: "2026-01-01T00:00:00Z"}}`, barred: "it is being removed from the fleet"},
		"weights":              {placement: `{replicaScheduling: {weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [m]}, weight: 2}, {targetCluster: {labelSelector: {matchLabels: {tier: gpu}}}, weight: 5}, {targetCluster: {clusterNames: [other]}, weight: 9}]}}}`, weight: 5},
	} {
		t.Run(name, func(t *testing.T) {
			text := test.placement
			if text == "" {
				text = "{}"
			}
			var rules fleet.Rules
			require.NoError(t, yaml.Unmarshal([]byte(text), &rules))
			text = test.cluster
			if text == "" {
				text = ready
			}
			c := cluster(t, text)
			term, barred := rules.Bars(c, schema.GroupVersionKind{Group: contract.KubeflowGroup, Version: "v1", Kind: contract.PyTorchJobKind})
			assert.Equal(t, test.barred, barred)
			assert.Equal(t, test.term, term)
			assert.Equal(t, test.weight, rules.Weight(c))
		})
	}
}

func TestTaintsOfClusters(t *testing.T) {
	for name, test := range map[string]struct{ taint, tolerations, barred string }{
		"nobody tolerates it":    {`{key: a, value: b, effect: NoSchedule}`, `[]`, "it has the taint a=b:NoSchedule, which the policy does not tolerate"},
		"evicting":               {`{key: a, effect: NoExecute}`, `[]`, "it has the taint a:NoExecute, which the policy does not tolerate"},
		"preferred":              {`{key: a, effect: PreferNoSchedule}`, `[]`, ""},
		"any taint":              {`{key: a, effect: NoSchedule}`, `[{operator: Exists}]`, ""},
		"the value":              {`{key: a, value: b, effect: NoSchedule}`, `[{key: a, value: b}]`, ""},
		"another value":          {`{key: a, value: b, effect: NoSchedule}`, `[{key: a, value: c}]`, "it has the taint a=b:NoSchedule, which the policy does not tolerate"},
		"another effect":         {`{key: a, effect: NoExecute}`, `[{key: a, operator: Exists, effect: NoSchedule}]`, "it has the taint a:NoExecute, which the policy does not tolerate"},
		"a toleration of no key": {`{key: a, effect: NoSchedule}`, `[{value: ""}]`, "it has the taint a:NoSchedule, which the policy does not tolerate"},
	} {
		t.Run(name, func(t *testing.T) {
			var rules fleet.Rules
			require.NoError(t, yaml.Unmarshal([]byte(`clusterTolerations: `+test.tolerations), &rules))
			c := cluster(t, `{metadata: {name: m}, spec: {taints: [`+test.taint+`]}, status: {conditions: [{type: Ready, status: "True"}], apiEnablements: [{groupVersion: batch/v1, resources: [{kind: Job}]}]}}`)
			_, barred := rules.Bars(c, batchv1.SchemeGroupVersion.WithKind(contract.BatchJobKind))
			assert.Equal(t, test.barred, barred)
		})
	}
}
