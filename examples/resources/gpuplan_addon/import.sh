terraform import gpuplan_addon.scheduler kube-scheduler
