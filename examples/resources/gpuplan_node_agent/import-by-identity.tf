import {
  to = gpuplan_node_agent.this
  identity = {
    name = "gpuplan-node-agent"
  }
}
