import {
  to = gpuplan_training_job.vgg16
  identity = {
    namespace = "default"
    name      = "pytorch-topo-4-vgg16"
  }
}
