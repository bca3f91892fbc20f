variable "running" { default = true }
variable "waiting" { default = false }
variable "size" { default = 2 }
variable "placement_check" { default = null }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = var.size
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_pool" "regular" {
  name          = "regular"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "default"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

# May use the whole cluster.
resource "gpuplan_training_job" "anywhere" {
  count      = var.running ? 1 : 0
  name       = "anywhere"
  framework  = "mpi"
  image      = "train:1"
  roles      = { worker = { replicas = 4, gpus = 1 } }
  timeouts   = { create = "10m" }
  depends_on = [gpuplan_node_pool.v100, gpuplan_scheduler.this, gpuplan_node_agent.this]
}

# The device plugin picks the GPUs.
resource "gpuplan_training_job" "regular" {
  count      = var.running ? 1 : 0
  name       = "regular"
  framework  = "mpi"
  image      = "train:1"
  mode       = "default"
  pools      = [gpuplan_node_pool.regular.capacity]
  roles      = { worker = { replicas = 4, gpus = 1 } }
  timeouts   = { create = "10m" }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

# Nothing is promised of a job of the cluster's own scheduler.
resource "gpuplan_training_job" "stock" {
  count          = var.running ? 1 : 0
  name           = "stock"
  framework      = "pytorch"
  image          = "train:1"
  mode           = "default"
  scheduler_name = "default-scheduler"
  gang           = { enabled = false }
  pools          = [gpuplan_node_pool.regular.capacity]
  after          = gpuplan_training_job.regular[*].placed
  roles          = { worker = { replicas = 2, gpus = 2 } }
  timeouts       = { create = "10m" }
}

data "gpuplan_training_job" "stock" {
  count      = var.running ? 1 : 0
  id         = gpuplan_training_job.stock[0].id
  depends_on = [gpuplan_training_job.stock]
}

# Is gone as soon as it has finished.
resource "gpuplan_training_job" "brief" {
  count                      = var.running ? 1 : 0
  name                       = "brief"
  framework                  = "pytorch"
  image                      = "train:1"
  pools                      = [gpuplan_node_pool.v100.capacity]
  after                      = gpuplan_training_job.anywhere[*].placed
  annotations                = { "local.gpuplan.dev/run-for" = "1s" }
  wait_for                   = "succeeded"
  ttl_seconds_after_finished = 0
  roles                      = { worker = { gpus = 1 } }
  timeouts                   = { create = "10m" }
}

# Fits when the pool has a third node.
resource "gpuplan_training_job" "waits" {
  count           = var.waiting ? 1 : 0
  name            = "waits"
  framework       = "mpi"
  image           = "train:1"
  placement_check = var.placement_check
  pools           = var.size > 2 ? [gpuplan_node_pool.v100.capacity] : null
  roles           = { worker = { replicas = 20, gpus = 1 } }
  timeouts        = { create = var.size > 2 ? "10m" : "20s" }
  depends_on      = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
