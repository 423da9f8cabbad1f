"""The chart's Secret, Deployment, DaemonSet and budget, and the schema of its values."""

import json
from collections.abc import Callable, Iterable

from tools.deploy_files.conditions import SERVES, flag, guarded
from tools.deploy_files.rbac_template import HEADER, NAMESPACE, quoted, replaced

from pileus.app.registry import CONTROLLERS
from pileus.app.settings import TABLE, build_config
from pileus.dataclass import replace
from pileus.deployment.choice import ApiServer, Choice, Monitor, Shape
from pileus.deployment.commented import Object, documents
from pileus.deployment.manifests import (
    CONFIG_SECRET,
    config_secret,
    daemon_set,
    deployment,
    disruption_budget,
)
from pileus.settings.flags import AnyFlag
from pileus.settings.sources import gather
from pileus.version import PROGRAM

IMAGE, ARGUMENT, SECRET = "mark-image", "--mark", "mark-secret"
PORT, ADDRESS, REPLICAS = 65001, "192.0.2.1", 65002
OF_THE_CHART = frozenset({
    "cloud-config",
    "cloud-provider",
    "config",
    "kubeconfig",
    "leader-migration-config",
    "master",
})
"""Flags that other values set, or whose file a pod does not have."""
CHECKSUM = """{{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .Values.cloudConfig }}
        checksum/cloud-config: {{ printf "cloud-config:%s\\n" (sha256sum .) | sha256sum }}
        {{- end }}
"""
ARGUMENTS = """            {{- range $name, $value := include "pileus.flags" . | fromYaml }}
            - {{ printf "--%s=%s" $name (include "pileus.flag" $value) | quote }}
            {{- end }}
"""


def of_flags(names: Iterable[str]) -> str:
    """Returns the arguments for those of the manager's flags that have one of the names."""
    listed = " ".join(f'"{each}"' for each in names)
    return (
        '            {{- range $name, $value := include "pileus.flags" . | fromYaml }}\n'
        f"            {{{{- if has $name (list {listed}) }}}}\n"
        '            - {{ printf "--%s=%s" $name (include "pileus.flag" $value) | quote }}\n'
        "            {{- end }}\n"
        "            {{- end }}\n"
    )


ENVIRONMENT = """          {{- if or .Values.apiServer.host .Values.extraEnv }}
          env:
            {{- with .Values.apiServer.host }}
            - name: KUBERNETES_SERVICE_HOST
              {{- if eq . "node" }}
              valueFrom:
                fieldRef:
                  fieldPath: status.hostIP
              {{- else }}
              value: {{ . | quote }}
              {{- end }}
            - name: KUBERNETES_SERVICE_PORT
              value: {{ $.Values.apiServer.port | toString | quote }}
            {{- end }}
EXTRA          {{- end }}
"""
RESOURCES = "          resources:\n            {{- toYaml .Values.resources | nindent 12 }}\n"
EXTRA_VARIABLES = """            {{- with .Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
"""
MOUNTS = """            {{- with .Values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
"""
VOLUMES = """        {{- with .Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
"""
PRIORITY = """      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
"""
PLACEMENT = """      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
"""
OWN_AFFINITY = """      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- else }}
"""
PULL_SECRETS = """      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
"""
TOLERATIONS = """        {{- with .Values.tolerations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
"""
LABELS = """        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
"""
HAS_CONFIG = "(or .Values.cloudConfig .Values.cloudConfigSecret)"


def workload_template() -> str:
    made = _marked(Shape.DEPLOYMENT)
    secret = replaced(
        documents([config_secret(made)]), "bWFyaw==", "{{ .Values.cloudConfig | b64enc }}"
    )
    budget = guarded("gt (int .Values.replicas) 1", f"---\n{documents([disruption_budget(made)])}")
    parts = (
        HEADER,
        guarded("and .Values.cloudConfig (not .Values.cloudConfigSecret)", secret),
        guarded('eq .Values.kind "Deployment"', f"---\n{_workload(made, deployment)}{budget}"),
        guarded(
            'eq .Values.kind "DaemonSet"',
            f"---\n{_workload(_marked(Shape.DAEMON_SET), daemon_set)}",
        ),
    )
    return replaced("".join(parts), NAMESPACE, "{{ .Release.Namespace }}")


def _marked(shape: Shape) -> Choice:
    line = ("--cloud-provider=local", f"--secure-port={PORT}", f"--bind-address={ADDRESS}")
    return replace(marked(*line), arguments=(ARGUMENT,), shape=shape)


def marked(*line: str) -> Choice:
    """Returns a choice with these flags whose other values are marks, which templates replace."""
    return Choice(
        config=build_config(gather(TABLE, PROGRAM, line, {}).values),
        arguments=line,
        namespace=NAMESPACE,
        image=IMAGE,
        replicas=REPLICAS,
        api_server=ApiServer("mark"),
        files={"cloud-config": b"mark"},
        secret=SECRET,
    )


def _workload(choice: Choice, make: Callable[[Choice], Object]) -> str:
    text = documents([make(choice)])
    if choice.shape is Shape.DEPLOYMENT:
        text = replaced(text, str(REPLICAS), "{{ .Values.replicas }}")
    for mark, by in (
        (IMAGE, '{{ include "pileus.image" . | quote }}'),
        ("imagePullPolicy: IfNotPresent", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
        (f"            - {ARGUMENT}\n", ARGUMENTS),
        (SECRET, f"{{{{ .Values.cloudConfigSecret | default {quoted(CONFIG_SECRET)} }}}}"),
        (str(PORT), f"{{{{ {flag('secure-port', '10258')} }}}}"),
        (ADDRESS, '{{ include "pileus.probed" . | quote }}'),
    ):
        text = replaced(text, mark, by)
    text = with_block(text, "          resources:", lambda _: RESOURCES)
    for probe in ("livenessProbe", "readinessProbe"):
        text = with_block(text, f"          {probe}:", lambda block: guarded(SERVES, block))
    return pods(text)


def pods(text: str) -> str:
    """Returns a workload with the variables, volumes and places that the values give its pods."""
    environment = ENVIRONMENT.replace("EXTRA", EXTRA_VARIABLES)
    text = with_block(text, "          env:", lambda _: environment)
    text = with_block(text, "      tolerations:", lambda block: block + TOLERATIONS)
    text = with_block(text, "      serviceAccountName:", lambda block: block + PULL_SECRETS)
    text = with_block(text, "      priorityClassName:", lambda _: PRIORITY + PLACEMENT)
    text = with_block(
        text, "      affinity:", lambda block: f"{OWN_AFFINITY}{block}      {{{{- end }}}}\n"
    )
    text = with_block(text, "          volumeMounts:", lambda block: block + MOUNTS)
    text = with_block(text, "      volumes:", lambda block: block + VOLUMES)
    for start in ("            - name: cloud-config", "        - name: cloud-config"):
        text = with_block(text, start, lambda block: guarded(HAS_CONFIG, block))
    text = with_block(text, "      annotations:", lambda _: _annotations())
    before, template = text.split("  template:\n")
    template = with_block(template, "      labels:", lambda block: block + LABELS)
    return f"{before}  template:\n{template}"


def _annotations() -> str:
    return guarded(
        "or .Values.podAnnotations .Values.cloudConfig", f"      annotations:\n        {CHECKSUM}"
    )


def with_block(text: str, start: str, change: Callable[[str], str]) -> str:
    """Returns the text with another block: the line that starts so, and all that is inside."""
    lines = text.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(start))
    depth = len(start) - len(start.lstrip())
    last = first + 1
    while last < len(lines) and lines[last].startswith(" " * (depth + 1)):
        last += 1
    block = change("".join(lines[first:last]))
    return "".join((*lines[:first], block, *lines[last:]))


TEXT: Object = {"type": "string"}
OBJECTS: Object = {"type": "array", "items": {"type": "object"}}
_TYPES: dict[frozenset[type], Object] = {
    frozenset({bool}): {"type": "boolean"},
    frozenset({int}): {"type": "integer"},
    frozenset({int, float}): {"type": "number"},
    frozenset({str, int}): {"type": ["string", "integer"]},
    frozenset({list, str}): {"type": "array", "items": TEXT},
    frozenset({list, int}): {"type": "array", "items": {"type": "integer"}},
    frozenset({dict, str}): {"type": "object", "additionalProperties": {"type": "boolean"}},
}
"""The types of a value in a configuration file, and in the chart's values."""


def schema() -> str:
    """Returns the schema of the chart's values. It knows every flag and every controller."""
    flags = {
        each.name: _flag(each) for each in sorted(TABLE, key=lambda one: one.name) if _taken(each)
    }
    whole = _closed({
        "enabled": {"type": "boolean"},
        "cloudProvider": TEXT,
        "cloudConfig": TEXT,
        "cloudConfigSecret": TEXT,
        "cloudConfigSecretKey": {"type": "string", "pattern": "^[-._a-zA-Z0-9]{1,253}$"},
        "flags": _closed(flags),
        "kind": {"enum": ["Deployment", "DaemonSet"]},
        "replicas": {"type": "integer", "minimum": 1},
        "image": _closed({
            "repository": {"type": "string", "minLength": 1},
            "tag": TEXT,
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        }),
        "imagePullSecrets": {"type": "array", "items": TEXT},
        "apiServer": _closed({
            "host": TEXT,
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        }),
        "resources": {"type": "object"},
        "tolerations": OBJECTS,
        "extraEnv": OBJECTS,
        "extraVolumes": OBJECTS,
        "extraVolumeMounts": OBJECTS,
        "nodeSelector": {"type": "object", "additionalProperties": TEXT},
        "affinity": {"type": "object"},
        "topologySpreadConstraints": OBJECTS,
        "priorityClassName": TEXT,
        "serviceAccount": _closed({
            "annotations": {"type": "object", "additionalProperties": TEXT}
        }),
        "podLabels": {"type": "object", "additionalProperties": TEXT},
        "podAnnotations": {"type": "object", "additionalProperties": TEXT},
        "monitoring": _closed({
            "monitor": {"enum": ["", *(each.value for each in Monitor)]},
            "prometheus": _closed({"namespace": TEXT, "name": TEXT}),
            "labels": {"type": "object", "additionalProperties": TEXT},
            "runbookUrl": TEXT,
        }),
        "csi": _closed({
            "enabled": {"type": "boolean"},
            "sidecars": {"type": "boolean"},
            "snapshots": {"type": "boolean"},
            "registry": {"type": "string", "minLength": 1},
            "nodeImage": TEXT,
            "kubeletDir": {"type": "string", "pattern": "^/"},
        }),
        "global": {"type": "object"},
    })
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **whole,
    }
    return json.dumps(whole, indent=2) + "\n"


def _closed(properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _taken(each: AnyFlag) -> bool:
    return not (each.only_flag or each.only_file or each.name in OF_THE_CHART)


def _flag(each: AnyFlag) -> Object:
    kind = _TYPES.get(frozenset(each.kind.natural), TEXT)
    if each.name == "controllers":
        kind = {"type": "array", "items": {"enum": _entries()}}
    return {**kind, "description": each.help}


def _entries() -> list[str]:
    """Returns every valid entry of --controllers."""
    names = [word for each in CONTROLLERS.names for word in (each.canonical, each.alias)]
    return ["*", *names, *(f"-{name}" for name in names)]
