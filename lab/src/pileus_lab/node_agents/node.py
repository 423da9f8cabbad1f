"""What an agent writes about its machine, as a kubelet would. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pileus import version
from pileus.kube.model.core_v1 import Node

NOT_READY = "node.kubernetes.io/not-ready"
"""The API server adds it to every new node; kube-controller-manager removes it from ready ones."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
SILENT = "Kubelet stopped posting node status."

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Registration:
    """How nodes register."""

    reports_provider_id: bool = False
    """Whether the kubelet was started with --provider-id; most are not."""
    labels: Mapping[str, str] | None = None
    architecture: str = "amd64"


@dataclass(frozen=True, slots=True)
class Host:
    """The facts about a machine that its agent uses."""

    name: str
    uuid: str
    """As the firmware reports it."""
    provider_id: str
    cpus: int = 2
    memory_gib: int = 4


def new_node(host: Host, how: Registration) -> Json:
    """The Node to create: tainted until the cloud's controller has initialized it."""
    labels = {
        "kubernetes.io/hostname": host.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": how.architecture,
        **(how.labels or {}),
    }
    spec: Json = {
        "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}],
    }
    if how.reports_provider_id:
        spec["providerID"] = host.provider_id
    return {"metadata": {"name": host.name, "labels": labels}, "spec": spec}


def alive_status(host: Host, how: Registration, now: datetime, since: datetime) -> Json:
    """Returns a patch of the status of a node that has been ready since then."""
    amounts = {"cpu": str(host.cpus), "memory": f"{host.memory_gib}Gi", "pods": "110"}
    pressures = [
        _condition(kind, "False", reason, message, now, since)
        for kind, (reason, message) in PRESSURES.items()
    ]
    ready = _condition(
        "Ready", "True", "KubeletReady", "kubelet is posting ready status", now, since
    )
    return {
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [*pressures, ready],
            "nodeInfo": _info(host, how),
        }
    }


def silent_status(now: datetime) -> Json:
    """Returns a patch of the status of a node that stopped reporting."""
    conditions = [
        {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": SILENT,
            "lastTransitionTime": now.replace(microsecond=0),
        }
        for kind in (*PRESSURES, "Ready")
    ]
    return {"status": {"conditions": conditions}}


def without_not_ready(node: Node) -> Json | None:
    """Returns a patch that removes the not-ready taint; None if the node has none."""
    taints = (node.spec and node.spec.taints) or ()
    kept = [taint for taint in taints if taint.key != NOT_READY]
    if len(kept) == len(taints):
        return None
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": kept},
    }


def new_lease(node: str, uid: str, now: datetime) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        },
    }


def renewal(now: datetime) -> Json:
    return {"spec": {"renewTime": now}}


def _condition(
    kind: str, status: str, reason: str, message: str, now: datetime, since: datetime
) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now.replace(microsecond=0),
        "lastTransitionTime": since.replace(microsecond=0),
    }


def _info(host: Host, how: Registration) -> Json:
    return {
        "architecture": how.architecture,
        "bootID": host.uuid,
        "containerRuntimeVersion": "none://0",
        "kernelVersion": "local",
        "kubeProxyVersion": "",
        "kubeletVersion": version.KUBERNETES,
        "machineID": host.uuid.replace("-", ""),
        "operatingSystem": "linux",
        "osImage": "Pileus local cloud",
        "systemUUID": host.uuid,
    }
