variable "first" { default = true }
variable "label" { default = "a" }

resource "gpuplan_node_pool" "v100" {
  name          = "queue"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

resource "gpuplan_quota_tree" "this" {
  total = { "aliyun.com/gpu" = "8" }
  quotas = {
    "one-at-a-time" = { max_jobs = 1, namespaces = ["default"] }
  }
  depends_on = [gpuplan_scheduler.this]
}

resource "gpuplan_training_job" "first" {
  count     = var.first ? 1 : 0
  name      = "first"
  framework = "pytorch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  queue     = true
  labels    = { note = var.label }
  roles     = { master = { gpus = 4 } }
  timeouts  = { create = "10m" }

  depends_on = [gpuplan_quota_tree.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "second" {
  name      = "second"
  framework = "pytorch"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  queue     = true
  wait_for  = "none"
  roles     = { master = { gpus = 4 } }

  depends_on = [gpuplan_training_job.first]
}

data "gpuplan_queues" "now" {
  depends_on = [gpuplan_training_job.second]
}

data "gpuplan_gpu_nodes" "now" {
  pool       = gpuplan_node_pool.v100.name
  depends_on = [gpuplan_training_job.second]
}
