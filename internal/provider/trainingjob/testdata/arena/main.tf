variable "arena" {}
variable "run" { default = "1" }
variable "image" { default = "train:1" }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

resource "gpuplan_training_job" "mpi" {
  name             = "vgg16"
  framework        = "mpi"
  image            = var.image
  command          = ["mpirun", "train"]
  pools            = [gpuplan_node_pool.v100.capacity]
  arena_compatible = var.arena
  triggers         = { run = var.run }
  roles            = { worker = { replicas = 4, gpus = 1 } }
  timeouts         = { create = "10m" }
  depends_on       = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "pytorch" {
  name             = "mnist"
  framework        = "pytorch"
  image            = "mnist:1"
  pools            = [gpuplan_node_pool.v100.capacity]
  after            = [gpuplan_training_job.mpi.placed]
  arena_compatible = var.arena
  roles            = { master = { gpus = 1 }, worker = { gpus = 1 } }
  timeouts         = { create = "10m" }
}
