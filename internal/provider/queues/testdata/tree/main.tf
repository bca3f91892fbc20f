data "gpuplan_queues" "now" {}

output "queues" {
  value = data.gpuplan_queues.now.queues
}
