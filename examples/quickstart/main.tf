# A GPU cluster from nothing to running training jobs. The plan of the first apply
# already says on which node and on which GPUs every worker will run.

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

# Two machines with eight V100 each. Their GPUs are handed out by the links between them.
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-quickstart"]
}

# The same machine in the regular mode, to compare: the device plugin picks the GPUs.
resource "gpuplan_node_pool" "regular" {
  name          = "regular"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "default"
  vswitch_ids   = ["vsw-quickstart"]
}

# The local platform runs the programs in bin/, whatever the image; a real cluster pulls
# the images from the registry that you push them to.
resource "gpuplan_node_agent" "this" {
  image = "gpuplan-node-agent:local"
}

resource "gpuplan_scheduler" "this" {
  image    = "gpuplan-scheduler:local"
  replicas = 1 # a real cluster gets two: one leads, one stands by
}

# research may use all GPUs; vision is guaranteed four and may borrow up to sixteen.
resource "gpuplan_quota_tree" "main" {
  total = {
    "cpu"            = "200"
    "memory"         = "800Gi"
    "aliyun.com/gpu" = "16"
    "nvidia.com/gpu" = "8"
  }
  quotas = {
    "research" = {
      min = { "aliyun.com/gpu" = "8" }
      max = { "aliyun.com/gpu" = "16" }
    }
    "research/vision" = {
      min        = { "aliyun.com/gpu" = "4" }
      max        = { "aliyun.com/gpu" = "16" }
      namespaces = ["default"]
    }
  }
  depends_on = [gpuplan_scheduler.this]
}

locals {
  benchmark = join(" ", [
    "mpirun --allow-run-as-root -np 4 -bind-to none -map-by slot",
    "-x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 -x LD_LIBRARY_PATH -x PATH",
    "--mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0",
    "--mca orte_keep_fqdn_hostnames t --mca btl ^openib",
    "python /examples/pytorch_synthetic_benchmark.py --model=vgg16 --batch-size=64",
  ])
  benchmark_image = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1"
}

# VGG16 on four GPUs of one node with the best ring between them.
resource "gpuplan_training_job" "vgg16" {
  name      = "pytorch-topo-4-vgg16"
  framework = "mpi"
  image     = local.benchmark_image
  command   = ["sh", "-c", local.benchmark]

  mode  = "topology"
  gang  = {}
  pools = [gpuplan_node_pool.v100.capacity]
  quota = gpuplan_quota_tree.main.leaves["vision"]

  arena_compatible = true # `arena list`, `get`, `logs` and `delete` know it

  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 4, gpus = 1 }
  }

  depends_on = [gpuplan_node_agent.this]
}

# A master and a worker that talk over NVLink: they share the host's IPC, network and PIDs.
resource "gpuplan_training_job" "mnist" {
  name      = "pytorch-dist-nccl"
  framework = "pytorch"
  image     = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch_dist_mnist:1.3-gpu-py3"
  command   = ["python"]
  args      = ["/opt/mnist/src/mnist.py", "--backend", "nccl"]
  env = {
    NCCL_DEBUG        = "INFO"
    NCCL_DEBUG_SUBSYS = "GRAPH"
  }

  mode         = "topology"
  gang         = {}
  pools        = [gpuplan_node_pool.v100.capacity]
  after        = [gpuplan_training_job.vgg16.placed]
  quota        = gpuplan_quota_tree.main.leaves["vision"]
  host_ipc     = true
  host_network = true
  host_pid     = true
  dns_policy   = "ClusterFirstWithHostNet"

  arena_compatible = true # `arena list`, `get`, `logs` and `delete` know it

  roles = {
    master = { replicas = 1, gpus = 1 }
    worker = { replicas = 1, gpus = 1 }
  }
}

# The same VGG16 without topology: the plan can only promise the worst set of GPUs.
resource "gpuplan_training_job" "vgg16_regular" {
  name      = "pytorch-4-vgg16"
  framework = "mpi"
  image     = local.benchmark_image
  command   = ["sh", "-c", local.benchmark]

  mode  = "default"
  gang  = {}
  pools = [gpuplan_node_pool.regular.capacity]
  quota = gpuplan_quota_tree.main.leaves["vision"]

  arena_compatible = true # `arena list`, `get`, `logs` and `delete` know it

  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 4, gpus = 1 }
  }
}

locals {
  # Keys that are known at all times: `terraform import` knows no id of what is not in the state.
  jobs = { vgg16 = gpuplan_training_job.vgg16, mnist = gpuplan_training_job.mnist, vgg16_regular = gpuplan_training_job.vgg16_regular }
}

# How the jobs run, looked up after they were created.
data "gpuplan_training_job" "all" {
  for_each   = local.jobs
  id         = each.value.id
  depends_on = [gpuplan_training_job.vgg16, gpuplan_training_job.mnist, gpuplan_training_job.vgg16_regular]
}

output "placement" {
  description = "Where every job runs, and whether that is as planned."
  value       = { for key, job in local.jobs : job.id => { nodes = data.gpuplan_training_job.all[key].placement, as_planned = job.placement_as_planned } }
}
