{{/* The name of everything of a release: short, since ids of nodes begin with it and have at most 64 characters. */}}
{{- define "freeslot.name" -}}
{{- if contains "freeslot" .Release.Name }}{{ .Release.Name | trunc 24 | trimSuffix "-" }}{{ else }}{{ printf "%s-freeslot" (.Release.Name | trunc 15 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* Labels by which pods of a component are selected: dict "root" $ "component" NAME. */}}
{{- define "freeslot.selector" -}}
app.kubernetes.io/name: freeslot
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "freeslot.labels" -}}
{{ include "freeslot.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* The scheme of the replicas' address: http where something else encrypts. */}}
{{- define "freeslot.scheme" -}}
{{ if .Values.replicas.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- define "freeslot.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "freeslot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What all pods have. Service links would set variables such as FREESLOT_PORT, which the programs take for
     keys of their configuration and refuse. */}}
{{- define "freeslot.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .pod.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* A configuration goes into a ConfigMap, which many may read: dict "config" MAP "where" KEY. */}}
{{- define "freeslot.noSecrets" -}}
{{- if regexMatch "://[^/@\\s\"]*:[^/@\\s\"]+@" (toJson .config) }}
{{- fail (printf "%s has a URL with a password, expected it in a Secret, which password_file names" .where) }}
{{- end }}
{{- if regexMatch "(?i)\"(authorization|cookie|x-api-key)\":" (toJson .config) }}
{{- fail (printf "%s has a header with a secret, expected it in a Secret that env sets as FREESLOT_SERVICES" .where) }}
{{- end }}
{{- end }}

{{/* The configuration of the replicas. */}}
{{- define "freeslot.replicaConfig" -}}
{{- $v := .Values }}
{{- if not (or $v.replicas.tls.secretName $v.replicas.behindProxy) }}
{{- fail "replicas.tls.secretName is empty, expected a Secret with tls.crt and tls.key, or replicas.behindProxy: true where something else encrypts" }}
{{- end }}
{{- if and $v.nodes.groups (not $v.replicas.nodeTokensSecret.name) }}
{{- fail "replicas.nodeTokensSecret.name is empty, expected the Secret with the lines of `schedctl nodes token`, which nodes.groups need" }}
{{- end }}
{{- $redis := dict "cells" $v.redis.cells "key_prefix" $v.redis.keyPrefix "connections" $v.redis.connections }}
{{- if $v.redis.trial.enabled }}
{{- if or $v.redis.url $v.redis.urls }}{{ fail "redis.trial.enabled and redis.url are set, expected one of them" }}{{ end }}
{{- $_ := set $redis "url" (printf "redis://%s-redis:6379" (include "freeslot.name" .)) }}
{{- else if $v.redis.urls }}
{{- if $v.redis.url }}{{ fail "redis.url and redis.urls are set, expected one of them" }}{{ end }}
{{- $_ := set $redis "urls" $v.redis.urls }}
{{- else }}
{{- $_ := set $redis "url" (required "redis.url is empty, expected your Redis such as redis://redis.example.com:6379, or redis.trial.enabled: true" $v.redis.url) }}
{{- end }}
{{- with $v.redis.username }}{{ $_ := set $redis "username" . }}{{ end }}
{{- with $v.redis.sentinelUsername }}{{ $_ := set $redis "sentinel_username" . }}{{ end }}
{{- if $v.redis.passwordSecret.name }}{{ $_ := set $redis "password_file" "/etc/freeslot/redis/password" }}{{ end }}
{{- if $v.redis.sentinelPasswordSecret.name }}{{ $_ := set $redis "sentinel_password_file" "/etc/freeslot/sentinel/password" }}{{ end }}
{{- $tls := dict }}
{{- if $v.redis.tls.caSecret.name }}{{ $_ := set $tls "ca_file" "/etc/freeslot/redis-ca/ca.crt" }}{{ end }}
{{- if $v.redis.tls.clientSecret }}{{ $_ := set $tls "cert_file" "/etc/freeslot/redis-client/tls.crt" }}{{ $_ := set $tls "key_file" "/etc/freeslot/redis-client/tls.key" }}{{ end }}
{{- with $v.redis.tls.serverName }}{{ $_ := set $tls "server_name" . }}{{ end }}
{{- with $tls }}{{ $_ := set $redis "tls" . }}{{ end }}
{{- $own := dict "listen" ":7480" "metrics_listen" ":7491" "redis" $redis "drain_timeout" (printf "%ds" (int $v.replicas.drainSeconds)) "tokens_file" "/etc/freeslot/tokens/tokens.yaml" }}
{{- if $v.replicas.tls.secretName }}
{{- $_ := set $own "tls" (dict "cert_file" "/etc/freeslot/tls/tls.crt" "key_file" "/etc/freeslot/tls/tls.key") }}
{{- end }}
{{- if $v.replicas.behindProxy }}{{ $_ := set $own "behind_proxy" true }}{{ end }}
{{- if $v.replicas.nodeTokensSecret.name }}{{ $_ := set $own "gateway" (dict "tokens_file" "/etc/freeslot/node-tokens/node-tokens.yaml") }}{{ end }}
{{- $config := mustMergeOverwrite (deepCopy $v.replicas.config) $own }}
{{- include "freeslot.noSecrets" (dict "config" $config "where" "redis or replicas.config") }}
{{- toYaml $config }}
{{- end }}

{{/* The values of a group of nodes: dict "root" $ "group" NAME. */}}
{{- define "freeslot.group" -}}
{{- toJson (mustMergeOverwrite (deepCopy .root.Values.nodes.defaults) (deepCopy (index .root.Values.nodes.groups .group | default dict))) }}
{{- end }}

{{/* The configuration of a group's agents: dict "root" $ "name" GROUP "group" VALUES. Labels are its end, so that
     the init container can add some. */}}
{{- define "freeslot.nodeConfig" -}}
{{- $v := .root.Values }}
{{- $at := printf "nodes.groups.%s" .name }}
{{- $own := dict "metrics_listen" ":7490" "stop_timeout" (printf "%ds" (int .group.stopSeconds)) "token_file" "/etc/freeslot/token/token" }}
{{- $host := printf "%s.%s.svc:7480" (include "freeslot.name" .root) .root.Release.Namespace }}
{{- if $v.replicas.tls.secretName }}
{{- $_ := set $own "gateway" (printf "wss://%s" $host) }}
{{- $_ := set $own "gateway_tls" (dict "ca_file" "/etc/freeslot/ca/ca.crt") }}
{{- else }}
{{- $_ := set $own "gateway" (printf "ws://%s" $host) }}
{{- $_ := set $own "gateway_insecure" true }}
{{- end }}
{{- $config := mustMergeOverwrite (deepCopy .group.config) $own }}
{{- include "freeslot.noSecrets" (dict "config" $config "where" (printf "%s.config" $at)) }}
{{- $node := dig "node" dict $config }}
{{- $labels := dig "labels" dict $node }}
{{- toYaml (omit $config "node") }}
node:
{{- with omit $node "labels" }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- range $name, $_ := .group.labelsFromNode.labels }}
{{- if hasKey $labels $name }}{{ fail (printf "%s has the label %s in config and in labelsFromNode, expected it in one of them" $at $name) }}{{ end }}
{{- end }}
  labels:
{{- with $labels }}
{{ toYaml . | indent 4 }}
{{- end }}
{{- end }}
