{{/* The configuration of the scheduler. */}}
{{- define "gpuplan.scheduler.config" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# The API server limits clients by itself, and few bindings are under way at a time.
clientConnection:
  qps: 5000
  burst: 10000
leaderElection:
  # Also with one replica: during an update two of them run for a while. The lease is
  # short, because after a crash nothing is scheduled until it has run out.
  leaderElect: true
  leaseDuration: 6s
  renewDeadline: 4s
  retryPeriod: 1s
  resourceLock: leases
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: gpuplan-scheduler
profiles:
  - schedulerName: gpuplan-scheduler
    plugins:
      # The planner has the last word on nodes, so its PreFilter comes last.
      multiPoint:
        enabled:
          - name: GPUPlanQuota
          - name: GPUPlanGang
          - name: GPUPlanPreemption
          - name: GPUPlanRoom
        disabled:
          - name: DefaultPreemption
      queueSort:
        enabled:
          - name: GPUPlanGang
        disabled:
          - name: PrioritySort
      # A pod without its resource claim is refused in its cycle, as one without its volume claim: its gang goes on without it
      # if it can, and the pod says what it lacks. One that is in no queue would be waited for.
      preEnqueue:
        disabled:
          - name: DynamicResources
      # First: its signature tells at once that planned pods are not batched.
      preFilter:
        enabled:
          - name: GPUPlanQuota
      # First, so that it is the last to hear that a member gives its place back: by then the
      # volumes and devices of the member are free again.
      reserve:
        enabled:
          - name: GPUPlanGang
      # Gangs are not preempted for pod by pod, and are evicted for single pods whole.
      postFilter:
        enabled:
          - name: GPUPlanGang
          - name: GPUPlanPreemption
        disabled:
          - name: "*"
      # Pods without GPUs leave room for those with GPUs. These two spread them evenly, and leave
      # GPUs without the CPU that they need.
      score:
        disabled:
          - name: NodeResourcesFit
          - name: NodeResourcesBalancedAllocation
      bind:
        enabled:
          - name: GPUPlanAllocate
          - name: DefaultBinder
        disabled:
          - name: "*"
    pluginConfig:
      - name: GPUPlanGang
        args:
          # How long a gang waits before capacity is reserved for it; negative: never. GPUs idle
          # for a reservation, so it is longer than most short jobs take to make room.
          reserveAfter: {{ .Values.scheduler.reserveAfter }}
          # How long a gang that has lost members may find no place for others before the whole
          # gang is evicted, to wait as a whole again; 0s: never.
          staleAfter: {{ .Values.scheduler.staleAfter }}
{{ end }}
