"""The chart's objects of the CSI driver: those with everything, with conditions."""

import json

from tools.deploy_files.conditions import IDENTIFIES, Condition, both, guarded
from tools.deploy_files.monitoring_template import LABEL, LABELS
from tools.deploy_files.rbac_template import HEADER, NAMESPACE, quoted, replaced
from tools.deploy_files.workload_template import (
    CONFIG_SECRET,
    IMAGE,
    PULL_SECRETS,
    REPLICAS,
    SECRET,
    marked,
    of_flags,
    pods,
    with_block,
)

from pileus.dataclass import replace
from pileus.deployment.choice import Account, ApiServer, Choice, CsiChoice, Monitor, Monitoring
from pileus.deployment.commented import Object, documents
from pileus.deployment.csi import CONTROLLER, LOOPBACK, NODE, PASSED, csi_objects
from pileus.deployment.manifests import pod
from pileus.deployment.monitoring import monitoring_objects

CLOUD, REGISTRY, KUBELET, NODE_IMAGE = "markcloud", "mark-registry", "/mark-kubelet", "mark-node"
SIDECARS, SNAPSHOTS = ".Values.csi.sidecars", ".Values.csi.snapshots"
SNAPSHOTTER = "csi-snapshotter"
OWN_SERVER = 'and .Values.apiServer.host (ne .Values.apiServer.host "node")'
REFUSED = {
    f"and {SNAPSHOTS} (not {SIDECARS})": (
        "csi.snapshots needs csi.sidecars: csi-snapshotter is a sidecar. Fix: remove csi.snapshots"
    ),
    'contains "," .Values.cloudProvider': (
        "csi.enabled: a driver serves one cloud, and cloudProvider is a list. Fix: install the "
        "drivers with pileus manifests --csi, once for each cloud"
    ),
}


def csi_template() -> str:
    checks = "".join(guarded(when, f'{{{{- fail "{why}" }}}}\n') for when, why in REFUSED.items())
    given = _marked()
    text = "".join(map(_document, csi_objects(given, pod)))
    monitors = "".join(
        _document(one)
        for one in monitoring_objects(given)
        if one["kind"] == "PodMonitor" and one["metadata"]["name"] in {CONTROLLER, NODE}
    )
    text += guarded(".Values.monitoring.monitor", monitors)
    for mark, by in (
        (CLOUD, "{{ .Values.cloudProvider }}"),
        (REGISTRY, '{{ .Values.csi.registry | trimSuffix "/" }}'),
        (KUBELET, '{{ .Values.csi.kubeletDir | trimSuffix "/" }}'),
        (NAMESPACE, "{{ .Release.Namespace }}"),
        (f"    {LABEL}: mark\n", LABELS),
        ("--http-endpoint=:", f"--http-endpoint={{{{ {_host()} }}}}:"),
    ):
        text = replaced(text, mark, by)
    return HEADER + guarded(".Values.csi.enabled", checks + text)


def _host() -> str:
    """Returns the address of probes and metrics: with a monitor, that of the host."""
    return f'ternary "" "{LOOPBACK}" (not (empty .Values.monitoring.monitor))'


def _document(one: Object) -> str:
    text = f"---\n{documents([one])}"
    if one["kind"] == "Deployment":
        text = _controller(text)
    if one["kind"] == "DaemonSet":
        text = _node(text)
    condition = _condition(one)
    return guarded(condition, text) if condition else text


def _condition(one: Object) -> Condition | None:
    """Returns when the chart has the object, besides that it has the driver."""
    name, is_access = one["metadata"]["name"], one["apiVersion"].startswith("rbac.")
    if one["kind"] == "VolumeSnapshotClass":
        return SNAPSHOTS
    if not name.startswith(CONTROLLER):
        return None
    if name.endswith(SNAPSHOTTER):
        return both(SIDECARS, SNAPSHOTS)
    return both(SIDECARS, IDENTIFIES) if is_access and name == CONTROLLER else SIDECARS


def _controller(text: str) -> str:
    names = [each.strip("-=") for each in PASSED]
    for mark, by in (
        (str(REPLICAS), "{{ .Values.replicas }}"),
        (SECRET, f"{{{{ .Values.cloudConfigSecret | default {quoted(CONFIG_SECRET)} }}}}"),
    ):
        text = replaced(text, mark, by)
    text = with_block(text, f"        - name: {SNAPSHOTTER}", lambda it: guarded(SNAPSHOTS, it))
    return pods(_containers(text, names))


def _node(text: str) -> str:
    text = replaced(
        text, NODE_IMAGE, f"{{{{ .Values.csi.nodeImage | default ({_IMAGE}) | quote }}}}"
    )
    text = replaced(text, "value: mark\n", "value: {{ .Values.apiServer.host | quote }}\n")
    port = json.dumps(ApiServer("").port)
    text = replaced(
        text, f"value: {port}\n", "value: {{ .Values.apiServer.port | toString | quote }}\n"
    )
    first, last = "            - name: KUBERNETES_SERVICE_HOST", "          livenessProbe:"
    before, rest = text.split(first)
    server, after = rest.split(last)
    text = f"{before}{guarded(OWN_SERVER, first + server)}{last}{after}"
    text = with_block(text, "      serviceAccountName:", lambda block: block + PULL_SECRETS)
    return _containers(text, ["cloud-provider", "v"])


_IMAGE = 'include "pileus.image" .'


def _containers(text: str, flags: list[str]) -> str:
    policy = "imagePullPolicy: {{ .Values.image.pullPolicy }}"
    text = replaced(text, "imagePullPolicy: IfNotPresent", policy)
    text = text.replace(IMAGE, f"{{{{ {_IMAGE} | quote }}}}")
    return replaced(text, f"            - --cloud-provider={CLOUD}\n", of_flags(flags))


def _marked() -> Choice:
    return replace(
        marked(f"--cloud-provider={CLOUD}"),
        monitoring=Monitoring(
            monitor=Monitor.POD, account=Account("mark", "mark"), labels={LABEL: "mark"}
        ),
        csi=CsiChoice(snapshots=True, registry=REGISTRY, node_image=NODE_IMAGE, kubelet=KUBELET),
    )
