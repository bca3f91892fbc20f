# What every cluster has: a pool of GPU nodes, the programs that place jobs on them, and the jobs of a release.

terraform {
  required_version = ">= 1.11"
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

variable "pool" {
  description = "The pool of this cluster."
  type        = object({ name = string, instance_type = string, size = number, vswitch_ids = set(string) })
}

variable "images" {
  description = "Images of the scheduler and the node agent."
  type        = object({ scheduler = string, node_agent = string })
}

variable "release" {
  description = "What is promoted from one cluster to the next."
  type        = object({ jobs = map(object({ image = string, command = list(string), workers = number })) })
}

resource "gpuplan_node_pool" "gpu" {
  name          = var.pool.name
  instance_type = var.pool.instance_type
  size          = var.pool.size
  mode          = "topology"
  vswitch_ids   = var.pool.vswitch_ids
}

resource "gpuplan_scheduler" "this" {
  image    = var.images.scheduler
  replicas = 1
}

resource "gpuplan_node_agent" "this" {
  image = var.images.node_agent
}

resource "gpuplan_training_job" "release" {
  for_each  = var.release.jobs
  name      = each.key
  framework = "mpi"
  image     = each.value.image
  command   = each.value.command
  pools     = [gpuplan_node_pool.gpu.capacity]
  roles     = { worker = { replicas = each.value.workers, gpus = 1 } }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
