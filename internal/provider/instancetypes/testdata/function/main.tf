terraform {
  required_providers {
    gpuplan = { source = "hashicorp/gpuplan" }
  }
}

data "gpuplan_instance_types" "all" {}

locals {
  type = provider::gpuplan::instance_type("ecs.gn8is.4xlarge")
}

output "type" { value = local.type }
output "topology" { value = local.type.allocatable["topology"] }
output "shared" { value = local.type.allocatable["core_mem"].extended["aliyun.com/gpu-mem"] }
output "same" { value = { for t in data.gpuplan_instance_types.all.instance_types : t.name => t }["ecs.gn8is.4xlarge"] == local.type }
