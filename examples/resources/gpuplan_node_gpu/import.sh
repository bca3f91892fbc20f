terraform import gpuplan_node_gpu.v100 gpu-1,gpu-2
