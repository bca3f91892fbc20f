variable "quota" { default = "vision" }
variable "workers" { default = 2 }
variable "require_immediate" { default = false }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "vgg16" {
  name              = "vgg16"
  framework         = "mpi"
  image             = "train:1"
  pools             = [gpuplan_node_pool.v100.capacity]
  quota             = var.quota
  require_immediate = var.require_immediate
  roles             = { worker = { replicas = var.workers, gpus = 1 } }
}
