# The provider, or an alias of it, has the kubeconfig of the hub.
#
# In ACK One's Fleet, PyTorchJobs of the namespace default wait in the queue then, go to one cluster as a whole, and to another one when they fail.
resource "gpuplan_propagation_policy" "gangs" {
  name = "gangs"
  resource_selectors = [
    { api_version = "kubeflow.org/v1", kind = "PyTorchJob" },
  ]
  propagate_deps = true
  suspension     = { scheduling = true }
  failover = {
    application = {
      decision_conditions = { toleration_seconds = 30 }
      purge_mode          = "Immediately"
    }
  }
  placement = {
    cluster_affinity = {
      field_selector = {
        match_expressions = [{ key = "region", operator = "In", values = ["cn-hangzhou", "cn-shanghai"] }]
      }
    }
    replica_scheduling = {
      replica_scheduling_type = "Divided"
      custom_scheduling_type  = "Gang"
    }
  }
}
