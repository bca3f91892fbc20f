# A cluster without jobs: everything that a job needs.
resource "gpuplan_node_pool" "v100" {
  name          = "acctest"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  labels        = { team = "research" }
}

resource "gpuplan_scheduler" "this" {
  image = "gpuplan-scheduler:local"
}

resource "gpuplan_node_agent" "this" {
  image = "gpuplan-node-agent:local"
}

resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "16" }
  quotas = {
    "research"        = { min = { "aliyun.com/gpu" = "8" } }
    "research/vision" = { max = { "aliyun.com/gpu" = "12" }, namespaces = ["vision"] }
  }
  depends_on = [gpuplan_scheduler.this]
}
