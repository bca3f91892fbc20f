resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 3
  mode          = "topology"
  vswitch_ids   = ["vsw-1"]
  labels        = { team = "vision" }
  taints        = [{ key = "gpu", value = "yes", effect = "NoSchedule" }]
}
