# Where the members of a job run, looked up after the job was created.
data "gpuplan_training_job" "vgg16" {
  id         = gpuplan_training_job.vgg16.id
  depends_on = [gpuplan_training_job.vgg16]
}

output "nodes" {
  value = data.gpuplan_training_job.vgg16.placement
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "mpi"
  image     = "registry.cn-hangzhou.aliyuncs.com/example/vgg16:1"
  command   = ["sh", "-c", "mpirun -np 4 python train.py"]
  pools     = [gpuplan_node_pool.v100.capacity]
  roles = {
    worker = { replicas = 4, gpus = 1 }
  }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
