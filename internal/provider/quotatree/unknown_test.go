package quotatree_test

import (
	"testing"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/quotatree"
)

// Whatever is unknown of a tree until apply, the plan has not said what the apply does otherwise.
func TestUnknownAttributes(t *testing.T) {
	installKind(t, acctest.StartCloud(t))
	type object = acctest.Object
	type list = acctest.List
	const gpus, node = `"aliyun.com/gpu"`, "quotas.a."
	amounts := [2]any{object{gpus: `"4"`}, object{gpus: `"2"`}}
	numbers, times := [2]any{"2", "1"}, [2]any{`"9m"`, `"8m"`}
	acctest.Unknown{
		Type: "gpuplan_quota_tree", Resource: quotatree.New(), One: true,
		Base: func(string) object {
			return object{"total": object{gpus: `"16"`}, "quotas": object{"a": object{"min": object{gpus: `"4"`}}}}
		},
		Values: map[string][2]any{
			"allow_disruption": {"true", "false"}, "max_jobs": numbers, "total": {object{gpus: `"32"`}, object{gpus: `"16"`}},
			"quotas":     {object{"a": object{"min": object{gpus: `"4"`}}}, object{"a": object{}, "b": object{}}},
			node + "min": amounts, node + "max": {object{gpus: `"8"`}, object{gpus: `"6"`}}, node + "lend_limit": amounts, node + "max_jobs": numbers, node + "namespaces": {list{`"a"`}, list{`"b"`}},
			"timeouts": {object{"create": `"9m"`}, object{"create": `"8m"`}}, "timeouts.create": times, "timeouts.update": times, "timeouts.delete": times,
		},
	}.Test(t)
}
