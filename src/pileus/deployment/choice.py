"""What to install: the manager's flags, and where and how it runs."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from ipaddress import ip_address
from typing import Any

from pileus.app.migration import DEFAULT
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.dataclass import dataclass
from pileus.deployment.alerts import RUNBOOKS
from pileus.objects.rights import KUBE_SYSTEM
from pileus.settings.config import Config
from pileus.version import INSTALLED, PART_OF, PILEUS

DEFAULT_IMAGE = f"pileus:{PILEUS}"
"""What `make image` builds. No registry has it under this name."""
SIDECARS = "registry.k8s.io/sig-storage"
"""Where the Kubernetes project publishes the sidecars of CSI drivers."""
KUBELET = "/var/lib/kubelet"
CONFIG_KEY = "cloud-config"
"""Key of the provider's file in the Secret, and its name in /etc/cloud."""
SECURE_PORT = 10292
"""Port of pods unless --secure-port is given: beside the pods of a Go manager on the same host
network, which use the framework's 10258, in both directions of a take-over."""
DEFAULT_PORT = "6443"
DEFAULT_PROMETHEUS = "monitoring/prometheus-k8s"
"""The service account of Prometheus in kube-prometheus."""
NODE = "node"
"""Value of --api-server for the control-plane node that a pod runs on."""
_HOST = re.compile(
    r"(?:https://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s\[\]:/]+)(?::(?P<port>\d{1,5}))?/?"
)


_NAME = re.compile(r"(?=.{1,253}$)[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_LAST_PORT = 65535


def _is_host(text: str) -> bool:
    """Whether it is an IP address or a DNS name; digits and dots alone are an address."""
    try:
        ip_address(text.strip("[]"))
    except ValueError:
        parts = text.removesuffix(".").split(".")
        return all(map(_NAME.fullmatch, parts)) and not parts[-1].isdigit()
    return True


def _is_port(text: str | None) -> bool:
    return text is None or 0 < int(text) <= _LAST_PORT


class InvalidChoice(Exception):
    """The manifests cannot be generated. The text says what is wrong and how to fix it."""


class Shape(Enum):
    """What runs the manager."""

    DEPLOYMENT = "ha"
    DAEMON_SET = "daemonset"
    EXTERNAL = "external"
    """A process outside of the cluster, such as a systemd unit."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The address at which pods reach the API server, instead of the cluster's service IP."""

    host: str
    """Name or address; `NODE`: the address of the pod's own node."""
    port: str = DEFAULT_PORT

    @classmethod
    def parsed(cls, text: str) -> "ApiServer":
        """Returns what --api-server means. Raises InvalidChoice."""
        found = _HOST.fullmatch(text)
        if found is None or not _is_host(found["host"]) or not _is_port(found["port"]):
            raise InvalidChoice(
                f'--api-server: "{text}" is not an address: use HOST, HOST:PORT, https://HOST:PORT '
                f"or {NODE}"
            )
        https = "443" if text.startswith("https://") else DEFAULT_PORT
        return cls(found["host"].strip("[]"), found["port"] or https)


class Monitor(Enum):
    """How the Prometheus operator finds the manager's pods."""

    SERVICE = "service"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str

    @classmethod
    def parsed(cls, flag: str, text: str) -> "Account":
        """Returns NAMESPACE/NAME as an account. Raises InvalidChoice."""
        found = re.fullmatch(r"([a-z0-9-]+)/([a-z0-9.-]+)", text)
        if found is None:
            raise InvalidChoice(
                f'--{flag}: "{text}" is not a service account: use NAMESPACE/NAME, such as '
                f"{DEFAULT_PROMETHEUS}"
            )
        return cls(found[1], found[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Objects for the Prometheus operator and Grafana."""

    monitor: Monitor
    account: Account
    """The service account of Prometheus."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels by which the operator selects its objects."""
    runbooks: str = RUNBOOKS


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiChoice:
    """The CSI driver, and what runs beside it."""

    sidecars: bool = True
    """Whether the controller part and its sidecars are installed."""
    snapshots: bool = False
    """Whether csi-snapshotter is one of them. Needs the CRDs of snapshots."""
    registry: str = SIDECARS
    """Where the images of sidecars are."""
    node_image: str = ""
    """Image of the node part; empty: that of the manager."""
    kubelet: str = KUBELET
    """Folder of kubelets."""


def selected_by(name: str) -> dict[str, str]:
    """Returns the labels that select the pods of a workload."""
    return {"app": name}


def labels_of(name: str) -> dict[str, str]:
    """Returns the labels of all objects that belong to a workload."""
    common = {"app.kubernetes.io/name": name, PART_OF: "pileus"}
    return selected_by(name) | common


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Everything that shapes the objects."""

    config: Config
    """The manager's settings. Rights are derived from them."""
    arguments: tuple[str, ...] = ()
    """The manager's flags, as the process gets them."""
    shape: Shape = Shape.DEPLOYMENT
    namespace: str = KUBE_SYSTEM
    image: str = DEFAULT_IMAGE
    replicas: int = 2
    api_server: ApiServer | None = None
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files of the Secret that is generated, by name. Pods have them in /etc/cloud."""
    secret: str = ""
    """An existing Secret for /etc/cloud, instead of `files`."""
    secret_key: str = CONFIG_KEY
    """The key of the provider's file in that Secret."""
    variables: str = ""
    """A ConfigMap with environment variables for the container; empty: none."""
    name: str = INSTALLED
    controllers: Controllers = CONTROLLERS
    """The controllers that exist; the settings enable some of them."""
    migration_lease: str = DEFAULT.leader_name
    """The second Lease, used with --enable-leader-migration."""
    monitoring: Monitoring | None = None
    csi: CsiChoice | None = None
    """The CSI driver; None: it is not installed."""
    webhook_url: str = ""
    """https://HOST:PORT at which API servers reach the webhooks; empty: a Service."""
    webhook_ca: bytes = b""
    """CA of the webhooks' certificate (PEM); empty: the leader writes its own."""
    warnings: tuple[str, ...] = ()
    """What works, but probably not as it was meant. It shapes no object."""

    def labels(self) -> dict[str, str]:
        """Returns the labels that select the pods."""
        return selected_by(self.name)

    def metadata(self, name: str = "") -> dict[str, Any]:
        """Returns the metadata of an object of the manager; the default name is the manager's."""
        return {
            "name": name or self.name,
            "namespace": self.namespace,
            "labels": labels_of(self.name),
        }
