list "gpuplan_node_pool" "all" {
  provider = gpuplan
}
