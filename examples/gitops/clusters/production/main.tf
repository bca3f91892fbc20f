terraform {
  required_version = ">= 1.11"
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

# Region, cluster, credentials and kubeconfig come from the environment of the pipeline.
provider "gpuplan" {
  owner           = "gpu-production" # the same in every runner
  placement_check = "error"
}

module "gpu" {
  source = "../../modules/gpu"

  pool = {
    name          = "gpu"
    instance_type = "ecs.gn6v-c10g1.20xlarge"
    size          = 2
    vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
  }

  images = {
    scheduler  = "gpuplan-scheduler:local"
    node_agent = "gpuplan-node-agent:local"
  }

  release = jsondecode(file("${path.module}/release.json"))
}
