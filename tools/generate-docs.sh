#!/usr/bin/env bash
# Generates docs/ from the provider's schemas, templates/ and examples/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/terraform.rc" <<RC
provider_installation {
  dev_overrides { "registry.terraform.io/gpuplan/gpuplan" = "$root/bin" }
  direct {}
}
RC
cat >"$work/main.tf" <<'TF'
terraform {
  required_providers {
    gpuplan = { source = "registry.terraform.io/gpuplan/gpuplan" }
  }
}
TF
export TF_CLI_CONFIG_FILE="$work/terraform.rc" CHECKPOINT_DISABLE=1
# The generator looks a provider's schema up under HashiCorp's namespace.
# Identities of resources are in the schemas that Terraform prints since 1.12.
(cd "$work" && "$root/bin/terraform-1.14" providers schema -json | sed 's|registry.terraform.io/gpuplan/|registry.terraform.io/hashicorp/|' >schema.json)
"$root/bin/tfplugindocs" generate --provider-dir "$root" --provider-name gpuplan \
  --rendered-provider-name gpuplan --providers-schema "$work/schema.json" >"$work/log" || {
  cat "$work/log"
  exit 1
}
