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
from tools.openstack_bed.bed import Bed

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import MERGE, Api
from tests.openstack.balancers import balancer_of
from tests.openstack.cloud import NETWORK_AND_BALANCER, Objects, differences, eventually, project
from tests.openstack.managers import BINARIES, Cluster, Manager, go_ccm, pileus, plan
from tests.real.sweeping import sweep

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("go_binary")]
PREFIX = "loadbalancer.openstack.org/"
INTERNAL = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
SERVICES = ("plain", "three", "udp", "internal", "proxy", "sticky")
EVENTS = "/api/v1/namespaces/default/events"
SERVICE_PATH = "/api/v1/namespaces/default/services"
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


def delete_services(cluster: Cluster, *names: str) -> None:
    """Deletes all Services, and checks that Pileus leaves nothing of the Go manager behind."""
    with pileus(cluster) as manager:
        for name in names:
            cluster.delete_service(name)
        manager.has_deleted(cluster, *names)
    left = objects(cluster)
    kinds = ("loadbalancers", "listeners", "pools", "floatingips", "members", "healthmonitors")
    assert {kind: left[kind] for kind in kinds} == {kind: {} for kind in kinds}
    assert {each["name"] for each in left["security_groups"].values()} == {"default"}


def go_has_synced(cluster: Cluster, go: Manager, *names: str) -> None:
    """Waits until the Go manager reports each Service, after events were deleted."""
    for name in names:
        go.eventually(
            f"the Go manager has synced {name}",
            lambda name=name: "EnsuredLoadBalancer" in dict(cluster.events(name)),
        )


def pileus_has_synced(cluster: Cluster, manager: Manager, *names: str) -> None:
    """Waits until the condition of each Service reports that it matches the desired state."""

    def is_ready(name: str) -> bool:
        conditions = cluster.service(name)["status"].get("conditions", [])
        return ("pileus.dev/Ready", "True") in [
            (each["type"], each["status"]) for each in conditions
        ]

    for name in names:
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
        go_has_synced(cluster, go, *SERVICES)
    created, published = objects(cluster), addresses(cluster)

    summaries = planned(cluster)
    assert summaries == [each for each in summaries if "tags" in each]

    started = time.time()
    with pileus(cluster) as manager:
        pileus_has_synced(cluster, manager, *SERVICES)
    taken_over = objects(cluster)
    assert [each for each in differences(created, taken_over) if not is_mark(each)] == []
    assert addresses(cluster) == published
    requests = writes(cluster, "pileus/", started)
    assert [each for each in requests if each.startswith(("POST", "DELETE"))] == []
    show(f"take-over: {reads(cluster, 'pileus/', started)} reads, {len(requests)} writes")

    assert cluster.api.delete(EVENTS).status == 200
    started = time.time()
    with go_ccm(cluster, AT_ONCE) as go:
        go_has_synced(cluster, go, *SERVICES)
    assert list(differences(taken_over, objects(cluster))) == []
    assert addresses(cluster) == published
    assert writes(cluster, "openstack-cloud-controller-manager", started) == []

    delete_services(cluster, *SERVICES)


CHANGED = ("selected", "affine", "moved", "first", "second")


def create_changed(cluster: Cluster) -> None:
    """One with a node selector, two that will change, and two that share a load balancer."""
    label(cluster, "node-1", "web")
    selector = {f"{PREFIX}node-selector": "pool=web"}
    cluster.create_service("selected", 80, annotations=selector)
    cluster.create_service("affine", 80)
    cluster.create_service("moved", 80)
    cluster.create_service("first", 80)


def share(cluster: Cluster) -> None:
    shared = cluster.project.cloud.find("loadbalancers", "kube_service_kubernetes_default_first")
    cluster.create_service("second", 8080, annotations={f"{PREFIX}load-balancer-id": shared["id"]})


def change(cluster: Cluster) -> None:
    """No manager runs: all members of one Service are exchanged, and two others are changed."""
    label(cluster, "node-1", None)
    label(cluster, "node-2", "web")
    cluster.change_service("affine", {"spec": {"sessionAffinity": "ClientIP"}})
    ports = [{"name": "p8080", "port": 8080, "protocol": "TCP"}]
    cluster.change_service("moved", {"spec": {"ports": ports}})


def label(cluster: Cluster, node: str, pool: str | None) -> None:
    change = {"metadata": {"labels": {"pool": pool}}}
    assert cluster.api.patch(f"/api/v1/nodes/{node}", change, MERGE).status == 200


def forget_conditions(cluster: Cluster, *names: str) -> None:
    """Removes the conditions, so that the next ones are new."""
    for name in names:
        path = f"{SERVICE_PATH}/{name}/status"
        assert cluster.api.patch(path, {"status": {"conditions": None}}, MERGE).status == 200


def of_changed(cluster: Cluster) -> dict[str, Any]:
    """Returns what the changed Services have: names of members, persistence, ports, address."""
    found = {name: balancer_of(cluster, name) for name in CHANGED[:4]}
    return {
        "members": [one["name"] for one in found["selected"].members[0]],
        "affinity": found["affine"].pools[0]["session_persistence"]["type"],
        "moved": [one["protocol_port"] for one in found["moved"].listeners],
        "shared": [one["protocol_port"] for one in found["first"].listeners],
        "addresses": [cluster.ingress("first") == cluster.ingress("second")],
    }


def test_what_changed_while_no_manager_ran_is_planned_and_done_and_stays_with_the_go_manager(
    cluster: Cluster,
) -> None:
    with go_ccm(cluster, AT_ONCE) as go:
        create_changed(cluster)
        go.has_addresses(cluster, *CHANGED[:4])
        share(cluster)
        go.has_addresses(cluster, "second")
        go_has_synced(cluster, go, *CHANGED)
    created, published = objects(cluster), {name: cluster.ingress(name) for name in CHANGED}
    change(cluster)

    summaries = planned(cluster)
    others = [each for each in summaries if "tags" not in each and "security group" not in each]
    assert sorted(others) == [
        "members of port 80/TCP: 1 added, 1 removed",
        "members of port 8080/TCP: 3 added",
        "pool of port 80/TCP",
        "pool of port 80/TCP: session_persistence",
        "pool of port 8080/TCP",
        "port 80/TCP",
        "port 8080/TCP",
    ]

    with pileus(cluster) as manager:
        pileus_has_synced(cluster, manager, *CHANGED)
    wanted = {
        "members": ["node-2"],
        "affinity": "SOURCE_IP",
        "moved": [8080],
        "shared": [80, 8080],
        "addresses": [True],
    }
    assert of_changed(cluster) == wanted
    assert {name: cluster.ingress(name) for name in CHANGED} == published
    taken_over = objects(cluster)
    assert taken_over["loadbalancers"].keys() == created["loadbalancers"].keys()

    assert cluster.api.delete(EVENTS).status == 200
    started = time.time()
    with go_ccm(cluster, AT_ONCE) as go:
        go_has_synced(cluster, go, *CHANGED)
    assert list(differences(taken_over, objects(cluster))) == []
    forget_conditions(cluster, *CHANGED)
    with pileus(cluster) as manager:
        pileus_has_synced(cluster, manager, *CHANGED)
    agents = ("openstack-cloud-controller-manager", "pileus/")
    sent = [each for agent in agents for each in writes(cluster, agent, started)]
    assert [each for each in sent if "pileus.dev/spec" not in each] == []
    assert of_changed(cluster) == wanted

    delete_services(cluster, *CHANGED)


@pytest.fixture
def both(bed: Bed, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with IPv4 and IPv6."""
    ranges = "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112"
    with (
        ControlPlane(Path(os.environ[BINARIES]), tmp_path, arguments=[ranges]) as control_plane,
        project(bed, f"test-{os.getpid()}-both") as made,
    ):
        made.add_network(with_ipv6=True)
        made.add_servers("node-1", "node-2")
        cluster = Cluster(control_plane, made, tmp_path, made.cloud.config(tmp_path / "cloud.conf"))
        cluster.add_nodes("node-1", "node-2")
        yield cluster
        sweep(cluster.api)


def test_a_load_balancer_with_two_families_is_repaired_when_the_go_manager_hands_it_back(
    both: Cluster,
) -> None:
    """The Go manager knows one IP family: it narrows the source ranges of listeners to that."""

    def ranges() -> list[str]:
        return balancer_of(both, "dual").listeners[0]["allowed_cidrs"] or []

    with pileus(both) as manager:
        both.create_service("dual", 80, ipFamilyPolicy="RequireDualStack")
        manager.has_addresses(both, "dual")
        pileus_has_synced(both, manager, "dual")
    published = both.ingress("dual")
    assert len(published) == 2
    assert sorted(ranges()) == ["0.0.0.0/0", "::/0"]

    assert both.api.delete(EVENTS).status == 200
    with go_ccm(both, AT_ONCE) as go:
        go_has_synced(both, go, "dual")
        show(
            f"the Go manager leaves source ranges {ranges()}, and publishes {both.ingress('dual')}"
        )
    with pileus(both) as manager:
        manager.eventually("both families are admitted", lambda: len(ranges()) == 2)
        manager.eventually("both are published", lambda: both.ingress("dual") == published)
        both.delete_service("dual")
        manager.has_deleted(both, "dual")


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
