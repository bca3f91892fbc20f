resource "gpuplan_node_gpu" "v100" {
  name  = "v100"
  nodes = ["gpu-1", "gpu-2"]
  mode  = "topology"
}

# Planned on the nodes as they will be.
resource "gpuplan_training_job" "train" {
  name       = "train"
  framework  = "pytorch"
  image      = "registry.example.com/train:1"
  depends_on = [gpuplan_node_gpu.v100]

  roles = {
    worker = { replicas = 2, gpus = 4 }
  }
}
