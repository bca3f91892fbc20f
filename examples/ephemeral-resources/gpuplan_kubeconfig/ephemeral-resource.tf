# Jobs are applied with access that ends with the apply, and that nothing stores.
ephemeral "gpuplan_kubeconfig" "jobs" {
  duration = "30m"
}

provider "gpuplan" {
  alias              = "jobs"
  owner              = "jobs"
  kubeconfig_content = ephemeral.gpuplan_kubeconfig.jobs.content
}

data "gpuplan_gpu_nodes" "now" {
  provider = gpuplan.jobs
}

output "free_gpus" {
  value = sum(concat([0], data.gpuplan_gpu_nodes.now.nodes[*].free.gpus))
}
