data "gpuplan_gpu_nodes" "all" {}

data "gpuplan_gpu_nodes" "pool" {
  pool = "v100"
}

data "gpuplan_gpu_nodes" "chosen" {
  pool           = "v100"
  label_selector = "team in (research, vision)"
}

data "gpuplan_gpu_nodes" "none" {
  pool = "a10"
}

locals {
  all = { for node in data.gpuplan_gpu_nodes.all.nodes : node.name => node }
}

output "names" { value = data.gpuplan_gpu_nodes.all.nodes[*].name }
output "pool" { value = data.gpuplan_gpu_nodes.pool.nodes[*].name }
output "chosen" { value = data.gpuplan_gpu_nodes.chosen.nodes[*].name }
output "none" { value = data.gpuplan_gpu_nodes.none.nodes[*].name }
output "first" { value = local.all["v100-1"] }
output "sick" { value = local.all["v100-1"].gpus[3] }
output "link" { value = local.all["v100-1"].topology.links[0] }
output "second" { value = local.all["v100-2"] }
output "shared" { value = local.all["shared-1"] }
output "dark" { value = local.all["dark"].problem }
