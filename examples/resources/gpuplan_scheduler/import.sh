terraform import gpuplan_scheduler.this gpuplan-scheduler
