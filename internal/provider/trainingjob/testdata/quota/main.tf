variable "leaf" { default = "vision" }
variable "max" { default = "4" }
variable "quota_by_name" { default = true }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "16" }
  quotas = {
    research          = { max = { "aliyun.com/gpu" = "16" } }
    "research/vision" = { max = { "aliyun.com/gpu" = var.max } }
  }
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "mpi"
  image     = "train:1"
  pools     = [gpuplan_node_pool.v100.capacity]
  quota     = var.quota_by_name ? var.leaf : gpuplan_quota_tree.main.leaves["vision"]
  roles     = { worker = { replicas = 4, gpus = 1 } }
}
