{{/* The labels of all objects. */}}
{{- define "gpuplan.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: gpuplan
{{- end }}

{{/* The labels of the objects of each program. */}}
{{- define "gpuplan.scheduler.labels" -}}
app.kubernetes.io/name: gpuplan-scheduler
{{ include "gpuplan.labels" . }}
{{- end }}

{{- define "gpuplan.queue.labels" -}}
app.kubernetes.io/name: gpuplan-queue
{{ include "gpuplan.labels" . }}
{{- end }}

{{- define "gpuplan.nodeAgent.labels" -}}
app.kubernetes.io/name: gpuplan-node-agent
{{ include "gpuplan.labels" . }}
{{- end }}

{{- define "gpuplan.fleetScheduler.labels" -}}
{{ include "gpuplan.fleet.labels" (list "gpuplan-fleet-scheduler" .) }}
{{- end }}

{{/* Of a list of the program and the scope. */}}
{{- define "gpuplan.fleet.labels" -}}
app.kubernetes.io/name: {{ index . 0 }}
{{ include "gpuplan.labels" (index . 1) }}
{{- end }}

{{/* The token of an account on a hub; of a list as above. The account comes before it. */}}
{{- define "gpuplan.fleet.token" -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ index . 0 }}
  namespace: {{ (index . 1).Release.Namespace }}
  labels: {{- include "gpuplan.fleet.labels" . | nindent 4 }}
  annotations:
    kubernetes.io/service-account.name: {{ index . 0 }}
type: kubernetes.io/service-account-token
{{- end }}
