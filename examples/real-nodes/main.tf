# The quickstart's VGG16 on real nodes of the local platform (gpuplan-local up --real-nodes 2): each has a
# kubelet and containers, and the node agent gives every container the GPUs of the plan.

terraform {
  required_version = ">= 1.11"
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

# Region, cluster, credentials and kubeconfig come from the environment:
#   eval "$(bin/gpuplan-local env)"
provider "gpuplan" {
  placement_check = "error"
}

# Two machines with eight V100 each, which are described in a file.
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-real-nodes"]
}

# The agent is the device plugin, too: it gives containers their GPUs.
resource "gpuplan_node_agent" "this" {
  image          = "gpuplan-node-agent:local"
  device_plugins = true
}

resource "gpuplan_scheduler" "this" {
  image    = "gpuplan-scheduler:local"
  replicas = 1
}

locals {
  benchmark_image = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1"
}

# VGG16 on four GPUs of one node with the best ring between them.
resource "gpuplan_training_job" "vgg16" {
  name      = "pytorch-topo-4-vgg16"
  framework = "mpi"
  image     = local.benchmark_image
  command   = ["sh", "-c", "mpirun --allow-run-as-root -np 4 python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64"]

  mode  = "topology"
  gang  = {}
  pools = [gpuplan_node_pool.v100.capacity]

  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 4, gpus = 1 }
  }

  depends_on = [gpuplan_node_agent.this, gpuplan_scheduler.this]
}

# Six GPUs are not free on that node any more: this one gets the other.
resource "gpuplan_training_job" "vgg16_pairs" {
  name      = "pytorch-topo-6-vgg16"
  framework = "mpi"
  image     = local.benchmark_image
  command   = ["sh", "-c", "mpirun --allow-run-as-root -np 6 python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64"]

  mode  = "topology"
  gang  = {}
  pools = [gpuplan_node_pool.v100.capacity]
  after = [gpuplan_training_job.vgg16.placed]

  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 3, gpus = 2 }
  }
}

locals {
  # Keys that are known at all times: `terraform import` knows no id of what is not in the state.
  jobs = { vgg16 = gpuplan_training_job.vgg16, vgg16_pairs = gpuplan_training_job.vgg16_pairs }
}

# How the jobs run, looked up after they were created.
data "gpuplan_training_job" "all" {
  for_each   = local.jobs
  id         = each.value.id
  depends_on = [gpuplan_training_job.vgg16, gpuplan_training_job.vgg16_pairs]
}

output "placement" {
  description = "Where every job runs, and whether that is as planned."
  value       = { for key, job in local.jobs : job.id => { nodes = data.gpuplan_training_job.all[key].placement, as_planned = job.placement_as_planned } }
}
