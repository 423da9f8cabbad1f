"""Routes of a Neutron router on the model: laws of the contract, address pairs, requests."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.model import Address, AddressType, NodeName, NodeRef, Route
from pileus.cloud.permission import permitted_by
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.balancers import OpenStackBalancers
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.config import Route as RouteSection
from pileus.providers.openstack.connect import cloud_of
from pileus.providers.openstack.neutron import AddressPair, Neutron, Port
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.provider_id import ProviderIds
from pileus.providers.openstack.routes import OpenStackRoutes, is_covered, routes_of
from pileus.testing.conformance.harness import RoutesHarness
from pileus.testing.conformance.routes import RoutesLaws
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings

IDS = ProviderIds("RegionOne")
OLD = frozenset({"extraroute", "standard-attr-revisions"})
"""Extensions of a Neutron without atomic changes and address pairs."""


class Faulty(ModelApi):
    """A model that refuses routes to some destinations, and requests to some paths."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.refused: set[str] = set()
        self.faults: dict[tuple[str, str], CloudError] = {}
        self.attempts: Counter[str] = Counter()
        """Writes that were sent, by path."""

    async def call(self, call: Call) -> Any:
        self.attempts[call.path] += call.writes
        if (call.method, call.path) in self.faults:
            raise self.faults[call.method, call.path]
        if call.writes and any(one in str(call.body) for one in self.refused):
            self.requests["refused", call.method, call.path] += 1
            raise Rejected("refused")
        return await super().call(call)


@dataclass
class World(RoutesHarness):
    """Nodes in one network, and its router."""

    nodes: int = 2
    settings: Settings = field(default_factory=Settings)
    api: Faulty = field(init=False)
    router: str = field(init=False)
    servers: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.api = Faulty(self.settings)
        network, *subnets = self.api.add_network("nodes", "10.0.0.0/16", "fd00::/64")
        self.router = self.api.add_router(subnets)
        for n in range(1, self.nodes + 1):
            self.servers[f"n{n}"] = self.api.add_server(f"n{n}", network)

    @property
    def routes(self) -> OpenStackRoutes:
        return OpenStackRoutes(Neutron(Client(self.api)), self.router, IDS)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[OpenStackRoutes]:
        yield self.routes

    def node(self, name: str) -> NodeRef:
        fixed = self.port(name)["fixed_ips"]
        addresses = tuple(Address(AddressType.INTERNAL_IP, one["ip_address"]) for one in fixed)
        provider_id = IDS.text(self.servers[name])
        return NodeRef(name=NodeName(name), provider_id=provider_id, addresses=addresses)

    def route(self, name: str, destination: str) -> Route:
        node = self.node(name)
        return Route(
            destination=destination,
            target=node.name,
            provider_id=node.provider_id,
            addresses=node.addresses,
        )

    def port(self, name: str) -> Any:
        return self.api.port_of(self.servers[name])

    def pairs(self, name: str) -> list[str]:
        return [one["ip_address"] for one in self.port(name)["allowed_address_pairs"]]

    def entries(self) -> list[tuple[str, str]]:
        found = self.api.record("routers", self.router)["routes"]
        return [(one["destination"], one["nexthop"]) for one in found]

    def add_foreign(self, destination: str) -> None:
        body = {"router": {"routes": [{"destination": destination, "nexthop": "10.0.255.254"}]}}
        path = f"/v2.0/routers/{self.router}/add_extraroutes"
        self.api.must(Service.NETWORK, "PUT", path, body)

    def reject(self, destination: str) -> None:
        self.api.refused.add(destination)

    def remove_from_one_table(self, destination: str) -> bool:
        for port in self.api.records("ports"):
            pairs = port["allowed_address_pairs"]
            left = [one for one in pairs if one["ip_address"] != destination]
            if left != pairs:
                self.api.change("ports", port["id"], {"allowed_address_pairs": left})
                return True
        return False


class TestLaws(RoutesLaws):
    def make(self) -> RoutesHarness:
        return World()


class TestLawsOfAnOldNeutron(RoutesLaws):
    def make(self) -> RoutesHarness:
        return World(settings=Settings(extensions=OLD))


async def listed(world: World) -> Sequence[Route]:
    return await world.routes.list_routes("blue")


async def test_the_next_hop_is_the_internal_address_of_the_family() -> None:
    world = World()
    four, six = world.route("n1", "10.244.1.0/24"), world.route("n1", "fd00:244::/64")
    assert await world.routes.create("blue", [four, six]) == {}
    addresses = [one.address for one in world.node("n1").addresses]
    assert world.entries() == [("10.244.1.0/24", addresses[0]), ("fd00:244::/64", addresses[1])]
    assert world.pairs("n1") == ["10.244.1.0/24", "fd00:244::/64"]
    assert world.api.requests["network", "PUT", "/v2.0/ports/{id}"] == 1, "one write for each port"


async def test_a_node_without_address_of_the_family_fails_alone() -> None:
    world = World()
    six = replace(world.route("n1", "fd00:244::/64"), addresses=world.node("n1").addresses[:1])
    errors = await world.routes.create("blue", [six, world.route("n2", "10.244.2.0/24")])
    assert list(errors) == [six]
    assert "n1 has no InternalIP of family IPv6" in str(errors[six])
    assert [one for one, _ in world.entries()] == ["10.244.2.0/24"]


async def test_a_listed_route_names_the_server_of_its_next_hop() -> None:
    world = World()
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    (found,) = await listed(world)
    assert found.provider_id == IDS.text(world.servers["n1"])
    assert (found.blackhole, found.cluster, found.missing_in) == (False, None, frozenset())


async def test_a_route_of_a_deleted_server_is_a_blackhole() -> None:
    world = World()
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    world.api.delete_server(world.servers["n1"])
    (found,) = await listed(world)
    assert (found.blackhole, found.provider_id) == (True, "")
    assert await world.routes.delete("blue", [found]) == {}
    assert world.entries() == []


async def test_an_address_that_ports_share_is_no_blackhole() -> None:
    world = World()
    pair = {"ip_address": "10.0.255.254", "mac_address": "fa:16:3e:00:00:01"}
    world.api.change("ports", world.port("n2")["id"], {"allowed_address_pairs": [pair]})
    world.add_foreign("10.99.0.0/24")
    (found,) = await listed(world)
    assert (found.blackhole, found.provider_id) == (False, "")


async def test_the_router_itself_is_no_machine() -> None:
    world = World()
    gateway = next(one for one in world.api.records("ports") if one["device_id"] == world.router)
    entry = {"destination": "10.99.0.0/24", "nexthop": gateway["fixed_ips"][0]["ip_address"]}
    world.api.change("routers", world.router, {"routes": [entry]})
    (found,) = await listed(world)
    assert (found.provider_id, found.blackhole) == ("", False)


async def test_other_address_pairs_of_the_port_stay() -> None:
    world = World()
    vip = {"ip_address": "10.0.9.9", "mac_address": "fa:16:3e:00:00:01"}
    world.api.change("ports", world.port("n1")["id"], {"allowed_address_pairs": [vip]})
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    assert world.pairs("n1") == ["10.0.9.9", "10.244.1.0/24"]
    assert world.port("n1")["allowed_address_pairs"][0] == vip
    assert await world.routes.delete("blue", await listed(world)) == {}
    assert world.pairs("n1") == ["10.0.9.9"]


async def test_a_pair_of_the_range_with_another_mac_stays_when_the_route_is_deleted() -> None:
    """Something other than the node sends with the range, such as a virtual router."""
    world = World()
    other = {"ip_address": "10.244.1.0/24", "mac_address": "fa:16:3e:00:00:01"}
    world.api.change("ports", world.port("n1")["id"], {"allowed_address_pairs": [other]})
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    assert world.pairs("n1") == ["10.244.1.0/24", "10.244.1.0/24"], (
        "the node needs a pair of its own"
    )

    assert await world.routes.delete("blue", await listed(world)) == {}
    assert world.port("n1")["allowed_address_pairs"] == [other]


async def test_address_pairs_that_something_else_changes_meanwhile_are_not_lost() -> None:
    world = World()
    fault = Conflict("Constrained to 1, but current revision is 2")
    world.api.faults["PUT", f"/v2.0/ports/{world.port('n1')['id']}"] = fault
    routes = [world.route("n1", "10.244.1.0/24"), world.route("n2", "10.244.2.0/24")]
    assert await world.routes.create("blue", routes) == {routes[0]: fault}
    world.api.faults.clear()
    first, second = await listed(world)
    assert first.missing_in
    assert not second.missing_in
    writes = [call for call in world.api.calls if call.method == "PUT" and "/ports/" in call.path]
    assert all(call.if_revision is not None for call in writes)


async def test_ports_without_port_security_need_no_pairs() -> None:
    world = World()
    world.api.change("ports", world.port("n1")["id"], {"port_security_enabled": False})
    assert await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")]) == {}
    assert world.pairs("n1") == []
    (found,) = await listed(world)
    assert not found.missing_in


@pytest.mark.parametrize(
    ("pair", "mac", "covered"),
    [
        ("10.244.1.0/24", "own", True),
        ("10.244.0.0/16", "own", True),
        ("10.244.1.0/24", "", True),
        ("10.244.1.0/24", "other", False),
        ("10.244.1.0/25", "own", False),
        ("10.244.1.7", "own", False),
        ("fd00::/8", "own", False),
    ],
)
def test_a_pair_of_a_wider_range_is_enough(pair: str, mac: str, covered: bool) -> None:
    pairs = (AddressPair(ip_address=pair, mac_address=mac),)
    port = Port(id="p", network_id="n", mac_address="own", allowed_address_pairs=pairs)
    assert is_covered(port, "10.244.1.0/24") == covered


async def test_a_hundred_routes_are_one_request_and_one_for_each_port() -> None:
    world = World(nodes=100)
    routes = [world.route(f"n{n}", f"10.244.{n}.0/24") for n in range(1, 101)]
    assert await world.routes.create("blue", routes) == {}
    assert len(await listed(world)) == 100
    world.api.calls.clear()
    assert await world.routes.create("blue", routes) == {}
    assert len(world.api.calls) == 4, "extensions, routes, interfaces, ports: no port is written"
    world.api.calls.clear()
    assert len(await listed(world)) == 100
    assert len(world.api.calls) == 4, "router, extensions, interfaces, ports"


async def test_one_refused_route_of_a_hundred_costs_few_requests() -> None:
    world = World(nodes=100)
    routes = [world.route(f"n{n}", f"10.244.{n}.0/24") for n in range(1, 101)]
    world.reject("10.244.77.0/24")
    errors = await world.routes.create("blue", routes)
    assert [one.destination for one in errors] == ["10.244.77.0/24"]
    assert len(world.entries()) == 99
    asked = [call for call in world.api.calls if call.path.endswith("/add_extraroutes")]
    refused = sum(world.api.requests[key] for key in world.api.requests if key[0] == "refused")
    assert len(asked) + refused <= 20


async def test_missing_rights_are_one_request_and_name_every_route() -> None:
    world = World()
    path = f"/v2.0/routers/{world.router}/add_extraroutes"
    world.api.faults["PUT", path] = Unauthorized("403 [req-1]")
    routes = [world.route("n1", "10.244.1.0/24"), world.route("n2", "10.244.2.0/24")]
    errors = await world.routes.create("blue", routes)
    assert set(errors) == set(routes)
    assert all(isinstance(one, Unauthorized) for one in errors.values())


async def test_no_part_of_the_routes_is_sent_after_neutron_asked_to_wait() -> None:
    world = World()
    routes = [world.route("n1", "10.244.1.0/24"), world.route("n2", "10.244.2.0/24")]
    path, pauses = f"/v2.0/routers/{world.router}/add_extraroutes", list[float]()
    world.api.faults["PUT", path] = Rejected("refused")

    def check() -> None:
        if world.api.attempts[path]:
            world.api.faults["PUT", path] = Throttled("429", retry_after=7)
        if pauses:
            raise Throttled("paused", retry_after=pauses[0])

    with permitted_by(check, pauses.append):
        errors = await world.routes.create("blue", routes)

    assert set(errors) == set(routes)
    assert all(isinstance(one, Throttled) for one in errors.values())
    assert world.api.attempts[path] == 2, "both routes, then the first half"


async def test_the_limit_of_address_pairs_is_reported_as_a_quota() -> None:
    world = World()
    fault = Rejected("400 The number of allowed address pair exceeds the maximum 10.")
    world.api.faults["PUT", f"/v2.0/ports/{world.port('n1')['id']}"] = fault
    route = world.route("n1", "10.244.1.0/24")
    errors = await world.routes.create("blue", [route])
    assert isinstance(errors[route], QuotaExceeded)
    assert "max_allowed_address_pair" in str(errors[route])


@pytest.mark.parametrize("error", [Unavailable("503 [req-1]"), Conflict("409")])
async def test_other_errors_are_those_of_all_routes(error: CloudError) -> None:
    world = World()
    world.api.faults["PUT", f"/v2.0/routers/{world.router}/add_extraroutes"] = error
    route = world.route("n1", "10.244.1.0/24")
    assert await world.routes.create("blue", [route]) == {route: error}
    assert world.pairs("n1") == [], "no pair without its route"


async def test_a_pair_that_cannot_be_removed_keeps_its_route_for_the_next_try() -> None:
    world = World()
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    found = await listed(world)
    path = f"/v2.0/ports/{world.port('n1')['id']}"
    world.api.faults["PUT", path] = Unavailable("503")
    assert list(await world.routes.delete("blue", found)) == list(found)
    assert len(world.entries()) == 1
    world.api.faults.clear()
    assert await world.routes.delete("blue", found) == {}
    assert (world.entries(), world.pairs("n1")) == ([], [])


async def test_an_unknown_router_is_reported_with_the_routers_there_are() -> None:
    world = World()
    unknown = replace(world.routes, router_id="no-such-router")
    with pytest.raises(Misconfigured, match=rf"router-id of \[Route\].*{world.router}"):
        await unknown.list_routes("blue")
    route = world.route("n1", "10.244.1.0/24")
    errors = await unknown.create("blue", [route])
    assert isinstance(errors[route], Misconfigured)


async def test_a_node_outside_the_routers_subnets_is_reported_with_the_command_to_run() -> None:
    world = World()
    network, *_ = world.api.add_network("elsewhere", "10.9.0.0/24")
    world.servers["n3"] = world.api.add_server("n3", network)
    route = world.route("n3", "10.244.3.0/24")
    errors = await world.routes.create("blue", [route, world.route("n1", "10.244.1.0/24")])
    assert list(errors) == [route]
    assert f"openstack router add subnet {world.router}" in str(errors[route])


async def test_the_limit_of_a_router_is_reported_as_a_quota() -> None:
    world = World(settings=Settings(max_routes=1))
    routes = [world.route("n1", "10.244.1.0/24"), world.route("n2", "10.244.2.0/24")]
    errors = await world.routes.create("blue", routes)
    assert len(world.entries()) == 1, "what fits is created"
    (error,) = errors.values()
    assert isinstance(error, QuotaExceeded)
    assert "max_routes in neutron.conf" in str(error)


async def test_a_neutron_without_extra_routes_is_not_supported() -> None:
    world = World(settings=Settings(extensions=frozenset()))
    with pytest.raises(Unsupported, match="extension extraroute"):
        await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])


async def test_an_old_neutron_is_asked_with_the_revision_that_was_read() -> None:
    world = World(settings=Settings(extensions=OLD))
    world.add_foreign("10.99.0.0/24")
    await world.routes.create("blue", [world.route("n1", "10.244.1.0/24")])
    (write,) = [call for call in world.api.calls if call.writes]
    assert (write.path, write.if_revision is not None) == (f"/v2.0/routers/{world.router}", True)
    assert [one for one, _ in world.entries()] == ["10.99.0.0/24", "10.244.1.0/24"]


async def test_routes_of_the_go_ccm_are_taken_over_without_any_write() -> None:
    world = World()
    for name, destination in (("n1", "10.244.1.0/24"), ("n2", "10.244.2.0/24")):
        port = world.port(name)
        pair = {"ip_address": destination, "mac_address": port["mac_address"]}
        world.api.change("ports", port["id"], {"allowed_address_pairs": [pair]})
        hop = port["fixed_ips"][0]["ip_address"]
        body = {"router": {"routes": [{"destination": destination, "nexthop": hop}]}}
        path = f"/v2.0/routers/{world.router}/add_extraroutes"
        world.api.must(Service.NETWORK, "PUT", path, body)
    found = await listed(world)
    assert [one.provider_id for one in found] == [
        IDS.text(world.servers["n1"]),
        IDS.text(world.servers["n2"]),
    ]
    assert not any(one.missing_in or one.blackhole for one in found)
    assert not any(call.writes for call in world.api.calls)


async def test_a_route_that_was_not_listed_is_not_deleted() -> None:
    world = World()
    route = world.route("n1", "10.244.1.0/24")
    await world.routes.create("blue", [route])
    assert list(await world.routes.delete("blue", [route])) == [route]
    assert len(world.entries()) == 1


async def test_a_router_without_interfaces_lists_its_routes_and_no_ports() -> None:
    world = World()
    router = world.api.add_router([])
    entry = {"destination": "10.99.0.0/24", "nexthop": "10.0.255.254"}
    world.api.change("routers", router, {"routes": [entry]})
    (found,) = await replace(world.routes, router_id=router).list_routes("blue")
    assert found.destination == "10.99.0.0/24"
    assert world.api.requests["network", "GET", "/v2.0/ports"] == 1


def test_there_are_routes_only_with_a_router() -> None:
    neutron = Neutron(Client(ModelApi()))
    assert routes_of(neutron, OpenStackConfig(), PortWrites()) is None
    config = OpenStackConfig(route=RouteSection(router_id="r"), is_regional=True)
    made = routes_of(neutron, config, PortWrites())
    assert made is not None
    assert (made.router_id, made.ids.is_regional) == ("r", True)


async def test_no_route_is_added_to_an_address_that_no_port_has() -> None:
    """Neutron accepts it: a node that is kept without its server would get a route to nowhere."""
    world = World()
    route = world.route("n1", "10.244.1.0/24")
    world.api.delete_server(world.servers["n1"])

    errors = await world.routes.create("blue", [route, world.route("n2", "10.244.2.0/24")])

    assert list(errors) == [route]
    assert "no port has the address" in str(errors[route])
    assert [one.destination for one in await listed(world)] == ["10.244.2.0/24"]


def test_routes_and_load_balancers_wait_for_each_other_to_change_a_port() -> None:
    cloud = cloud_of(ModelApi(), OpenStackConfig(route=RouteSection(router_id="r")))
    assert isinstance(cloud.routes, OpenStackRoutes)
    assert isinstance(cloud.balancers, OpenStackBalancers)
    assert cloud.routes.writes is cloud.balancers.writes
