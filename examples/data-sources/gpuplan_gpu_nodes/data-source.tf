# The GPUs of a pool that must not be used, and how many are free.
data "gpuplan_gpu_nodes" "v100" {
  pool = gpuplan_node_pool.v100.name
}

output "sick_gpus" {
  value = {
    for gpu in flatten([for node in data.gpuplan_gpu_nodes.v100.nodes : [for g in node.gpus : merge(g, { node = node.name })]]) :
    "${gpu.node} GPU ${gpu.index}" => join("; ", gpu.reasons) if !gpu.healthy
  }
}

output "free_gpus" {
  value = sum(concat([0], [for node in data.gpuplan_gpu_nodes.v100.nodes : node.schedulable ? node.free.gpus : 0]))
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
