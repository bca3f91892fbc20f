variable "framework" { default = "jobset" }
variable "suspend" { default = false }
variable "team" { default = "vision" }
variable "limit" { default = 1 }
variable "image" { default = "rl:1" }

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
}

resource "gpuplan_node_agent" "this" { image = "local/node-agent:test" }

resource "gpuplan_scheduler" "this" { image = "local/scheduler:test" }

# A gang of roles that are nothing alike, and a driver beside it.
resource "gpuplan_training_job" "rl" {
  name          = "rl"
  framework     = var.framework
  image         = var.image
  pools         = [gpuplan_node_pool.v100.capacity]
  suspend       = var.suspend
  backoff_limit = var.limit
  labels        = { team = var.team }

  roles = {
    driver  = { command = ["python", "drive.py", "--learner", "rl-learner-0-0.rl"], cpu = "500m" }
    learner = { command = ["python", "learn.py"], gpus = 4 }
    actor   = { replicas = 6, command = ["sh", "-c", "act --number $JOB_COMPLETION_INDEX"], gpus = 1 }
  }
  timeouts = { create = "60s", update = "60s" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}

# One that is done soon.
resource "gpuplan_training_job" "short" {
  name        = "short"
  framework   = var.framework
  image       = "train:1"
  pools       = [gpuplan_node_pool.v100.capacity]
  after       = [gpuplan_training_job.rl.placed]
  annotations = { "local.gpuplan.dev/run-for" = "1s" }
  wait_for    = "succeeded"

  roles    = { worker = { replicas = 2, gpus = 2 } }
  timeouts = { create = "60s" }

  depends_on = [gpuplan_scheduler.this, gpuplan_node_agent.this]
}
