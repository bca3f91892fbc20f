variable "require_immediate" { default = false }
variable "workers" { default = 10 }
variable "ordered" { default = false }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "first" {
  name              = "first"
  framework         = "mpi"
  image             = "train:1"
  pools             = [gpuplan_node_pool.v100.capacity]
  require_immediate = var.require_immediate
  roles             = { worker = { replicas = var.workers, gpus = 1 } }
}

resource "gpuplan_training_job" "second" {
  name      = "second"
  framework = "mpi"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  after     = var.ordered ? [gpuplan_training_job.first.placed] : null
  roles     = { worker = { replicas = var.workers, gpus = 1 } }
}
