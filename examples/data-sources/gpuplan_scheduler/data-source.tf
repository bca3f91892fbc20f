# A job for the scheduler that the platform team's state has installed.
data "gpuplan_scheduler" "this" {
  depends_on = [gpuplan_scheduler.this]
}

resource "gpuplan_training_job" "vgg16" {
  name           = "vgg16"
  framework      = "pytorch"
  image          = "registry.cn-hangzhou.aliyuncs.com/example/vgg16:1"
  scheduler_name = data.gpuplan_scheduler.this.scheduler_name
  roles = {
    master = { gpus = 1 }
  }
}

# This is what the other state has. Leave it and depends_on out.
resource "gpuplan_scheduler" "this" {
  image = "registry.cn-hangzhou.aliyuncs.com/example/gpuplan-scheduler:0.1.0"
}
