resource "gpuplan_scheduler" "this" {
  image    = "registry.example.com/platform/gpuplan-scheduler:v0.1.0"
  replicas = 2
}
