terraform import gpuplan_node_agent.this gpuplan-node-agent
