import {
  to = gpuplan_propagation_policy.gangs
  identity = {
    namespace = "default"
    name      = "gangs"
  }
}
