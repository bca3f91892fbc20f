terraform import gpuplan_training_job.vgg16 default/pytorch-topo-4-vgg16
