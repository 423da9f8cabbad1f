"""The routes of a ported provider under the running route controller: what Go would pass in."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.classic.interface import Route
from pileus.cloud import model
from pileus.cloud.errors import Conflict
from pileus.cloud.interface import Cloud
from pileus.kube.model.core_v1 import NODES, NodeAddress
from pileus.kube.patch import MergePatch
from tests.unit.classic.fakes import Access, Provider, Recorder, View, adapted
from tests.unit.controllers.route.site import Site

FLOATING = NodeAddress(type="FloatingIP", address="203.0.113.9")
INTERNAL = NodeAddress(type="InternalIP", address="10.0.0.1")


@dataclass
class Table:
    """Go's shape of a route table; deletes exactly what it listed and nothing else."""

    routes: list[Route] = field(default_factory=list)
    created: list[tuple[str, Route]] = field(default_factory=list)

    async def list_routes(self, cluster_name: str) -> list[Route]:
        return list(self.routes)

    async def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self.created.append((name_hint, route))
        self.routes.append(route)

    async def delete_route(self, cluster_name: str, route: Route) -> None:
        self.routes.remove(route)


class Routed(Provider):
    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def routes(self) -> Any:
        return self.table


@asynccontextmanager
async def routed(table: Table, *addresses: NodeAddress):
    """The route controller over that table, in a cluster with one node."""
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    status = {"status": {"addresses": [{"type": a.type, "address": a.address} for a in addresses]}}
    await at.kubectl.patch(NODES, "n1", MergePatch(status), subresource="status")
    cloud = adapted(Routed(table))
    assert cloud.leading
    async with cloud.leading(Access(View())):
        at.routes = cast("Any", cloud.routes)
        async with at.running():
            await asyncio.sleep(30)
            yield at


async def test_a_created_route_is_gos_with_addresses_of_any_type_and_the_nodes_uid_as_hint():
    table = Table()

    async with routed(table, INTERNAL, FLOATING) as at:
        uid = (await at.node("n1")).metadata.uid

    wanted = Route(
        target_node="n1",
        target_node_addresses=(INTERNAL, FLOATING),
        destination_cidr="10.1.0.0/24",
    )
    assert table.created == [(uid, wanted)]


async def test_a_foreign_route_with_an_address_of_an_unknown_type_stops_no_other_route():
    foreign = Route(
        name="vpn",
        target_node="gateway",
        destination_cidr="192.168.0.0/16",
        enable_node_addresses=True,
        target_node_addresses=(FLOATING,),
    )
    table = Table([foreign])

    async with routed(table, INTERNAL) as at:
        assert await at.network("n1") == ("False", "RouteCreated")

    assert [route.destination_cidr for _, route in table.created] == ["10.1.0.0/24"]
    assert foreign in table.routes


async def test_a_route_that_carries_an_unknown_address_of_its_node_is_up_to_date():
    carried = Route(
        name="r1",
        target_node="n1",
        destination_cidr="10.1.0.0/24",
        enable_node_addresses=True,
        target_node_addresses=(FLOATING, INTERNAL),
    )
    table = Table([carried])

    async with routed(table, INTERNAL, FLOATING):
        pass

    assert table.routes == [carried]


async def test_a_blackhole_is_deleted_as_it_was_listed():
    blackhole = Route(
        name="r1", target_node="n1", destination_cidr="10.1.0.0/24", blackhole=True,
        target_node_addresses=(FLOATING,),
    )  # fmt: skip
    table = Table([blackhole])

    async with routed(table, INTERNAL) as at:
        assert await at.network("n1") == ("False", "RouteCreated")

    assert blackhole not in table.routes
    assert len(table.created) == 1


ADDRESSES = st.lists(
    st.builds(
        NodeAddress,
        type=st.sampled_from(["InternalIP", "FloatingIP", ""]),
        address=st.sampled_from(["10.0.0.1", "lb.example", ""]),
    )
)
ROUTES = st.builds(
    Route,
    name=st.text(max_size=3),
    target_node=st.sampled_from(["", "n1"]),
    enable_node_addresses=st.booleans(),
    target_node_addresses=ADDRESSES,
    destination_cidr=st.sampled_from(["10.1.0.0/24", "10.2.0.0/24", "odd"]),
    blackhole=st.booleans(),
)


@given(st.lists(ROUTES, max_size=5))
def test_law_what_is_deleted_is_the_very_route_that_was_listed(listed: list[Route]):
    async def deleted() -> list[Route]:
        provider = Provider(Recorder({"list_routes": listed}))
        cloud: Cloud = adapted(provider)
        assert cloud.routes
        assert await cloud.routes.delete("uid", await cloud.routes.list_routes("uid")) == {}
        return [call[-1] for call in provider.record.calls if call[0] == "delete_route"]

    def key(route: Route) -> str:
        return repr(route)

    assert sorted(asyncio.run(deleted()), key=key) == sorted(listed, key=key)


async def test_a_route_that_was_not_listed_is_deleted_by_what_is_known_of_it():
    provider = Provider()
    cloud = adapted(provider)
    assert cloud.routes

    await cloud.routes.delete(
        "uid", [model.Route(destination="10.1.0.0/24", target=model.NodeName("n1"), name="r7")]
    )

    (call,) = provider.record.calls
    assert call[-1] == Route(name="r7", destination_cidr="10.1.0.0/24", target_node="n1")


class BlockingTable(Table):
    """A blocking SDK: the first creation hangs until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = Event()

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:  # type: ignore[override]
        self.release.wait(60)
        self.routes.append(route)

    def delete_route(self, cluster_name: str, route: Route) -> None:  # type: ignore[override]
        self.routes.remove(route)


@pytest.mark.real_time
async def test_a_route_is_not_deleted_while_its_cancelled_creation_still_runs():
    table = BlockingTable()
    cloud = adapted(Routed(table))
    route = model.Route(destination="10.1.0.0/24", target=model.NodeName("n1"), name="hint")
    other = replace(route, destination="10.2.0.0/24")
    assert cloud.routes
    assert cloud.leading
    async with cloud.leading(Access(View())):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cloud.routes.create("blue", [route]), 0.05)
        errors = await cloud.routes.delete("blue", [route])
        table.release.set()
        await cloud.routes.create("blue", [other])

    assert isinstance(errors[route], Conflict)
    assert "10.2.0.0/24" in {each.destination_cidr for each in table.routes}


async def test_routes_of_one_destination_are_deleted_one_by_one():
    twins = [Route(name=name, target_node="n1", destination_cidr="10.1.0.0/24") for name in "ab"]
    table = Table(list(twins))
    cloud = adapted(Routed(table))
    assert cloud.routes
    assert cloud.leading
    async with cloud.leading(Access(View())):
        listed = await cloud.routes.list_routes("blue")
        errors = await cloud.routes.delete("blue", listed)

    assert errors == {}
    assert table.routes == []
