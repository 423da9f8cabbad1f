"""Objects for the Prometheus operator and Grafana: scraping with its rights, alerts, dashboard.

The secure port authenticates and authorizes every reader. With a ServiceMonitor, Prometheus sends
the token of its own account; with a PodMonitor, the token of an account that may read nothing else.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from pileus.deployment import csi
from pileus.deployment.alerts import JOB, groups
from pileus.deployment.choice import Choice, Monitor, Monitoring, Shape
from pileus.deployment.commented import Commented, Object
from pileus.deployment.dashboard import dashboard
from pileus.deployment.rbac import VERSION, account, binding
from pileus.server.settings import ServerSettings

PATHS = ("/metrics", "/metrics/slis")
PORT = "https-metrics"
SUFFIX = "metrics"
"""Ending of the names of the Service, the account and its token."""
DASHBOARD_LABEL = "grafana_dashboard"
"""The label by which Grafana's sidecar finds dashboards."""
_OPERATOR = "monitoring.coreos.com/v1"
_UNVERIFIED = (
    "The manager signs its own certificate unless --tls-cert-file is given. Then replace this with "
    "the CA and the name of the certificate."
)


def monitoring_objects(choice: Choice) -> Iterator[Object]:
    """Yields the objects, if the choice asks for them."""
    wanted = choice.monitoring
    if wanted is None:
        return
    yield from _access(choice, wanted)
    if choice.shape is not Shape.EXTERNAL:
        yield from _targets(choice, wanted)
    yield from _csi_targets(choice, wanted)
    yield _rules(choice, wanted)
    yield _dashboard(choice, wanted)


def dashboard_json() -> str:
    """Returns the dashboard as a file for Grafana."""
    return f"{json.dumps(dashboard(), indent=1)}\n"


def dashboard_text() -> str:
    """Returns the same in one line, as in the ConfigMap."""
    return json.dumps(dashboard(), separators=(",", ":"))


def _name(choice: Choice) -> str:
    return f"{choice.name}-{SUFFIX}"


def _metadata(choice: Choice, wanted: Monitoring, name: str = "") -> Object:
    metadata = choice.metadata(name)
    return metadata | {"labels": metadata["labels"] | dict(wanted.labels)}


def _access(choice: Choice, wanted: Monitoring) -> Iterator[Object]:
    name = f"{choice.name}:{SUFFIX}"
    rule = {"nonResourceURLs": list(PATHS), "verbs": ["get"]}
    labels = choice.metadata()["labels"]
    metadata = {"name": name, "labels": labels}
    role = {"apiVersion": VERSION, "kind": "ClusterRole", "metadata": metadata}
    yield Commented("The right to read the metrics.", role | {"rules": [rule]})
    if wanted.monitor is Monitor.POD:
        reader = account(_name(choice), choice.namespace, labels)
        yield reader
        yield _token(choice)
    else:
        reader = account(wanted.account.name, wanted.account.namespace, {})
    yield binding(metadata, "ClusterRole", reader)


def _token(choice: Choice) -> Object:
    annotation = {"kubernetes.io/service-account.name": _name(choice)}
    return Commented(
        "PodMonitors take tokens from Secrets only. Kubernetes fills in the token.",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": choice.metadata(_name(choice)) | {"annotations": annotation},
            "type": "kubernetes.io/service-account-token",
        },
    )


def _targets(choice: Choice, wanted: Monitoring) -> Iterator[Object]:
    if wanted.monitor is Monitor.POD:
        yield _pod_monitor(choice, wanted)
        return
    yield _service(choice)
    yield _service_monitor(choice, wanted)


def _service(choice: Choice) -> Object:
    port = choice.config[ServerSettings].serving.port
    return Commented(
        "Makes the pods known to Prometheus. It has no address.",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": choice.metadata(_name(choice)),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": choice.labels(),
                "ports": [{"name": PORT, "port": port, "targetPort": port}],
            },
        },
    )


def _service_monitor(choice: Choice, wanted: Monitoring) -> Object:
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 -- a path
    how = {"port": PORT, "bearerTokenFile": token}
    return {
        "apiVersion": _OPERATOR,
        "kind": "ServiceMonitor",
        "metadata": _metadata(choice, wanted),
        "spec": {
            "selector": {"matchLabels": choice.labels()},
            "endpoints": [_endpoint(path, how) for path in PATHS],
        },
    }


def _pod_monitor(choice: Choice, wanted: Monitoring) -> Object:
    credentials = {"name": _name(choice), "key": "token"}
    how: Object = {"authorization": {"credentials": credentials}}
    port = choice.config[ServerSettings].serving.port
    return {
        "apiVersion": _OPERATOR,
        "kind": "PodMonitor",
        "metadata": _metadata(choice, wanted),
        "spec": {
            "selector": {"matchLabels": choice.labels()},
            "podMetricsEndpoints": [_endpoint(path, how, *_addresses(port)) for path in PATHS],
        },
    }


def _csi_targets(choice: Choice, wanted: Monitoring) -> Iterator[Object]:
    """Yields the monitors of the CSI driver. Its metrics need no token."""
    if choice.csi is None:
        return
    for name in (csi.CONTROLLER, csi.NODE) if choice.csi.sidecars else (csi.NODE,):
        own = replace(choice, name=name)
        endpoint = {
            "path": PATHS[0],
            "interval": "30s",
            "relabelings": [
                *_addresses(csi.METRICS_PORTS[name]),
                {"targetLabel": "job", "replacement": name},
            ],
        }
        yield {
            "apiVersion": _OPERATOR,
            "kind": "PodMonitor",
            "metadata": _metadata(own, wanted),
            "spec": {
                "selector": {"matchLabels": own.labels()},
                "podMetricsEndpoints": [endpoint],
            },
        }


def _endpoint(path: str, how: Object, *relabelings: Object) -> Object:
    """Returns one endpoint. Without the label `metrics_path`, both had the same series `up`."""
    return {
        **how,
        "path": path,
        "scheme": "https",
        "interval": "30s",
        "tlsConfig": Commented(_UNVERIFIED, {"insecureSkipVerify": True}),
        "relabelings": [
            *relabelings,
            {"targetLabel": "job", "replacement": JOB},
            {"targetLabel": "metrics_path", "replacement": path},
        ],
    }


def _addresses(port: int) -> Iterator[Object]:
    """Yields the relabelings that give targets their port: the containers declare none."""
    for address, target in ((r"([0-9.]+)", f"$1:{port}"), (r"(.*:.*)", f"[$1]:{port}")):
        yield {
            "sourceLabels": ["__meta_kubernetes_pod_ip"],
            "regex": address,
            "targetLabel": "__address__",
            "replacement": target,
        }


def _rules(choice: Choice, wanted: Monitoring) -> Object:
    return {
        "apiVersion": _OPERATOR,
        "kind": "PrometheusRule",
        "metadata": _metadata(choice, wanted),
        "spec": {"groups": groups(wanted.runbooks)},
    }


def _dashboard(choice: Choice, wanted: Monitoring) -> Object:
    metadata = _metadata(choice, wanted, f"{choice.name}-dashboard")
    labels = metadata["labels"] | {DASHBOARD_LABEL: "1"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata | {"labels": labels},
        "data": {"pileus.json": dashboard_text()},
    }
