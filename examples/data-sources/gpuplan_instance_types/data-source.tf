# The types with eight GPUs of 80 GiB or more that have eRDMA.
data "gpuplan_instance_types" "big" {
  min_gpus           = 8
  min_gpu_memory_gib = 79
  erdma              = true
}

output "types" {
  value = { for type in data.gpuplan_instance_types.big.instance_types : type.name => "${type.gpus} x ${type.gpu_model}${type.erdma_gbps > 0 ? ", ${type.erdma_gbps} Gbit/s" : ""}" }
}
