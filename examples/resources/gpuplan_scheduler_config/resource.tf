# Lets ACK's scheduler reserve resources for gangs of a fleet.
resource "gpuplan_scheduler_config" "this" {
  enable_reservation   = true
  preemption_algorithm = "ElasticQuota"

  # Settings without an attribute.
  extra_config = jsonencode({
    loadAwareThreshold = [{ resourceName = "cpu", threshold = 80 }]
  })
}
