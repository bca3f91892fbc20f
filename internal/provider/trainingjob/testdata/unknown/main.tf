variable "image_only" { default = false }

resource "terraform_data" "later" {}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "mpi"
  image     = terraform_data.later.id
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = { replicas = var.image_only ? 20 : length(terraform_data.later.id), gpus = 1 } }
}
