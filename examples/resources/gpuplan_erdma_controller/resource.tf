# Sets up the eRDMA devices of the nodes of gn8is and gn8v pools that join after it: name it in their depends_on.
resource "gpuplan_erdma_controller" "this" {
  driver               = "ofed"
  allocate_all_devices = true
}
