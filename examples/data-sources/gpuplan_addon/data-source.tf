# The settings that the version of an add-on knows, before it is configured.
data "gpuplan_addon" "koordinator" {
  name       = "ack-koordinator"
  depends_on = [gpuplan_addon.koordinator]
}

output "settings" {
  value = try(keys(jsondecode(data.gpuplan_addon.koordinator.config_schema).properties), [])
}

output "upgrades" {
  value = [for v in data.gpuplan_addon.koordinator.newer_versions : v.version if v.upgradable]
}

resource "gpuplan_addon" "koordinator" {
  name = "ack-koordinator"
}
