# Runners have no disk of their own that lasts: the state is in a bucket, one object for each cluster.
terraform {
  backend "oss" {
    bucket = "gpu-clusters"
    prefix = "staging"
  }
}
