resource "gpuplan_quota_tree" "main" {
  total = {
    "cpu"            = "200"
    "memory"         = "800Gi"
    "aliyun.com/gpu" = "16"
  }
  quotas = {
    # Guaranteed eight GPUs, at most all sixteen.
    "research" = {
      min = { "aliyun.com/gpu" = "8" }
      max = { "aliyun.com/gpu" = "16" }
    }
    "research/vision" = {
      min        = { "aliyun.com/gpu" = "4" }
      max        = { "aliyun.com/gpu" = "16" }
      namespaces = ["vision"]
    }
    "research/speech" = {
      min        = { "aliyun.com/gpu" = "4" }
      max        = { "aliyun.com/gpu" = "8" }
      namespaces = ["speech"]
    }
    # Whatever is idle.
    "batch" = {
      max        = { "aliyun.com/gpu" = "16" }
      max_jobs   = 4
      namespaces = ["batch"]
    }
  }
}
