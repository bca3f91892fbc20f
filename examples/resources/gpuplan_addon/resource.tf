# Lets the scheduler of ACK reserve resources for gangs of a fleet.
resource "gpuplan_addon" "scheduler" {
  name   = "kube-scheduler"
  config = jsonencode({ enableReservation = true })
}

# Drivers for eRDMA on the nodes of gn8is and gn8v pools that join after it: name it in their depends_on.
resource "gpuplan_addon" "erdma" {
  name = "ack-erdma-controller"
  config = jsonencode({
    agent = {
      preferDriver       = "ofed"
      allocateAllDevices = true
    }
  })
}
