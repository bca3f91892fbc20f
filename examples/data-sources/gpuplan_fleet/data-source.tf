# The clusters of the fleet whose hub the provider is configured for, read after what is applied there.
data "gpuplan_fleet" "this" {
  depends_on = [gpuplan_propagation_policy.gangs]
}

# What is free in the clusters that are ready and serve PyTorchJobs.
output "free_gpus" {
  value = {
    for name, cluster in data.gpuplan_fleet.this.clusters : name => try(cluster.resources["aliyun.com/gpu"].free, 0)
    if cluster.ready && contains(cluster.jobs[*].kind, "PyTorchJob")
  }
}

resource "gpuplan_propagation_policy" "gangs" {
  name               = "gangs"
  resource_selectors = [{ api_version = "kubeflow.org/v1", kind = "PyTorchJob" }]
  placement          = { replica_scheduling = { custom_scheduling_type = "Gang" } }
}
