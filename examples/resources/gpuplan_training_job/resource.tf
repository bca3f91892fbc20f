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

# A PyTorchJob that is planned around the first job; the apply waits until the PyTorchJob has succeeded.
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

  # Simulated pods, those of the local platform, run on until they are told how long to run.
  # annotations = { "local.gpuplan.dev/run-for" = "1m" }

  roles = {
    master = { replicas = 1, gpus = 1 }
    worker = { replicas = 1, gpus = 1 }
  }

  # A new value runs the job again.
  triggers = { dataset = "2026-11" }
}

# Two nodes joined by eRDMA: on each a replica with all eight GPUs, and a process for each of them.
resource "gpuplan_training_job" "pretrain" {
  name              = "pretrain"
  framework         = "pytorch"
  image             = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
  image_pull_policy = "IfNotPresent"
  command           = ["torchrun", "pretrain.py"]
  nproc_per_node    = "8"
  shared_memory     = "64Gi"
  pools             = [gpuplan_node_pool.gn8v.capacity]
  env               = { NCCL_DEBUG = "WARN" } # what else NCCL needs for eRDMA is set by default

  roles = {
    master = { gpus = 8, rdma = true }
    worker = { gpus = 8, rdma = true }
  }
}

# Roles that are nothing alike, as a JobSet: the learner has four GPUs of one node, each actor one, and the driver none.
resource "gpuplan_training_job" "rl" {
  name          = "rl"
  framework     = "jobset"
  image         = "rayproject/ray:2.40.0-gpu"
  pools         = [gpuplan_node_pool.v100.capacity]
  after         = [gpuplan_training_job.mnist.placed]
  backoff_limit = 3 # when one of them fails, all start again

  roles = {
    driver  = { command = ["python", "drive.py", "--learner", "rl-learner-0-0.rl"], cpu = "500m" }
    learner = { command = ["python", "learn.py"], gpus = 4 }
    actor   = { replicas = 6, command = ["sh", "-c", "python act.py --number $JOB_COMPLETION_INDEX"], gpus = 1 }
  }
}

# The code comes from a repository, and TensorBoard shows what the job logs: on a claim that is there already, as the secret is.
resource "gpuplan_training_job" "resnet" {
  name        = "resnet"
  framework   = "pytorch"
  image       = "registry.cn-hangzhou.aliyuncs.com/example/pytorch:1"
  working_dir = "/workspace"
  command     = ["torchrun", "code/resnet/train.py", "--logs", "/logs/resnet"]
  pools       = [gpuplan_node_pool.v100.capacity]
  after       = [gpuplan_training_job.rl.placed]

  code_sync   = { source = "git", url = "https://git.example.com/team/resnet.git", revision = "v1.2", secret = "git" }
  volumes     = { logs = { claim = "logs", mount_path = "/logs" } }
  tensorboard = { log_dir = "/logs/resnet", service_type = "ClusterIP" }

  roles = { worker = { replicas = 2, gpus = 1 } }
}

# A part of one GPU, as a Job of Kubernetes: 2 GiB of its memory and 30 % of its compute power.
resource "gpuplan_training_job" "sample" {
  name      = "cuda-sample"
  framework = "batch"
  image     = "registry.cn-hangzhou.aliyuncs.com/ai-samples/gpushare-sample:tensorflow-1.5"
  command   = ["python", "tensorflow-sample-code/tfjob/docker/mnist/main.py", "--max_steps=100000", "--data_dir=tensorflow-sample-code/data"]
  mode      = "shared"
  pools     = [gpuplan_node_pool.shared.capacity]

  roles = { worker = { replicas = 1, memory_gib = 2, core_percent = 30 } }
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 3
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}

resource "gpuplan_node_pool" "shared" {
  name          = "shared"
  instance_type = "ecs.gn6v-c8g1.2xlarge"
  size          = 1
  mode          = "core_mem"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}

# eRDMA devices are set up on nodes that join after the add-on.
resource "gpuplan_erdma_controller" "main" {
  driver               = "ofed"
  allocate_all_devices = true
}

resource "gpuplan_node_pool" "gn8v" {
  name          = "gn8v"
  instance_type = "ecs.gn8v-8x.48xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
  depends_on    = [gpuplan_erdma_controller.main]
}
