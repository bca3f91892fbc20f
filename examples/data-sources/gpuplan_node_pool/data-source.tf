# A job on a pool that the platform team's state owns.
data "gpuplan_node_pool" "v100" {
  name       = "v100"
  depends_on = [gpuplan_node_pool.v100]
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "mpi"
  image     = "registry.cn-hangzhou.aliyuncs.com/example/vgg16:1"
  command   = ["sh", "-c", "mpirun -np 4 python train.py"]
  pools     = [data.gpuplan_node_pool.v100.capacity]
  roles = {
    worker = { replicas = 4, gpus = 1 }
  }
}

# This is what the other state has. Leave it and depends_on out.
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
