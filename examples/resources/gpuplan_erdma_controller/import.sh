terraform import gpuplan_erdma_controller.this ack-erdma-controller
