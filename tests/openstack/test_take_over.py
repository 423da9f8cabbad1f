"""A cluster moves from the Go manager to Pileus and back: its load balancers only get marks."""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.openstack.cloud import NETWORK_AND_BALANCER, Objects, differences, eventually
from tests.openstack.managers import BINARIES, Cluster, Manager, go_ccm, pileus, plan
from tests.real.sweeping import sweep

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("go_binary")]
PREFIX = "loadbalancer.openstack.org/"
INTERNAL = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
SERVICES = ("plain", "three", "udp", "internal", "proxy", "sticky")
EVENTS = "/api/v1/namespaces/default/events"
READS = ("GET", "HEAD")
AT_ONCE = "--concurrent-service-syncs=6"
MARKS = ("tags",)
"""The only fields that may differ after Pileus took a load balancer over."""


@pytest.fixture(scope="module")
def cluster(cluster: Cluster) -> Cluster:
    """The cluster of this module, with a security group for each Service."""
    config = cluster.project.cloud.config(
        cluster.folder / "groups.conf", LoadBalancer="manage-security-groups=true"
    )
    return replace(cluster, config=config)


def create_services(cluster: Cluster) -> None:
    cluster.create_service("plain", 80)
    cluster.create_service(
        "three", 80, 443, 8080, loadBalancerSourceRanges=["10.0.0.0/8", "192.0.2.0/24"]
    )
    cluster.create_service("udp", 53, protocol="UDP")
    cluster.create_service("internal", 80, annotations=INTERNAL)
    cluster.create_service("proxy", 80, annotations={f"{PREFIX}proxy-protocol": "true"})
    monitor = {f"{PREFIX}enable-health-monitor": "true", f"{PREFIX}health-monitor-delay": "7"}
    cluster.create_service("sticky", 80, annotations=monitor, sessionAffinity="ClientIP")


def delete_services(cluster: Cluster) -> None:
    """Deletes all Services, and checks that Pileus leaves nothing of the Go manager behind."""
    with pileus(cluster) as manager:
        for name in SERVICES:
            cluster.delete_service(name)
        manager.has_deleted(cluster, *SERVICES)
    left = objects(cluster)
    kinds = ("loadbalancers", "listeners", "pools", "floatingips", "members", "healthmonitors")
    assert {kind: left[kind] for kind in kinds} == {kind: {} for kind in kinds}
    assert {each["name"] for each in left["security_groups"].values()} == {"default"}


def go_has_synced(cluster: Cluster, go: Manager) -> None:
    """Waits until the Go manager reports each Service, after events were deleted."""
    for name in SERVICES:
        go.eventually(
            f"the Go manager has synced {name}",
            lambda name=name: "EnsuredLoadBalancer" in dict(cluster.events(name)),
        )


def pileus_has_synced(cluster: Cluster, manager: Manager) -> None:
    """Waits until the condition of each Service reports that it matches the desired state."""

    def is_ready(name: str) -> bool:
        conditions = cluster.service(name)["status"].get("conditions", [])
        return ("pileus.dev/Ready", "True") in [
            (each["type"], each["status"]) for each in conditions
        ]

    for name in SERVICES:
        manager.eventually(f"Pileus reports {name} as ready", lambda name=name: is_ready(name))


def objects(cluster: Cluster) -> Objects:
    return cluster.project.cloud.objects(NETWORK_AND_BALANCER)


def addresses(cluster: Cluster) -> dict[str, Any]:
    return {name: cluster.ingress(name) for name in SERVICES}


def writes(cluster: Cluster, agent: str, since: float) -> list[str]:
    return [
        f"{each['method']} {each['service']} {each['path']} {json.dumps(each.get('body'))}"
        for each in cluster.project.bed.requests(cluster.project.cloud.project)
        if each["t"] >= since and each["ua"].startswith(agent) and each["method"] not in READS
    ]


def reads(cluster: Cluster, agent: str, since: float) -> int:
    sent = cluster.project.bed.requests(cluster.project.cloud.project)
    ours = (each for each in sent if each["t"] >= since and each["ua"].startswith(agent))
    return sum(each["method"] in READS for each in ours)


def planned(cluster: Cluster) -> list[str]:
    """Returns the changes in the cloud that a take-over would make, and prints them."""
    started = time.time()
    changes = plan(cluster)["changes"]
    assert writes(cluster, "pileus/", started) == []
    summaries = [each["summary"] for each in changes if each["place"] == "cloud"]
    count = reads(cluster, "pileus/", started)
    show(f"plan of the take-over, {count} reads:", *summaries)
    return summaries


def show(*lines: str) -> None:
    sys.stdout.write("\n  ".join(("", *lines)) + "\n")


def test_a_cluster_moves_to_pileus_and_back_without_a_change_of_its_balancers(
    cluster: Cluster,
) -> None:
    """With `pytest -n 0 -s` it also shows the plan of the take-over, and its requests."""
    with go_ccm(cluster, AT_ONCE) as go:
        create_services(cluster)
        go.has_addresses(cluster, *SERVICES)
        go_has_synced(cluster, go)
    created, published = objects(cluster), addresses(cluster)

    summaries = planned(cluster)
    assert summaries == [each for each in summaries if "tags" in each]

    started = time.time()
    with pileus(cluster) as manager:
        pileus_has_synced(cluster, manager)
    taken_over = objects(cluster)
    assert [each for each in differences(created, taken_over) if not is_mark(each)] == []
    assert addresses(cluster) == published
    requests = writes(cluster, "pileus/", started)
    assert [each for each in requests if each.startswith(("POST", "DELETE"))] == []
    show(f"take-over: {reads(cluster, 'pileus/', started)} reads, {len(requests)} writes")

    assert cluster.api.delete(EVENTS).status == 200
    started = time.time()
    with go_ccm(cluster, AT_ONCE) as go:
        go_has_synced(cluster, go)
    assert list(differences(taken_over, objects(cluster))) == []
    assert addresses(cluster) == published
    assert writes(cluster, "openstack-cloud-controller-manager", started) == []

    delete_services(cluster)


def is_mark(difference: str) -> bool:
    return any(f": {field}: " in difference for field in MARKS)


@pytest.fixture
def second(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Another cluster of the same name in the same project, with a node of its own."""
    folder = tmp_path / "second"
    folder.mkdir()
    with ControlPlane(Path(os.environ[BINARIES]), folder) as control_plane:
        other = replace(cluster, control_plane=control_plane, folder=folder)
        sweep(Api.of_kubeconfig(control_plane.admin))
        cluster.project.add_servers("second-1")
        other.add_nodes("second-1")
        yield other


def test_two_clusters_of_one_name_in_one_project_never_touch_each_other(
    cluster: Cluster, second: Cluster
) -> None:
    """The second one creates nothing until an operator says whose the load balancer is."""
    with go_ccm(cluster, AT_ONCE) as go:
        cluster.create_service("twin", 80)
        go.has_addresses(cluster, "twin")
    first, address = objects(cluster), cluster.ingress("twin")
    server = cluster.project.servers["second-1"]
    ports = cluster.project.cloud.listed("ports", device_id=server)
    node_of_second = [server, *(port["id"] for port in ports)]

    second.create_service("twin", 80)
    with pileus(second) as manager:
        manager.eventually("the name is refused", lambda: _says(second, "twin", "nothing proves"))
        assert list(differences(first, objects(cluster))) == []
        set_tag(cluster, "twin", "pileus.dev/cluster=the-first")
        first = objects(cluster)
        manager.has_addresses(second, "twin")
        assert second.ingress("twin") != address
        changed = [each for each in differences(first, objects(cluster)) if "created" not in each]
        assert [each for each in changed if not any(own in each for own in node_of_second)] == []
        second.delete_service("twin")
        manager.has_deleted(second, "twin")
    assert list(differences(first, objects(cluster))) == []

    with go_ccm(cluster, AT_ONCE) as go:  # other tests have this cluster, too
        cluster.delete_service("twin")
        go.has_deleted(cluster, "twin")


def _says(cluster: Cluster, name: str, text: str) -> bool:
    return any(text in message for _, message in cluster.events(name))


def set_tag(cluster: Cluster, service: str, tag: str) -> None:
    """What `openstack loadbalancer set --tag` does."""
    cloud = cluster.project.cloud
    balancer = cloud.find("loadbalancers", f"kube_service_{cluster.name}_default_{service}")
    body = {"loadbalancer": {"tags": [*balancer["tags"], tag]}}
    cloud.send("PUT", "balancer", f"/v2/lbaas/loadbalancers/{balancer['id']}", body)
    eventually(
        "all load balancers are active",
        lambda: all(one["provisioning_status"] == "ACTIVE" for one in cluster.project.balancers()),
    )
