terraform {
  required_providers {
    gpuplan = { source = "hashicorp/gpuplan" }
  }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

locals {
  pools = [gpuplan_node_pool.v100.capacity]
  nodes = [{ name = "v100", instance_type = "ecs.gn6v-c10g1.20xlarge", size = 2, mode = "topology" }]
  fits  = provider::gpuplan::placement(local.nodes, { roles = { worker = { replicas = 4, gpus = 1, cpu = 4 } } })
}

data "gpuplan_placement" "this" {
  pools = local.pools
  roles = { worker = { replicas = 20, gpus = 1 } }
}

output "fits" { value = local.fits }
output "short" { value = provider::gpuplan::placement(local.nodes, { roles = { worker = { replicas = 20, gpus = 1 } } }) }

# A pool's capacity is taken as it is.
output "same" {
  value = alltrue([for name, answer in provider::gpuplan::placement(local.pools, { roles = { worker = { replicas = 20, gpus = 1 } } }) : data.gpuplan_placement.this[name] == answer])
}

output "tainted" {
  value = join(" ", sort(provider::gpuplan::placement([
    { name = "a", instance_type = "ecs.gn6v-c10g1.20xlarge", mode = "topology", labels = { zone = "b" }, taints = [{ key = "team", value = "vision", effect = "NoSchedule" }] },
    { name = "b", instance_type = "ecs.gn6v-c10g1.20xlarge", mode = "topology" },
  ], { roles = { worker = { gpus = 8 } }, node_selector = { zone = "b" } }).reasons[*].code))
}

output "shared" {
  value = provider::gpuplan::placement([{ instance_type = "ecs.gn8is.4xlarge", mode = "core_mem", gpu_policy = "spread" }],
  { mode = "shared", roles = { worker = { replicas = 2, memory_gib = 22, core_percent = 50 } } }).fits
}

output "nothing" { value = provider::gpuplan::placement([], { roles = { worker = { gpus = 1 } } }).reasons[0].code }
