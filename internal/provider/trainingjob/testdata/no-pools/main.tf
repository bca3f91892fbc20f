variable "placement_check" { default = "error" }

resource "gpuplan_training_job" "vgg16" {
  name            = "vgg16"
  framework       = "mpi"
  image           = "train:1"
  placement_check = var.placement_check
  roles           = { worker = { replicas = 4, gpus = 1 } }
}
