# Zones and version of the cluster, once something is in it.
data "gpuplan_cluster" "this" {
  depends_on = [gpuplan_node_pool.v100]
}

output "version" {
  value = data.gpuplan_cluster.this.version
}

output "zones" {
  value = data.gpuplan_cluster.this.zones
}

resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}
