variable "suspend" { default = false }
variable "team" { default = "vision" }
variable "deadline" { default = null }
variable "image" { default = "train:1" }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_pool" "shared" {
  name          = "shared"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "core_mem"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

# A gang of four, each of which knows its number.
resource "gpuplan_training_job" "sweep" {
  name                    = "sweep"
  framework               = "batch"
  image                   = var.image
  command                 = ["sh", "-c", "train --shard $JOB_COMPLETION_INDEX"]
  pools                   = [gpuplan_node_pool.v100.capacity]
  suspend                 = var.suspend
  active_deadline_seconds = var.deadline
  labels                  = { team = var.team }

  roles    = { worker = { replicas = 4, gpus = 2 } }
  timeouts = { create = "10m", update = "10m" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

# Alibaba Cloud's example of shared GPUs.
resource "gpuplan_training_job" "sample" {
  name        = "cuda-sample"
  framework   = "batch"
  image       = "gpushare-sample:tensorflow-1.5"
  command     = ["python", "tensorflow-sample-code/tfjob/docker/mnist/main.py"]
  mode        = "shared"
  pools       = [gpuplan_node_pool.shared.capacity]
  annotations = { "local.gpuplan.dev/run-for" = "1s" }
  wait_for    = "succeeded"

  roles    = { worker = { replicas = 1, memory_gib = 2, core_percent = 30 } }
  timeouts = { create = "10m" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
