"""The bare limit: a program that makes only the writes that a manager cannot do without.

For each new node two patches and an event, for each Service two patches and two events; the events
come last, as no one waits for them. It asks no cloud, keeps no cache and checks nothing. It is
started like a manager, so that its time begins with its start as well.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from tools.bench.cluster_api import ClusterApi, cluster_api, side_by_side
from tools.bench.objects import NODES, SERVICES, UNINITIALIZED, machine

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
EVENTS = "/api/v1/namespaces/default/events"


async def work(server: str, folder: Path) -> None:
    async with cluster_api(server, folder) as api:
        nodes = [each for each in await api.items(NODES) if _is_new(each)]
        services = [each for each in await api.items(SERVICES) if _wants_balancer(each)]
        await side_by_side(nodes, lambda node: initialize(api, node))
        await side_by_side(services, lambda service: publish(api, service))
        events = [
            *(_event(each, "Synced") for each in nodes),
            *(_event(each, "EnsuringLoadBalancer") for each in services),
            *(_event(each, "EnsuredLoadBalancer") for each in services),
        ]
        await side_by_side(events, lambda event: api.send("POST", EVENTS, event))
        await asyncio.Event().wait()


def _is_new(node: dict[str, Any]) -> bool:
    return any(taint["key"] == UNINITIALIZED for taint in node["spec"].get("taints", ()))


def _wants_balancer(service: dict[str, Any]) -> bool:
    return service["spec"]["type"] == "LoadBalancer" and not service["status"]["loadBalancer"]


async def initialize(api: ClusterApi, node: dict[str, Any]) -> None:
    name = node["metadata"]["name"]
    found = machine(name)
    addresses = [
        {"type": "InternalIP", "address": found["address"]},
        {"type": "Hostname", "address": name},
    ]
    await api.patch(f"{NODES}/{name}/status", {"status": {"addresses": addresses}})
    labels = {
        "topology.kubernetes.io/zone": found["zone"],
        "failure-domain.beta.kubernetes.io/zone": found["zone"],
        "topology.kubernetes.io/region": found["region"],
        "failure-domain.beta.kubernetes.io/region": found["region"],
        "node.kubernetes.io/instance-type": found["type"],
        "beta.kubernetes.io/instance-type": found["type"],
    }
    spec = {"providerID": f"bench://{found['id']}", "taints": None}
    await api.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}, "spec": spec})


async def publish(api: ClusterApi, service: dict[str, Any]) -> None:
    path = f"{SERVICES}/{service['metadata']['name']}"
    await api.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    ingress = [{"ip": "198.18.0.1", "ipMode": "VIP"}]
    await api.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": ingress}}})


def _event(about: dict[str, Any], reason: str) -> dict[str, Any]:
    name, uid = about["metadata"]["name"], about["metadata"]["uid"]
    return {
        "metadata": {"generateName": f"{name}.", "namespace": "default"},
        "involvedObject": {"name": name, "uid": uid, "namespace": "default"},
        "reason": reason,
        "message": f"{reason} {name}",
        "type": "Normal",
        "source": {"component": "bare-limit"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given, _ = parser.parse_known_args()
    server = json.loads(given.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    asyncio.run(work(server, given.kubeconfig.parent))


if __name__ == "__main__":
    main()
