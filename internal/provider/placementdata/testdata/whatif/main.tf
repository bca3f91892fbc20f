variable "workers" { default = 4 }
variable "sizes" { default = {} }
variable "without" { default = [] }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

# Through a local value: Terraform would wait for the pool to exist otherwise.
locals {
  pools = [gpuplan_node_pool.v100.capacity]
}

data "gpuplan_placement" "this" {
  pools         = local.pools
  pool_sizes    = var.sizes
  without_nodes = var.without
  roles         = { worker = { replicas = var.workers, gpus = 1 } }
}

output "fits" { value = data.gpuplan_placement.this.fits }
output "fit" { value = data.gpuplan_placement.this.members_fit }
output "fix" { value = try(data.gpuplan_placement.this.fixes[0].text, "") }
output "node" { value = join(" ", keys(data.gpuplan_placement.this.placement)) }
output "worker" { value = values(data.gpuplan_placement.this.placement)[0] }
