import {
  to = gpuplan_scheduler_config.this
  identity = {
    name = "kube-scheduler"
  }
}
