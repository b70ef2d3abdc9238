{{- define "understudy.labels" -}}
app: {{ .Release.Name }}
app.kubernetes.io/name: understudy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "understudy.secret" -}}
{{ .Values.secret.existing | default (printf "%s-secret" .Release.Name) }}
{{- end }}

{{- define "understudy.account" -}}
{{ .Values.serviceAccount.existing | default .Release.Name }}
{{- end }}

{{- define "understudy.claim" -}}
{{- if .Values.storage.volume.create }}{{ .Release.Name }}-data
{{- else }}{{ .Values.storage.volume.existingClaim }}{{ end }}
{{- end }}

{{- define "understudy.config" -}}
{{- $own := dict "high-availability.type" "kubernetes" "high-availability.cluster-id" .Release.Name }}
{{- $_ := set $own "rest.bind-port" 8081 }}
{{- $_ := set $own "metrics.reporter.prom.port" 9249 }}
{{- $_ := set $own "taskmanager.numberOfTaskSlots" .Values.taskmanager.slots }}
{{- $_ := set $own "taskmanager.spare-drivers" 0 }}
{{- $_ := set $own "taskmanager.drain-timeout" (printf "%v s" .Values.taskmanager.drainSeconds) }}
{{- mergeOverwrite $own (deepCopy .Values.config) | toYaml }}
{{- end }}

{{/* Arguments that all processes have. */}}
{{- define "understudy.arguments" -}}
- --config-dir=/opt/understudy/conf
- -Dhigh-availability.storageDir={{ .Values.storage.directory }}
- -Dsecurity.secret-file=/opt/understudy/secret/secret
{{- if .Values.tls.secret }}
- -Dsecurity.ssl.verify-hostname=false
{{- range list "rest" "internal" }}
- -Dsecurity.ssl.{{ . }}.enabled=true
- -Dsecurity.ssl.{{ . }}.keystore=/opt/understudy/tls/tls.pem
- -Dsecurity.ssl.{{ . }}.truststore=/opt/understudy/tls/ca.pem
{{- end }}
{{- end }}
{{- end }}

{{/* A probe: (dict "root" $ "path" PATH "port" PORT). */}}
{{- define "understudy.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: {{ ternary "HTTPS" "HTTP" (not (empty .root.Values.tls.secret)) }}
timeoutSeconds: 5
{{- end }}

{{/* What pods have in common: (dict "root" $ "component" NAME "pods" VALUES). */}}
{{- define "understudy.pod" -}}
{{- $root := .root }}
serviceAccountName: {{ include "understudy.account" $root }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        app: {{ $root.Release.Name }}
        component: {{ .component }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .pods.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ $root.Release.Name }}-config
  - name: secret
    secret:
      secretName: {{ include "understudy.secret" $root }}
      defaultMode: 0440
  - name: work
    emptyDir: {}
  - name: tmp
    emptyDir: {}
{{- with include "understudy.claim" $root }}
  - name: data
    persistentVolumeClaim:
      claimName: {{ . }}
{{- end }}
{{- with $root.Values.tls.secret }}
  - name: tls
    secret:
      secretName: {{ . }}
      defaultMode: 0440
{{- end }}
{{- if $root.Values.application.script }}
  - name: application
    configMap:
      name: {{ $root.Release.Name }}-application
{{- end }}
{{- end }}

{{/* What containers have in common; the same arguments. */}}
{{- define "understudy.container" -}}
{{- $root := .root }}
name: understudy-main-container
image: {{ printf "%s:%s" $root.Values.image.repository $root.Values.image.tag | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
resources: {{- toYaml .pods.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
{{- if eq $root.Values.mode "application" }}
  - name: RUN_ID
    valueFrom:
      fieldRef:
        fieldPath: metadata.labels['batch.kubernetes.io/controller-uid']
{{- end }}
  - name: HOME
    value: /var/lib/understudy
  - name: XDG_CACHE_HOME
    value: /var/lib/understudy/cache
{{- with .pods.env }}
{{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /opt/understudy/conf
  - name: secret
    mountPath: /opt/understudy/secret
  - name: work
    mountPath: /var/lib/understudy
  - name: tmp
    mountPath: /tmp
{{- if include "understudy.claim" $root }}
  - name: data
    mountPath: /opt/understudy/data
{{- end }}
{{- if $root.Values.tls.secret }}
  - name: tls
    mountPath: /opt/understudy/tls
{{- end }}
{{- if $root.Values.application.script }}
  - name: application
    mountPath: /opt/app/main.py
    subPath: main.py
{{- end }}
{{- end }}
