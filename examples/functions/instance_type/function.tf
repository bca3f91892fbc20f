terraform {
  required_providers {
    gpuplan = { source = "gpuplan/gpuplan" }
  }
}

locals {
  type = provider::gpuplan::instance_type("ecs.gn6v-c10g1.20xlarge")
}

# One worker for each GPU of two nodes, with an equal part of the CPU.
output "workers" {
  value = 2 * local.type.gpus
}

output "cpu" {
  value = "${floor(local.type.allocatable["topology"].milli_cpu / local.type.gpus)}m"
}
