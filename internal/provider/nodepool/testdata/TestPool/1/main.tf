resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  labels        = { team = "research" }
  taints        = [{ key = "gpu", value = "yes", effect = "NoSchedule" }]
}
