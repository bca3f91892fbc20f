data "gpuplan_instance_types" "all" {}

data "gpuplan_instance_types" "v100" {
  gpu_model = "v100"
  min_gpus  = 8
}

data "gpuplan_instance_types" "v100_32" {
  gpu_model          = "V100"
  min_gpus           = 8
  min_gpu_memory_gib = 31
}

data "gpuplan_instance_types" "l20" {
  gpu_model = "L20"
  min_gpus  = 8
  erdma     = true
}

data "gpuplan_instance_types" "without" {
  gpu_model = "H20"
  erdma     = false
}

output "count" { value = length(data.gpuplan_instance_types.all.instance_types) }
output "v100" { value = data.gpuplan_instance_types.v100.instance_types[*].name }
output "v100_32" { value = data.gpuplan_instance_types.v100_32.instance_types[*].name }
output "l20" { value = [for t in data.gpuplan_instance_types.l20.instance_types : t.name if t.gpu_model == "NVIDIA L20" && startswith(t.name, "ecs.ebm")] }
output "without" { value = data.gpuplan_instance_types.without.instance_types[*].name }
