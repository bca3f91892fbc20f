variable "workers" { default = 4 }
variable "placement_check" { default = null }
variable "size" { default = 2 }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = var.size
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "vgg16" {
  name            = "vgg16"
  framework       = "mpi"
  image           = "train:1"
  command         = ["sh", "-c", "mpirun -np ${var.workers} python train.py"]
  pools           = [gpuplan_node_pool.v100.capacity]
  placement_check = var.placement_check
  roles = {
    worker = { replicas = var.workers, gpus = 1 }
  }
}
