"""The chart's objects for the Prometheus operator and Grafana, and the files that they include.

Alerts and dashboard have braces of their own: the chart reads them from files, which Helm does not
take for templates.
"""

from tools.deploy_files.conditions import SERVES, flag, guarded
from tools.deploy_files.rbac_template import HEADER, NAMESPACE, replaced
from tools.deploy_files.workload_template import marked

from pileus.dataclass import replace
from pileus.deployment.alerts import RUNBOOKS, groups
from pileus.deployment.choice import Account, Choice, Monitor, Monitoring
from pileus.deployment.commented import Object, documents
from pileus.deployment.monitoring import dashboard_text, monitoring_objects

PORT, LABEL, READER, READERS = 65001, "mark-label", "mark-reader", "mark-readers"
ALERTS, DASHBOARD = "files/alerts.yaml", "files/dashboard.json"
LABELS = """    {{- with .Values.monitoring.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
"""
GROUPS = f"""spec:
  {{{{- .Files.Get "{ALERTS}" | replace "{RUNBOOKS}" .Values.monitoring.runbookUrl | nindent 2 }}}}
"""
DATA = f"""data:
  pileus.json: {{{{ .Files.Get "{DASHBOARD}" | quote }}}}
"""
REMEDY = "Fix: remove one of them"
NO_PORT = f"monitoring.monitor is set, but the flag secure-port=0 serves no metrics. {REMEDY}"
LOOPBACK = (
    "monitoring.monitor is set, but Prometheus cannot reach the flag bind-address, a loopback "
    f"address. {REMEDY}"
)


def monitoring_template() -> str:
    monitors = "".join(
        guarded(f'eq .Values.monitoring.monitor "{kind.value}"', _objects(kind)) for kind in Monitor
    )
    is_loopback = f'has {flag("bind-address")} (list "127.0.0.1" "::1")'
    checks = _refused(f"not {SERVES}", NO_PORT) + _refused(is_loopback, LOOPBACK)
    return HEADER + guarded(".Values.monitoring.monitor", checks + monitors)


def _refused(condition: str, why: str) -> str:
    return guarded(condition, f'{{{{- fail "{why}" }}}}\n')


def monitoring_files() -> dict[str, str]:
    """Returns the files that the template includes, by their path in the chart."""
    return {ALERTS: documents([{"groups": groups()}]), DASHBOARD: dashboard_text()}


def _objects(kind: Monitor) -> str:
    text = "".join(f"---\n{_document(one)}" for one in monitoring_objects(_marked(kind)))
    if kind is Monitor.SERVICE:
        text = replaced(text, READERS, "{{ .Values.monitoring.prometheus.namespace }}")
        text = replaced(text, READER, "{{ .Values.monitoring.prometheus.name }}")
    text = replaced(text, f"    {LABEL}: mark\n", LABELS)
    text = replaced(text, str(PORT), f"{{{{ {flag('secure-port', '10258')} }}}}")
    return replaced(text, NAMESPACE, "{{ .Release.Namespace }}")


def _document(one: Object) -> str:
    if one["kind"] == "PrometheusRule":
        return documents([{key: one[key] for key in one if key != "spec"}]) + GROUPS
    if one["kind"] == "ConfigMap":
        return documents([{key: one[key] for key in one if key != "data"}]) + DATA
    return documents([one])


def _marked(kind: Monitor) -> Choice:
    return replace(
        marked("--cloud-provider=local", f"--secure-port={PORT}"),
        monitoring=Monitoring(
            monitor=kind, account=Account(READERS, READER), labels={LABEL: "mark"}
        ),
    )
