{{- /* "true" if the list `entries` enables the controller; the first match decides. */ -}}
{{- define "pileus.enabled" -}}
{{- $found := "" -}}
{{- range .entries -}}
{{- if not $found -}}
{{- if or (eq . $.name) (eq . $.alias) -}}
{{- $found = "yes" -}}
{{- else if or (eq . (printf "-%s" $.name)) (eq . (printf "-%s" $.alias)) -}}
{{- $found = "no" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not $found) (not .off) (has "*" .entries) -}}
{{- $found = "yes" -}}
{{- end -}}
{{- if eq $found "yes" -}}true{{- end -}}
{{- end -}}

{{- /* The account of a controller: its own, or that of the manager. */ -}}
{{- define "pileus.subject" -}}
{{- $flags := .root.Values.flags -}}
{{- if and (index $flags "use-service-account-credentials") (not (index $flags "dry-run")) -}}
{kind: ServiceAccount, name: {{ .identity }}, namespace: kube-system}
{{- else -}}
{kind: ServiceAccount, name: pileus-cloud-controller-manager, namespace: {{ .root.Release.Namespace }}}
{{- end -}}
{{- end -}}

{{- /* The address at which kubelets probe the secure port. */ -}}
{{- define "pileus.probed" -}}
{{- $address := index .Values.flags "bind-address" -}}
{{- if has $address (list nil "" "0.0.0.0" "::") -}}127.0.0.1{{- else -}}{{ $address }}{{- end -}}
{{- end -}}

{{- define "pileus.image" -}}
{{- with .Values.image.digest -}}
{{ $.Values.image.repository }}@{{ . }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The key of the provider's file in the Secret. */ -}}
{{- define "pileus.configKey" -}}
{{- if .Values.cloudConfigSecret -}}{{ .Values.cloudConfigSecretKey }}{{- else -}}cloud-config{{- end -}}
{{- end -}}

{{- /* The flags of the container as YAML. */ -}}
{{- define "pileus.flags" -}}
{{- $missing := "cloudProvider is not set. Fix: add --set cloudProvider=NAME, such as openstack" -}}
{{- $flags := merge (dict "cloud-provider" (required $missing .Values.cloudProvider)) .Values.flags -}}
{{- if or .Values.cloudConfig .Values.cloudConfigSecret -}}
{{- $flags = set $flags "cloud-config" (printf "/etc/cloud/%s" (include "pileus.configKey" .)) -}}
{{- end -}}
{{- if and (eq .Values.kind "Deployment") (not (hasKey $flags "permit-port-sharing")) -}}
{{- $flags = set $flags "permit-port-sharing" true -}}
{{- end -}}
{{- toYaml $flags -}}
{{- end -}}

{{- /* One value of a flag, as on the command line. */ -}}
{{- define "pileus.flag" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}{{- $pairs = append $pairs (printf "%s=%v" $name $value) -}}{{- end -}}
{{- join "," $pairs -}}
{{- else if kindIs "string" . -}}
{{- . -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}
