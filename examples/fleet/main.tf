# A fleet of two clusters: a gang waits in the queue of the hub, goes to one cluster as a whole, and the plan of the
# first apply already says to which one, and on which GPUs it runs there.

terraform {
  required_version = ">= 1.11"
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}

# How the hub and the clusters are reached. Of a fleet of the local platform this prints it:
#   bin/gpuplan-local env --variables >examples/fleet/terraform.tfvars.json
variable "hub" {
  type = object({ kubeconfig = string })
}

variable "clusters" {
  type = map(object({
    kubeconfig = string
    cluster_id = string
    region     = string
    endpoint   = optional(string)
    access_key = optional(string)
    secret_key = optional(string)
  }))
}

# The hub: quota, queue, policies and jobs.
provider "gpuplan" {
  kubeconfig = var.hub.kubeconfig
}

# The clusters that work.
provider "gpuplan" {
  alias      = "member_1"
  kubeconfig = var.clusters["member-1"].kubeconfig
  cluster_id = var.clusters["member-1"].cluster_id
  region     = var.clusters["member-1"].region
  endpoint   = var.clusters["member-1"].endpoint
  access_key = var.clusters["member-1"].access_key
  secret_key = var.clusters["member-1"].secret_key
}

provider "gpuplan" {
  alias      = "member_2"
  kubeconfig = var.clusters["member-2"].kubeconfig
  cluster_id = var.clusters["member-2"].cluster_id
  region     = var.clusters["member-2"].region
  endpoint   = var.clusters["member-2"].endpoint
  access_key = var.clusters["member-2"].access_key
  secret_key = var.clusters["member-2"].secret_key
}

# A machine with eight V100 in each.
resource "gpuplan_node_pool" "member_1" {
  provider      = gpuplan.member_1
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-fleet"]
}

resource "gpuplan_node_pool" "member_2" {
  provider      = gpuplan.member_2
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-fleet"]
}

# The queue lets one job of the namespace go at a time.
resource "gpuplan_quota_tree" "main" {
  total = {
    "cpu"            = "999900"
    "memory"         = "400000Gi"
    "aliyun.com/gpu" = "100000"
  }
  quotas = {
    "child-2" = {
      max = {
        "cpu"            = "10000"
        "memory"         = "10000Gi"
        "aliyun.com/gpu" = "10000"
      }
      max_jobs   = 1
      namespaces = ["default"]
    }
  }
}

# PyTorchJobs wait in the queue, and go to one cluster as a whole; one that fails, or waits there, goes to another.
resource "gpuplan_propagation_policy" "gangs" {
  name               = "example-policy"
  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }]
  propagate_deps     = true
  suspension         = { scheduling = true }
  failover = {
    application = {
      decision_conditions = { toleration_seconds = 30 }
      purge_mode          = "Immediately"
    }
  }
  placement = {
    replica_scheduling = {
      replica_scheduling_type = "Divided"
      custom_scheduling_type  = "Gang"
    }
  }
  depends_on = [gpuplan_quota_tree.main]
}

locals {
  fleet = {
    policy = gpuplan_propagation_policy.gangs.name
    clusters = {
      "member-1" = { pools = [gpuplan_node_pool.member_1.capacity] }
      "member-2" = { pools = [gpuplan_node_pool.member_2.capacity] }
    }
  }
}

resource "gpuplan_training_job" "test" {
  name      = "pytorch-test"
  framework = "pytorch"
  image     = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch_dist_mnist:1.3-gpu-py3"
  command   = ["python", "/opt/mnist/src/mnist.py", "--backend", "nccl"]
  fleet     = local.fleet

  roles = {
    master = { replicas = 1, gpus = 2 }
    worker = { replicas = 2, gpus = 2 }
  }
}

# Planned around the first, and in the queue until that has ended: the apply does not wait for it.
resource "gpuplan_training_job" "next" {
  name      = "pytorch-next"
  framework = "pytorch"
  image     = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch_dist_mnist:1.3-gpu-py3"
  command   = ["python", "/opt/mnist/src/mnist.py", "--backend", "nccl"]
  fleet     = local.fleet
  after     = [gpuplan_training_job.test.placed]
  wait_for  = "none"

  roles = {
    master = { replicas = 1, gpus = 2 }
    worker = { replicas = 2, gpus = 2 }
  }
}

# In which cluster each job will run. That of a job that waits is planned, too.
output "clusters" {
  value = {
    (gpuplan_training_job.test.name) = gpuplan_training_job.test.planned_cluster
    (gpuplan_training_job.next.name) = gpuplan_training_job.next.planned_cluster
  }
}
