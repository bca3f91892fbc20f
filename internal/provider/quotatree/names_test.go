package quotatree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// A typo in the name of a resource for GPUs takes the limit away, which a plan says; what others
// than this provider's jobs may ask for is left alone.
func TestNamesOfResources(t *testing.T) {
	const gpus = "aliyun.com/gpu"
	tree := func(total string, leaf quota.Spec) quota.Spec {
		amounts := quota.Resources{total: 16}
		leaf.Name = "research"
		return quota.Spec{Name: quota.RootName, Min: amounts, Max: amounts, Children: []quota.Spec{leaf}}
	}
	for name, test := range map[string]struct {
		spec quota.Spec
		want []string
	}{
		"known names": {tree(gpus, quota.Spec{Max: quota.Resources{"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": 1, "aliyun.com/gpu-core.percentage": 1, "cpu": 1, "memory": 1}}), nil},
		"a maximum": {tree(gpus, quota.Spec{Max: quota.Resources{"aliyun.com/gpus": 8}}), []string{
			`quotas["research"].max["aliyun.com/gpus"]: no gpuplan_training_job is charged for "aliyun.com/gpus", so this does not limit any. Did you mean aliyun.com/gpu?`}},
		"a minimum": {tree(gpus, quota.Spec{Min: quota.Resources{"aliyun.com/gpu-memory": 8}}), []string{
			`quotas["research"].min["aliyun.com/gpu-memory"]: no gpuplan_training_job is charged for "aliyun.com/gpu-memory", so this does not limit any. Did you mean aliyun.com/gpu-mem?`}},
		"a lend limit": {tree(gpus, quota.Spec{LendLimit: quota.Resources{"aliyun.com/gpu-core": 8}}), []string{
			`quotas["research"].lend_limit["aliyun.com/gpu-core"]: no gpuplan_training_job is charged for "aliyun.com/gpu-core", so this does not limit any. Did you mean aliyun.com/gpu-core.percentage?`}},
		"the total, once": {tree("nvidia.com/gpus", quota.Spec{Min: quota.Resources{"nvidia.com/gpus": 8}, Max: quota.Resources{"nvidia.com/gpus": 8}}), []string{
			`total["nvidia.com/gpus"]: no gpuplan_training_job is charged for "nvidia.com/gpus", so this does not limit any. Did you mean nvidia.com/gpu?`}},
		"nothing like it": {tree("aliyun.com/something-quite-different", quota.Spec{}), []string{
			`total["aliyun.com/something-quite-different"]: no gpuplan_training_job is charged for "aliyun.com/something-quite-different", so this does not limit any.`}},
		"what others ask for": {tree("nvidia.com/mig-1g.5gb", quota.Spec{Max: quota.Resources{"nvidia.com/gpu.shared": 1, "aliyun/erdma": 200, "example.com/gpus": 1}}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			for _, d := range checkNames(test.spec).Warnings() {
				said = append(said, d.Detail())
			}
			assert.Equal(t, test.want, said)
		})
	}
}
