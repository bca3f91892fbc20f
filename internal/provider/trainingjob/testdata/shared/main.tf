variable "roles" {
  type = map(any)
}
variable "framework" { default = "pytorch" }
variable "mode" { default = "shared" }
variable "image" { default = "train:1" }
variable "host_network" { default = false }

resource "gpuplan_node_pool" "this" {
  name          = "pool"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = var.mode == "shared" ? "core_mem" : var.mode
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_training_job" "this" {
  name         = "job"
  framework    = var.framework
  image        = var.image
  mode         = var.mode
  pools        = [gpuplan_node_pool.this.capacity]
  roles        = var.roles
  host_network = var.host_network
}
