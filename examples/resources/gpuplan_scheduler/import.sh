terraform import gpuplan_scheduler.this gpuplan-system/gpuplan-scheduler
