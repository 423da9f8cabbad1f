"""One manager with two clouds, local and inventory, on a real control plane."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.examples import install_examples
from tests.real.local_cloud import LocalCloud
from tests.real.manager import (
    Lab,
    Manager,
    events,
    eventually,
    is_initialized,
    node,
    register,
    running,
)
from tests.real.test_services import add_services, address, services

USUAL = 20.0
"""Seconds for a new node while another cloud is in trouble: less than the deadline of its calls."""
QUICK = ("--controller-start-interval=0s",)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_examples(tmp_path_factory.mktemp("site"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[LocalCloud]:
    """The local cloud with one instance; its state outlives its server."""
    cloud = LocalCloud(tmp_path)
    cloud.keep_state()
    try:
        cloud.start()
        cloud.pileus("instances", "create", "node-9")
        yield cloud
    finally:
        cloud.end()


@pytest.fixture
def flags(home: LocalCloud, tmp_path: Path) -> tuple[str, ...]:
    machines = [
        {"name": f"node-{number}", "id": f"m-{number}", "addresses": [f"192.0.2.{number}"]}
        for number in (1, 2, 3)
    ]
    inventory = tmp_path / "machines.yaml"
    inventory.write_text(json.dumps({"machines": machines}))
    clouds = f"--cloud-config={home.config},{inventory}"
    return "--cloud-provider=local,inventory", clouds, *QUICK


def failed_calls(manager: Manager, cloud: str) -> float:
    return manager.metric("pileus_cloud_calls_total", cloud=cloud, result="Unavailable")


def provider_id(cluster: ControlPlane, name: str) -> str:
    return node(cluster, name)["spec"].get("providerID", "")


def wait_initialized(cluster: ControlPlane, *names: str, limit: float = 60.0) -> None:
    for name in names:
        eventually(f"{name} is initialized", lambda name=name: is_initialized(cluster, name), limit)


def test_nodes_and_services_are_those_of_their_clouds(
    clean: ControlPlane, lab: Lab, installed: Path, home: LocalCloud, flags: tuple[str, ...]
) -> None:
    register(clean, "node-1", "node-9")
    add_services(clean, "default")
    add_services(clean, "named", loadBalancerClass="pileus.dev/local")
    add_services(clean, "unknown", loadBalancerClass="pileus.dev/nowhere")
    add_services(clean, "foreign", loadBalancerClass="example.com/other")
    with running(clean, lab, *flags, providers=installed):
        wait_initialized(clean, "node-1", "node-9")
        assert provider_id(clean, "node-1") == "inventory://m-1"
        assert provider_id(clean, "node-9").startswith("local://")

        for name in ("default", "named"):
            eventually(f"{name} has an address", lambda name=name: address(clean, name))
            eventually("members", lambda name=name: home.members(f"default-{name}") == ["node-9"])
        eventually("reported", lambda: reasons(clean, "unknown") == {"UnknownLoadBalancerClass"})
        assert reasons(clean, "foreign") == set()
        for name in ("unknown", "foreign"):
            assert not services(clean)[name]["metadata"].get("finalizers")
        assert home.balancers().keys() == {"default-default", "default-named"}


def reasons(cluster: ControlPlane, name: str) -> set[str]:
    return {one["reason"] for one in events(cluster) if one["involvedObject"]["name"] == name}


def check_isolation(cluster: ControlPlane) -> None:
    """The local cloud is in trouble: new nodes of the other one are initialized all the same."""
    home_node, other = "node-8", "node-2"
    register(cluster, home_node, other)
    wait_initialized(cluster, other, limit=USUAL)
    assert provider_id(cluster, other) == "inventory://m-2"
    assert not is_initialized(cluster, home_node)


def check_recovery(cluster: ControlPlane, home: LocalCloud) -> None:
    wait_initialized(cluster, "node-8", limit=120)
    assert provider_id(cluster, "node-8").startswith("local://")
    eventually("both are members", lambda: home.members("default-web") == ["node-8", "node-9"])


def start_both(cluster: ControlPlane, home: LocalCloud) -> None:
    """One node of each cloud, a Service of the local one, and an instance without a node."""
    home.pileus("instances", "create", "node-8")
    register(cluster, "node-1", "node-9")
    wait_initialized(cluster, "node-1", "node-9")
    add_services(cluster, "web")
    eventually("an address", lambda: address(cluster, "web"))


def test_a_cloud_that_is_down_delays_no_node_of_another_and_recovers(
    clean: ControlPlane, lab: Lab, installed: Path, home: LocalCloud, flags: tuple[str, ...]
) -> None:
    with running(clean, lab, *flags, providers=installed) as manager:
        start_both(clean, home)
        home.end()
        check_isolation(clean)
        assert failed_calls(manager, "local") > 0
        assert failed_calls(manager, "inventory") == 0
        assert manager.get("/livez") == (200, "ok"), "a restart would not help"
        register(clean, "node-3")
        wait_initialized(clean, "node-3", limit=USUAL)

        home.start()
        check_recovery(clean, home)


def test_a_cloud_that_hangs_delays_no_node_of_another_and_recovers(
    clean: ControlPlane, lab: Lab, installed: Path, home: LocalCloud, flags: tuple[str, ...]
) -> None:
    with running(clean, lab, *flags, providers=installed) as manager:
        start_both(clean, home)
        home.freeze()
        check_isolation(clean)
        home.thaw()
        check_recovery(clean, home)
        assert manager.is_alive()


def test_a_cloud_that_is_down_at_the_start_is_reported_and_connected_to_later(
    clean: ControlPlane, lab: Lab, installed: Path, home: LocalCloud, flags: tuple[str, ...]
) -> None:
    home.end()
    register(clean, "node-1", "node-9")
    with running(clean, lab, *flags, providers=installed) as manager:
        wait_initialized(clean, "node-1")
        status, said = manager.get("/readyz/cloud-connection@local")
        assert status == 500
        assert "cloud local is not connected: no local cloud answers" in said
        assert manager.get("/readyz/cloud-connection@inventory")[0] == 200
        assert not is_initialized(clean, "node-9")

        home.start()
        wait_initialized(clean, "node-9", limit=120)
        assert manager.get("/readyz/cloud-connection@local")[0] == 200
