# Would 20 workers fit? Nothing is created.
data "gpuplan_placement" "what_if" {
  mode  = "topology"
  pools = local.pools
  roles = {
    worker = { replicas = 20, gpus = 1 }
  }
}

# The local value lets Terraform ask in the plan, before the pool exists.
locals {
  pools = [gpuplan_node_pool.v100.capacity]
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}

output "fits" {
  value = data.gpuplan_placement.what_if.fits
}

output "why_not" {
  value = data.gpuplan_placement.what_if.verdict
}
