import {
  to = gpuplan_quota_tree.main
  identity = {
    name = "elasticquotatree"
  }
}
