terraform {
  required_providers {
    gpuplan = { source = "gpuplan/gpuplan" }
  }
}

variable "workers" {
  default = 16
}

# Two nodes that need not exist.
locals {
  result = provider::gpuplan::placement(
    [{ name = "v100", instance_type = "ecs.gn6v-c10g1.20xlarge", size = 2, mode = "topology" }],
    { roles = { worker = { replicas = var.workers, gpus = 1 } } },
  )
}

check "all_workers_fit" {
  assert {
    condition     = local.result.fits
    error_message = local.result.verdict
  }
}

output "placement" {
  value = local.result.placement
}
