# Queues for jobs, from the quota tree.
resource "gpuplan_addon" "queue" {
  name = "ack-kube-queue"
}

# An add-on that others use as well stays when the resource goes.
resource "gpuplan_addon" "koordinator" {
  name            = "ack-koordinator"
  keep_on_destroy = true
}
