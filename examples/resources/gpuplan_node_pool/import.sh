# By cluster and node pool ID
terraform import gpuplan_node_pool.v100 c1b2c3d4e5f60718293a4b5c6d7e8f901/np0f1e2d3c4b5a69788796a5b4c3d2e1f0

# Or by name, in the provider's cluster
terraform import gpuplan_node_pool.v100 v100
