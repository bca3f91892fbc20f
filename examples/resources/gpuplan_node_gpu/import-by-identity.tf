import {
  to = gpuplan_node_gpu.v100
  identity = {
    nodes = ["gpu-1", "gpu-2"]
  }
}
