terraform {
  required_providers {
    gpuplan = { source = "gpuplan/gpuplan" }
  }
}

# Credentials are best left to the environment, or to a profile, or a role ("Credentials" below):
# ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and KUBECONFIG.
provider "gpuplan" {
  region          = "cn-hangzhou"
  cluster_id      = "c1b2c3d4e5f60718293a4b5c6d7e8f901"
  placement_check = "error"
}
