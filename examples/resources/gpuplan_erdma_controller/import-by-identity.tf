import {
  to = gpuplan_erdma_controller.this
  identity = {
    name = "ack-erdma-controller"
  }
}
