# Runs the evaluation again whenever the model that it reads has changed. By hand:
# terraform apply -invoke=action.gpuplan_rerun_training_job.evaluation
action "gpuplan_rerun_training_job" "evaluation" {
  config {
    id       = gpuplan_training_job.evaluation.id
    wait_for = "succeeded"
    timeout  = "2h"
  }
}

resource "terraform_data" "model" {
  input = var.model

  lifecycle {
    action_trigger {
      events  = [after_update]
      actions = [action.gpuplan_rerun_training_job.evaluation]
    }
  }
}

variable "model" {
  default = "vgg16-1"
}

resource "gpuplan_training_job" "evaluation" {
  name      = "evaluation"
  framework = "batch"
  image     = "registry.cn-hangzhou.aliyuncs.com/example/evaluation:1"
  command   = ["python", "evaluate.py"]
  wait_for  = "none"
  pools     = [gpuplan_node_pool.v100.capacity]
  roles     = { worker = { replicas = 1, gpus = 2 } }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
