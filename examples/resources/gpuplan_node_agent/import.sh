terraform import gpuplan_node_agent.this gpuplan-system/gpuplan-node-agent
