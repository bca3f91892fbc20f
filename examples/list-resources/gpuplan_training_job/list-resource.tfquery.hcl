list "gpuplan_training_job" "default" {
  provider = gpuplan

  config {
    namespace = "default"
  }
}
