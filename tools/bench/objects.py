"""The machines, nodes and Services of the benchmark, as clouds, kubelets and users create them."""

from typing import Any

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
CREATED = "2026-01-01T00:00:00Z"
NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
IMAGES = 20
"""Images in the status of each node: with them it has the size of a real one, about 6 KB."""


def name_of(number: int) -> str:
    return f"node-{number}"


def machine(name: str, *, stopped: bool = False) -> dict[str, Any]:
    """Returns the machine of a node whose name ends with its number."""
    number = int(name.rpartition("-")[2])
    return {
        "name": name,
        "id": f"i-{number:08x}",
        "address": f"10.{128 + number // 65536}.{number // 256 % 256}.{number % 256}",
        "zone": f"zone-{'abc'[number % 3]}",
        "region": "region-1",
        "type": "standard-4",
        "stopped": stopped,
    }


def node(number: int, *, initialized: bool) -> dict[str, Any]:
    """Returns a new node, or one that a manager has initialized already. Both are ready."""
    name = name_of(number)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    spec: dict[str, Any] = {"podCIDR": _pod_range(number), "podCIDRs": [_pod_range(number)]}
    status = _status(name)
    if initialized:
        found = machine(name)
        status["addresses"] = [
            {"type": "InternalIP", "address": found["address"]},
            {"type": "Hostname", "address": name},
        ]
        spec["providerID"] = f"bench://{found['id']}"
        for key, value in (("zone", found["zone"]), ("region", found["region"])):
            labels[f"topology.kubernetes.io/{key}"] = value
            labels[f"failure-domain.beta.kubernetes.io/{key}"] = value
        labels["node.kubernetes.io/instance-type"] = found["type"]
        labels["beta.kubernetes.io/instance-type"] = found["type"]
    else:
        spec["taints"] = [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def _pod_range(number: int) -> str:
    return f"100.{64 + number // 1024 % 64}.{number // 4 % 256}.{number % 4 * 64}/26"


def _status(name: str) -> dict[str, Any]:
    """Returns the status without addresses: those are for the manager to set."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": f"boot-{name}",
            "containerRuntimeVersion": "containerd://2.1.0",
            "kernelVersion": "6.12.0",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.37.1",
            "machineID": f"machine-{name}",
            "operatingSystem": "linux",
            "osImage": "Debian GNU/Linux 13 (trixie)",
            "systemUUID": f"uuid-{name}",
        },
        "images": [
            {
                "names": [f"registry.example/team/application-{each}@sha256:{each:064x}"],
                "sizeBytes": 50_000_000 + each,
            }
            for each in range(IMAGES)
        ],
    }


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": reason,
        "lastHeartbeatTime": CREATED,
        "lastTransitionTime": CREATED,
    }


def service(number: int) -> dict[str, Any]:
    name = f"shop-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }
