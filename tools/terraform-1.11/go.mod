// Terraform, the oldest version that the provider is tested with. tools/build-terraform.sh builds it.
module github.com/gpuplan/terraform-provider-gpuplan/tools/terraform-1.11

go 1.26.0

require github.com/hashicorp/terraform v1.11.4
