import {
  to = gpuplan_node_pool.v100
  identity = {
    cluster_id  = "c1b2c3d4e5f60718293a4b5c6d7e8f901"
    nodepool_id = "np0f1e2d3c4b5a69788796a5b4c3d2e1f0"
  }
}
