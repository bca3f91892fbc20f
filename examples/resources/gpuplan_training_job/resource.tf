# Four MPI workers with one GPU each, on one node, on the four GPUs with the best ring.
resource "gpuplan_training_job" "vgg16" {
  name      = "pytorch-topo-4-vgg16"
  framework = "mpi"
  image     = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch-benchmark:torch1.6.0-py3.7-cuda10.1"
  command   = ["sh", "-c", "mpirun --allow-run-as-root -np 4 python /examples/pytorch_synthetic_benchmark.py --model=vgg16"]

  mode  = "topology"
  gang  = {}
  pools = [gpuplan_node_pool.v100.capacity]

  roles = {
    launcher = { replicas = 1 }
    worker   = { replicas = 4, gpus = 1 }
  }
}

# A PyTorchJob that is planned around the first job, and waits until it has succeeded.
resource "gpuplan_training_job" "mnist" {
  name         = "pytorch-dist-nccl"
  framework    = "pytorch"
  image        = "registry.cn-hangzhou.aliyuncs.com/kubernetes-image-hub/pytorch_dist_mnist:1.3-gpu-py3"
  command      = ["python"]
  args         = ["/opt/mnist/src/mnist.py", "--backend", "nccl"]
  mode         = "topology"
  gang         = {}
  pools        = [gpuplan_node_pool.v100.capacity]
  after        = [gpuplan_training_job.vgg16.placed]
  host_ipc     = true
  host_network = true
  host_pid     = true
  dns_policy   = "ClusterFirstWithHostNet"
  wait_for     = "succeeded"

  roles = {
    master = { replicas = 1, gpus = 1 }
    worker = { replicas = 1, gpus = 1 }
  }

  # A new value runs the job again.
  triggers = { dataset = "2026-11" }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
