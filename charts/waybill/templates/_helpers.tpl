{{/* The chart's names are fixed: one release in a namespace, and the operator finds what is its own by these names. */}}

{{- define "waybill.operator" -}}
waybill-operator
{{- end }}

{{/* Name of objects that belong to no namespace. */}}
{{- define "waybill.clusterName" -}}
waybill-{{ .Release.Namespace }}
{{- end }}

{{- define "waybill.selector" -}}
app.kubernetes.io/name: waybill-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waybill.labels" -}}
{{ include "waybill.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: waybill
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* An image: (list $ "operator" "waybill-operator"): what the values name, or the registry, the name and the tag. */}}
{{- define "waybill.image" -}}
{{- $root := index . 0 -}}
{{- $given := (index $root.Values (index . 1)).image -}}
{{- $image := $root.Values.image -}}
{{- if $given -}}
{{ $given }}
{{- else -}}
{{ with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ index . 2 }}:{{ default $root.Chart.AppVersion $image.tag }}
{{- end -}}
{{- end }}

{{/* The namespaces with brokers and proxies that network policies are made for. */}}
{{- define "waybill.policyNamespaces" -}}
{{- $names := .Values.networkPolicies.namespaces | default .Values.watchNamespaces | default (list .Release.Namespace) -}}
{{- if and .Values.quickstart.enabled (not .Values.networkPolicies.namespaces) (not .Values.watchNamespaces) -}}
{{- $names = append $names .Values.quickstart.namespace -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end }}

{{/* Who may read metrics. */}}
{{- define "waybill.monitoringFrom" -}}
{{- .Values.networkPolicies.monitoringFrom | default (list (dict "namespaceSelector" dict)) | toYaml -}}
{{- end }}

{{/* The pods of this operator. */}}
{{- define "waybill.operatorPeer" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .Release.Namespace }}
podSelector:
  matchLabels:
    app.kubernetes.io/name: waybill-operator
{{- end }}

{{/* What monitors and rules are labelled with. */}}
{{- define "waybill.monitoringLabels" -}}
{{ include "waybill.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
