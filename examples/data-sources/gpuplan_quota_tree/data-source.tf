# A job that is charged to a leaf of the platform team's quota tree.
data "gpuplan_quota_tree" "main" {
  depends_on = [gpuplan_quota_tree.main]
}

resource "gpuplan_training_job" "vgg16" {
  name      = "vgg16"
  framework = "pytorch"
  image     = "registry.cn-hangzhou.aliyuncs.com/example/vgg16:1"
  quota     = data.gpuplan_quota_tree.main.leaves["vision"]
  roles = {
    master = { gpus = 1 }
  }
}

# This is what the other state has. Leave it and depends_on out.
resource "gpuplan_quota_tree" "main" {
  total = { "aliyun.com/gpu" = "16" }
  quotas = {
    vision = { min = { "aliyun.com/gpu" = "8" } }
    speech = { min = { "aliyun.com/gpu" = "8" } }
  }
}
