package placement

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func TestRequirements(t *testing.T) {
	labels := map[string]string{"gen": "10", "disk": "ssd"}
	cases := []struct {
		r    Requirement
		want bool
	}{
		{Requirement{"disk", "In", []string{"hdd", "ssd"}}, true},
		{Requirement{"disk", "In", []string{"hdd"}}, false},
		{Requirement{"none", "In", []string{""}}, false},
		{Requirement{"disk", "NotIn", []string{"hdd"}}, true},
		{Requirement{"disk", "NotIn", []string{"ssd"}}, false},
		{Requirement{"none", "NotIn", []string{"ssd"}}, true},
		{Requirement{"disk", "Exists", nil}, true},
		{Requirement{"none", "Exists", nil}, false},
		{Requirement{"disk", "DoesNotExist", nil}, false},
		{Requirement{"none", "DoesNotExist", nil}, true},
		{Requirement{"gen", "Gt", []string{"9"}}, true},
		{Requirement{"gen", "Gt", []string{"10"}}, false},
		{Requirement{"gen", "Lt", []string{"11"}}, true},
		{Requirement{"gen", "Lt", []string{"9"}}, false},
		{Requirement{"gen", "Lt", []string{"x"}}, false},
		{Requirement{"disk", "Gt", []string{"1"}}, false},
		{Requirement{"gen", "Gt", []string{"1", "2"}}, false},
		{Requirement{"none", "Gt", []string{"1"}}, false},
		{Requirement{"gen", "Near", []string{"1"}}, false},
		{Requirement{FieldName, "In", []string{"n0", "n1"}}, true},
		{Requirement{FieldName, "In", []string{"n2"}}, false},
		{Requirement{FieldName, "NotIn", []string{"n1"}}, false},
	}
	for _, c := range cases {
		n := Node{Name: "n1", Labels: labels}
		assert.Equal(t, c.want, n.meetsAll([]Requirement{c.r}), "%+v", c.r)
	}
	assert.False(t, (&Node{Labels: labels}).meetsAll(nil), "an empty term matches nothing")
}

func TestTolerations(t *testing.T) {
	taint := Taint{Key: "team", Value: "a", Effect: "NoSchedule"}
	cases := []struct {
		t    Toleration
		want bool
	}{
		{Toleration{Key: "team", Operator: "Equal", Value: "a", Effect: "NoSchedule"}, true},
		{Toleration{Key: "team", Value: "a"}, true},
		{Toleration{Key: "team", Value: "b"}, false},
		{Toleration{Key: "team", Operator: "Exists"}, true},
		{Toleration{Key: "team", Operator: "Exists", Effect: "NoExecute"}, false},
		{Toleration{Operator: "Exists"}, true},
		{Toleration{}, false},
		{Toleration{Key: "other", Operator: "Exists"}, false},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, Tolerated(&taint, []Toleration{c.t}), "%+v", c.t)
	}
	assert.Equal(t, "team=a:NoSchedule", taint.String())
	assert.Equal(t, "team:NoExecute", Taint{Key: "team", Effect: "NoExecute"}.String())
}

func TestProblemsOfRequests(t *testing.T) {
	cases := map[string]Request{
		"negative amount":    {Resources: Resources{MilliCPU: -1}},
		"without a mode":     {GPUs: 1},
		"no GPU in mode":     {Mode: ModeTopology},
		"a part of a GPU":    {Mode: ModeDefault, GPUs: 1, MemoryGiB: 4},
		"no GPU memory":      {Mode: ModeShare},
		"equal whole GiB":    {Mode: ModeShare, GPUs: 3, MemoryGiB: 10},
		"on several GPUs":    {Mode: ModeCoreMem, GPUs: 2, MemoryGiB: 10, CorePercent: 50},
		"multiple of 5":      {Mode: ModeCoreMem, MemoryGiB: 10, CorePercent: 7},
		"from 5 to 100":      {Mode: ModeCoreMem, MemoryGiB: 10, CorePercent: 105},
		"not planned":        {Mode: "mig"},
		"negative amount of": {Resources: Resources{Extended: map[string]int64{"aliyun/erdma": -1}}},
	}
	for want, r := range cases {
		assert.Contains(t, r.Problem(), want)
	}
	for _, r := range []Request{{}, {Mode: ModeTopology, GPUs: 8}, {Mode: ModeMPS, MemoryGiB: 7}, {Mode: ModeCoreMem, MemoryGiB: 1, CorePercent: 5}} {
		assert.Empty(t, r.Problem())
	}
}

// TestResourceNames holds the planner to the names that all parts share.
func TestResourceNames(t *testing.T) {
	assert.Equal(t, contract.ResourceDefaultGPU, defaultGPUResource)
	assert.Equal(t, contract.ResourceTopologyGPU, topologyResource)
	assert.Equal(t, contract.ResourceGPUMemory, gpuMemoryResource)
	assert.Equal(t, contract.ResourceCorePercent, corePercentResource)
}
