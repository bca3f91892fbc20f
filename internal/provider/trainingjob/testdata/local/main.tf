variable "image" { default = "train:1" }
variable "suspend" { default = false }
variable "wait_for" { default = "running" }
variable "triggers" { default = { run = "1" } }
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

# Four of the sixteen GPUs stay free, so this job can only be replaced on its own GPUs.
resource "gpuplan_training_job" "mpi" {
  name             = "vgg16"
  framework        = "mpi"
  code_sync        = { source = "git", url = "https://git.example.com/team/vgg16.git", revision = "v1" }
  tensorboard      = { log_dir = "oss://logs/vgg16" }
  image            = var.image
  command          = ["sh", "-c", "mpirun -np 4 python train.py"]
  pools            = [gpuplan_node_pool.v100.capacity]
  arena_compatible = true
  suspend          = var.suspend
  wait_for         = var.wait_for
  triggers         = var.triggers
  annotations      = var.run_for == null ? null : { "local.gpuplan.dev/run-for" = var.run_for }

  roles = {
    launcher = {}
    worker   = { replicas = 10, gpus = 1, cpu = "2", memory = "8Gi" }
  }
  timeouts = { create = "10m" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

resource "gpuplan_training_job" "pytorch" {
  name         = "mnist"
  framework    = "pytorch"
  image        = "mnist:1"
  pools        = [gpuplan_node_pool.v100.capacity]
  after        = [gpuplan_training_job.mpi.placed]
  host_network = true
  host_ipc     = true
  host_pid     = true

  roles = {
    master = { gpus = 1 }
    worker = { gpus = 1 }
  }
  timeouts = { create = "10m" }
}

data "gpuplan_training_job" "mpi" {
  id         = gpuplan_training_job.mpi.id
  depends_on = [gpuplan_training_job.mpi]
}
