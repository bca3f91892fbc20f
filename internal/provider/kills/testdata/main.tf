# Every resource once or more, with jobs that wait for each other.
terraform {
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

variable "size" { default = 2 }
variable "image" { default = "train:1" }
variable "limit" { default = "16" }
variable "more" {
  type    = set(string)
  default = ["a", "b"]
}

resource "gpuplan_node_pool" "v100" {
  name          = "kills"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = var.size
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  labels        = { team = "kills-${var.size}" }
}

resource "gpuplan_node_pool" "regular" {
  name          = "regular"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  vswitch_ids   = ["vsw-1"]
}

# The change takes a node from one pool, and replaces the other.
resource "gpuplan_node_pool" "shrinks" {
  name          = "shrinks"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 4 - var.size
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_pool" "replaced" {
  name          = "replaced"
  instance_type = var.size == 2 ? "ecs.gn6v-c10g1.20xlarge" : "ecs.gn6v-c8g1.16xlarge"
  size          = 1
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_scheduler_config" "this" {
  pod_max_backoff_seconds = 10 * var.size
}

resource "gpuplan_node_agent" "this" {
  image = "gpuplan-node-agent:local"
}

resource "gpuplan_scheduler" "this" {
  image    = "gpuplan-scheduler:local"
  replicas = 1
}

resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "24", "nvidia.com/gpu" = "8" }
  quotas = {
    vision = { max = { "aliyun.com/gpu" = var.limit } }
  }
  depends_on = [gpuplan_scheduler.this]
}

resource "gpuplan_training_job" "mpi" {
  name             = "kills-mpi"
  framework        = "mpi"
  image            = var.image
  command          = ["train"]
  arena_compatible = true
  pools            = [gpuplan_node_pool.v100.capacity]
  quota            = gpuplan_quota_tree.main.leaves["vision"]
  roles            = { worker = { replicas = 6, gpus = 1 } }
  depends_on       = [gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "pytorch" {
  name       = "kills-pytorch"
  framework  = "pytorch"
  image      = "mnist:1"
  pools      = [gpuplan_node_pool.v100.capacity]
  after      = [gpuplan_training_job.mpi.placed]
  roles      = { master = { gpus = 1 }, worker = { replicas = 3, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this]
}

resource "gpuplan_training_job" "each" {
  for_each   = var.more
  name       = "kills-each-${each.key}"
  framework  = "pytorch"
  image      = "train:1"
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { worker = { replicas = 1, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "jobset" {
  name       = "kills-jobset"
  framework  = "jobset"
  image      = var.image
  pools      = [gpuplan_node_pool.v100.capacity]
  roles      = { actor = { replicas = 1, gpus = 1 }, learner = { replicas = 1, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "batch" {
  name        = "kills-batch"
  framework   = "batch"
  image       = "train:1"
  pools       = [gpuplan_node_pool.v100.capacity]
  roles       = { worker = { replicas = 1, gpus = 1 } }
  volumes     = { logs = { claim = "kills-logs", mount_path = "/logs" } }
  tensorboard = { log_dir = "/logs/${var.size}" }
  depends_on  = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
