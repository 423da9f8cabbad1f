"""Pod ranges of nodes on a real control plane: each its own, whatever happens to the manager."""

import json
import signal
from pathlib import Path

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import local_cloud
from tests.real.manager import QUICK_LEASE, Lab, eventually, get, is_told, node, running

MANY = 200
FLAGS = ("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/14,fd00::/48")


def create_nodes(cluster: ControlPlane, *names: str) -> None:
    items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def ranges(cluster: ControlPlane) -> dict[str, tuple[str, ...]]:
    items = get(cluster, "/api/v1/nodes")["items"]
    return {each["metadata"]["name"]: tuple(each["spec"].get("podCIDRs", ())) for each in items}


def test_every_node_gets_ranges_of_its_own_although_the_manager_is_killed_on_the_way(
    clean: ControlPlane, lab: Lab
) -> None:
    create_nodes(clean, *(f"n{number}" for number in range(MANY)))
    flags = ("--controllers=nodeipam", *FLAGS, *QUICK_LEASE)

    with running(clean, lab, *flags) as first:
        eventually("some are served", lambda: any(ranges(clean).values()))
        first.end(signal.SIGKILL)
    create_nodes(clean, *(f"m{number}" for number in range(20)))
    with running(clean, lab, *flags) as second:
        eventually("all are served", lambda: all(ranges(clean).values()), limit=120)
        assert second.metric("rest_client_requests_total", method="PATCH", code="422") == 0

    given = ranges(clean)
    assert {len(mine) for mine in given.values()} == {2}
    assert len({each for mine in given.values() for each in mine}) == 2 * (MANY + 20)


def test_ranges_that_were_given_are_never_changed_and_free_ones_are_given_anew(
    clean: ControlPlane, lab: Lab
) -> None:
    flags = ("--controllers=nodeipam", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/23")
    create_nodes(clean, "n1", "n2")

    with running(clean, lab, *flags):
        eventually("served", lambda: all(ranges(clean).values()))
        before = ranges(clean)
        create_nodes(clean, "n3")
        eventually("told", lambda: is_told(clean, "CIDRNotAvailable"))
        clean.kubectl("delete", "node", "n1")
        eventually("served", lambda: ranges(clean)["n3"] == before["n1"])

    assert ranges(clean)["n2"] == before["n2"]


def test_ranges_and_routes_go_together(clean: ControlPlane, lab: Lab, tmp_path: Path) -> None:
    with local_cloud(tmp_path) as cloud:
        cloud.pileus("instances", "create", "n1", "n2")
        create_nodes(clean, "n1", "n2")
        flags = ("--controllers=nodeipam,route", *FLAGS, *cloud.flags)

        with running(clean, lab, *flags):
            eventually("routed", lambda: len(cloud.show("routes")) == 4)
            eventually("told", lambda: "RouteCreated" in json.dumps(node(clean, "n2")))

        routes = {each["destination"]: each["target"] for each in cloud.show("routes")}
        assert routes == {each: name for name, mine in ranges(clean).items() for each in mine}
