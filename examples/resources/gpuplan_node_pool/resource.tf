# Two machines with eight V100 each; their GPUs are handed out by the links between them.
resource "gpuplan_node_pool" "v100" {
  name          = "v100"
  instance_type = "ecs.gn6v-c10g1.20xlarge"
  size          = 2
  mode          = "topology"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]
}

# Shared GPUs: jobs ask for GiB of GPU memory and percent of compute.
resource "gpuplan_node_pool" "shared" {
  name          = "gpu-core"
  instance_type = "ecs.gn6i-c24g1.24xlarge"
  size          = 1
  mode          = "core_mem"
  gpu_policy    = "binpack"
  vswitch_ids   = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]

  labels = { team = "inference" }
  taints = [{ key = "dedicated", value = "inference", effect = "NoSchedule" }]
}

# Reserved machines, with a disk for checkpoints. Another type with the same GPUs fills in.
resource "gpuplan_node_pool" "reserved" {
  name                    = "reserved"
  instance_type           = "ecs.ebmgn7.26xlarge"
  fallback_instance_types = ["ecs.gn7-c13g1.26xlarge"]
  size                    = 2
  mode                    = "topology"
  vswitch_ids             = ["vsw-bp1q8tcxl9xxxxxxxxxxx"]

  private_pool = { match_criteria = "Target", id = "eap-bp67acfmxazb4xxxx" }
  data_disks   = [{ category = "cloud_essd", size = 2000, performance_level = "PL2", auto_format = true, file_system = "xfs", mount_target = "/mnt/checkpoints" }]
  cpu_policy   = "static"
  tags         = { team = "pretraining" }
}
