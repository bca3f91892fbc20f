# Before the pool becomes smaller, the pods leave the node that goes, gangs as a whole. By hand:
# terraform apply -invoke=action.gpuplan_drain_nodes.leaving
action "gpuplan_drain_nodes" "leaving" {
  config {
    nodes   = var.leaving
    timeout = "30m"
  }
}

variable "leaving" {
  type    = list(string)
  default = ["cn-hangzhou.10.0.1.3"]
}

resource "gpuplan_node_pool" "v100" {
  name             = "v100"
  instance_type    = "ecs.gn6v-c10g1.20xlarge"
  size             = 2
  remove_nodes     = var.leaving
  mode             = "topology"
  vswitch_ids      = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
  allow_disruption = true

  lifecycle {
    action_trigger {
      events  = [before_update]
      actions = [action.gpuplan_drain_nodes.leaving]
    }
  }
}
