resource "gpuplan_node_agent" "this" {}
