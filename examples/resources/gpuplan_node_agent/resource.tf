resource "gpuplan_node_agent" "this" {
  image = "registry.example.com/platform/gpuplan-node-agent:v0.1.0"
}
