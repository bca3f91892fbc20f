# What the master of a job that has finished wrote last.
data "gpuplan_job_logs" "vgg16" {
  id         = gpuplan_training_job.vgg16.id
  lines      = 5
  depends_on = [gpuplan_training_job.vgg16]
}

output "result" {
  value = nonsensitive(data.gpuplan_job_logs.vgg16.replicas[0].log)
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "pytorch"
  image     = "registry.cn-hangzhou.aliyuncs.com/example/vgg16:1"
  command   = ["torchrun", "train.py"]
  wait_for  = "succeeded"
  pools     = [gpuplan_node_pool.v100.capacity]
  roles = {
    master = { gpus = 8 }
  }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 1
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
