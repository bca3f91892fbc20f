variable "suspend" { default = false }
variable "wait_for" { default = "running" }
variable "run_for" { default = null }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

resource "gpuplan_training_job" "mpi" {
  name                = "vgg16"
  framework           = "mpi"
  image               = "train:1"
  command             = ["mpirun", "python", "train.py"]
  pools               = [gpuplan_node_pool.v100.capacity]
  host_network        = false
  ssh_auth_mount_path = "/home/mpi/.ssh"
  suspend             = var.suspend
  wait_for            = var.wait_for
  annotations         = var.run_for == null ? null : { "local.gpuplan.dev/run-for" = var.run_for }

  roles = {
    launcher = { cpu = "500m" }
    worker   = { replicas = 10, gpus = 1, cpu = "2", memory = "8Gi" }
  }
  timeouts = { create = "2m", update = "2m" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

data "gpuplan_training_job" "mpi" {
  id         = gpuplan_training_job.mpi.id
  depends_on = [gpuplan_training_job.mpi]
}
