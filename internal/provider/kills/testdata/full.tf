# Two jobs that fill their pool; one of them has more members than find room.
terraform {
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

variable "image" { default = "train:1" }
variable "named" { default = true }

resource "gpuplan_node_pool" "v100" {
  name          = "full"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" {
  image = "gpuplan-node-agent:local"
}

resource "gpuplan_scheduler" "this" {
  image    = "gpuplan-scheduler:local"
  replicas = 1
}

resource "gpuplan_training_job" "rigid" {
  name       = "rigid"
  framework  = "mpi"
  image      = "train:1"
  pools      = var.named ? [gpuplan_node_pool.v100.capacity] : null
  roles      = { worker = { replicas = 4, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "elastic" {
  name       = "elastic"
  framework  = "pytorch"
  image      = var.image
  pools      = var.named ? [gpuplan_node_pool.v100.capacity] : null
  after      = [gpuplan_training_job.rigid.placed]
  gang       = { minimum = 3 }
  roles      = { master = { gpus = 1 }, worker = { replicas = 6, gpus = 1 } }
  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
