package server_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// Numbers and names that cannot be meant fail at plan, at their attribute, in plain words.
func TestWhatCannotBeMeant(t *testing.T) {
	acctest.ClearEnv(t)
	t.Setenv("HOME", t.TempDir())
	pool := func(size string) string {
		return `resource "gpuplan_node_pool" "p" {
  name          = "p"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = ` + size + `
  vswitch_ids   = ["vsw-1"]
}`
	}
	job := func(role, more string) string {
		return `resource "gpuplan_training_job" "j" {
  name      = "j"
  framework = "pytorch"
  image     = "x"
  roles     = { worker = { ` + role + ` } }
  ` + more + `
}`
	}
	data := func(role, more string) string {
		return `data "gpuplan_placement" "d" {
  roles = { worker = { ` + role + ` } }
  ` + more + `
}`
	}
	for name, test := range map[string]struct{ config, says string }{
		"half a node":             {pool("1.5"), "size is 1.5: write a whole number."},
		"half a node, computed":   {pool("3 / 2"), "size is 1.5: write a whole number."},
		"more nodes than numbers": {pool("1e30"), "size is 1e+30: no number of that size can be meant."},
		"replicas":                {job("gpus = 1, replicas = 2147483647", ""), `roles["worker"].replicas: the job has 2147483647 replicas, at most 10000 are possible.`},
		"replicas, asked for":     {data("gpus = 1, replicas = 2147483647", ""), `roles["worker"].replicas: the job has 2147483647 replicas, at most 10000 are possible.`},
		"half a replica":          {job("gpus = 1, replicas = 0.5", ""), `roles["worker"].replicas is 0.5: write a whole number.`},
		"size of a pool, tried":   {data("gpus = 1", "pool_sizes = { v100 = 100000000 }"), "value must be between 0 and 2000, got: 100000000"},
		"memory without a unit":   {job(`gpus = 1, memory = "64"`, ""), `roles["worker"].memory: 64 is 64 bytes: write "64Gi" if you mean that`},
		"memory, asked for":       {data(`gpus = 1, memory = "64"`, ""), `roles["worker"].memory: 64 is 64 bytes: write "64Gi" if you mean that`},
		"an amount of hours":      {job(`gpus = 1, cpu = "1e-99999999"`, ""), `roles["worker"].cpu: "1e-99999999" is not an amount`},
		"after itself":            {job("gpus = 1", `after = ["default/j#unplanned"]`), "after of job default/j names the job itself: leave it out."},
		"after nothing":           {job("gpus = 1", `after = ["other"]`), `after names a job by "other"`},
		"negative time":           {job("gpus = 1", `timeouts = { create = "-5m" }`), `timeouts.create: "-5m" must be a positive duration`},
		"reserved label":          {job("gpus = 1", `labels = { "gpu-topology" = "x" }`), "labels: gpu-topology is set by the attribute gang: leave it out."},
		"variable of the job":     {job("gpus = 1", `env = { "A=B" = "" }`), `env: "A=B" cannot be the name of a variable`},
		"null in a list":          {job("gpus = 1", `command = [null]`), "command[0] is null: leave it out."},
		"a quota without a name": {`resource "gpuplan_quota_tree" "t" {
  total  = { cpu = "1" }
  quotas = { "" = {} }
}`, `quotas[""]: this is not a path of names.`},
	} {
		t.Run(name, func(t *testing.T) {
			resource.UnitTest(t, resource.TestCase{Steps: []resource.TestStep{{
				ProtoV6ProviderFactories: acctest.Providers(), Config: test.config, PlanOnly: true, ExpectError: acctest.Saying(test.says),
			}}})
		})
	}
}
