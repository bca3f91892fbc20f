# How much each team borrows, and what waits first in its queue.
data "gpuplan_queues" "now" {
  depends_on = [gpuplan_quota_tree.main]
}

output "borrowed" {
  value = { for queue in data.gpuplan_queues.now.queues : queue.name => queue.borrowed["aliyun.com/gpu"] }
}

output "next" {
  value = { for queue in data.gpuplan_queues.now.queues : queue.name => "${queue.queued[0].name}: ${queue.queued[0].message}" if length(queue.queued) > 0 }
}

resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "16" }
  quotas = {
    vision = { min = { "aliyun.com/gpu" = "8" }, namespaces = ["vision"] }
    speech = { min = { "aliyun.com/gpu" = "8" }, namespaces = ["speech"] }
  }
}
