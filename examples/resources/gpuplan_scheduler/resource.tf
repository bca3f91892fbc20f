resource "gpuplan_scheduler" "this" {
  replicas = 2
}
