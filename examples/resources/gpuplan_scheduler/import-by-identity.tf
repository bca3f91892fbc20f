import {
  to = gpuplan_scheduler.this
  identity = {
    name = "gpuplan-scheduler"
  }
}
