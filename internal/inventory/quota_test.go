package inventory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory/podtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

func TestQuotaSpec(t *testing.T) {
	spec, err := QuotaSpec(podtest.QuotaTree(map[string]any{
		"name": "anything",
		"min":  map[string]any{"cpu": "1500m", "memory": "1Gi", "aliyun.com/gpu": int64(8)},
		"max":  map[string]any{"cpu": "1500m", "memory": "1Gi", "aliyun.com/gpu": "8", "kube-queue/max-jobs": "3"},
		"children": []any{map[string]any{
			"name":       "leaf",
			"namespaces": []any{"a", "b"},
			"attributes": map[string]any{"alibabacloud.com/lendlimit": `{"aliyun.com/gpu":"2"}`},
		}},
	}))
	require.NoError(t, err)
	assert.Equal(t, quota.Spec{
		Name:    "root",
		Min:     quota.Resources{"cpu": 1500, "memory": 1 << 30, "aliyun.com/gpu": 8},
		Max:     quota.Resources{"cpu": 1500, "memory": 1 << 30, "aliyun.com/gpu": 8},
		MaxJobs: 3,
		Children: []quota.Spec{{
			Name: "leaf", Namespaces: []string{"a", "b"}, LendLimit: quota.Resources{"aliyun.com/gpu": 2},
		}},
	}, spec)
}

// What stands for no limit stays above all that a cluster has, and what is negative stays so, within int64 in each unit.
func TestQuotaAmountsBeyondInt64(t *testing.T) {
	for text, want := range map[string]quota.Resources{
		"9223372036854775807":  {"cpu": mostQuota, "memory": mostQuota},
		"1E":                   {"cpu": mostQuota, "memory": mostQuota},
		"10P":                  {"cpu": mostQuota, "memory": 10_000_000_000_000_000},
		"1e30":                 {"cpu": mostQuota, "memory": mostQuota},
		"64Pi":                 {"cpu": mostQuota, "memory": mostQuota},
		"-9223372036854775807": {"cpu": -mostQuota, "memory": -mostQuota},
		"-1e30":                {"cpu": -mostQuota, "memory": -mostQuota},
		"-1":                   {"cpu": -1000, "memory": -1},
		"70T":                  {"cpu": 70_000_000_000_000_000, "memory": 70_000_000_000_000},
	} {
		amounts := map[string]any{"cpu": text, "memory": text}
		spec, err := QuotaSpec(podtest.QuotaTree(map[string]any{"min": amounts, "max": amounts}))
		require.NoError(t, err)
		assert.Equal(t, want, spec.Min, text)
		assert.Equal(t, want, spec.Max, text)
		_, err = quota.New(spec)
		assert.Equal(t, strings.HasPrefix(text, "-"), err != nil, "%s: %v", text, err)
	}
}

func TestQuotaSpecErrors(t *testing.T) {
	tests := map[string]struct {
		root map[string]any
		want string
	}{
		"quantity": {map[string]any{"max": map[string]any{"cpu": "much"}}, "ElasticQuotaTree tree: root: max cpu is \"much\""},
		"below":    {map[string]any{"children": []any{map[string]any{"name": "leaf", "min": map[string]any{"cpu": true}}}}, "root/leaf: min cpu is true"},
		"lend limit": {map[string]any{"attributes": map[string]any{"alibabacloud.com/lendlimit": "2"}},
			"root: attribute alibabacloud.com/lendlimit"},
		"form": {map[string]any{"children": "none"}, "ElasticQuotaTree tree"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := QuotaSpec(podtest.QuotaTree(test.root))
			assert.ErrorContains(t, err, test.want)
		})
	}
}
