"""Routes of a real Neutron router: the laws, address pairs, take-over, refusals."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from os import getpid
from typing import Any

import pytest
from tools.openstack_bed.bed import Bed

from pileus.cloud.errors import Conflict, Misconfigured, QuotaExceeded, Rejected
from pileus.cloud.model import Address, AddressType, NodeName, NodeRef, Route
from pileus.providers.openstack.api import Call
from pileus.providers.openstack.features import NeutronFeatures
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.provider_id import ProviderIds
from pileus.providers.openstack.routes import OpenStackRoutes
from pileus.testing.conformance.harness import RoutesHarness
from pileus.testing.conformance.routes import RoutesLaws
from tests.openstack.cloud import NETWORK_AND_BALANCER, Project, differences, project
from tests.openstack.requests import RecordedApi, requests_of

pytestmark = pytest.mark.real_time

IDS = ProviderIds("RegionOne")
OPERATOR = "10.7.255.254"
"""An address in the nodes' subnet that no port has."""


@dataclass
class Cluster(RoutesHarness):
    """Servers n1 and n2 behind one router, for IPv4 and IPv6."""

    project: Project
    rejected: set[str] = field(default_factory=set[str])

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[OpenStackRoutes]:
        async with self.recorded() as (routes, _):
            yield routes

    @asynccontextmanager
    async def recorded(self) -> AsyncGenerator[tuple[OpenStackRoutes, RecordedApi]]:
        async with requests_of(self.project.cloud) as api:
            api.before = self._refuse
            yield OpenStackRoutes(Neutron(api.client), self.project.router, IDS), api

    async def _refuse(self, call: Call) -> None:
        if call.writes and any(one in str(call.body) for one in self.rejected):
            raise Rejected("refused")

    def node(self, name: str) -> NodeRef:
        fixed = self.port(name)["fixed_ips"]
        addresses = tuple(Address(AddressType.INTERNAL_IP, one["ip_address"]) for one in fixed)
        provider_id = IDS.text(self.project.servers[name])
        return NodeRef(name=NodeName(name), provider_id=provider_id, addresses=addresses)

    def route(self, name: str, destination: str) -> Route:
        node = self.node(name)
        return Route(
            destination=destination,
            target=node.name,
            provider_id=node.provider_id,
            addresses=node.addresses,
        )

    def routes(self, name: str, count: int) -> list[Route]:
        """Returns routes to so many pod ranges, all through one node."""
        first = self.route(name, "10.244.0.0/24")
        return [replace(first, destination=f"10.244.{n}.0/24") for n in range(1, count + 1)]

    def port(self, name: str) -> dict[str, Any]:
        (port,) = self.project.cloud.listed("ports", device_id=self.project.servers[name])
        return port

    def hop(self, name: str, version: int = 4) -> str:
        fixed = [one["ip_address"] for one in self.port(name)["fixed_ips"]]
        return next(one for one in fixed if (":" in one) == (version == 6))

    def set_pairs(self, name: str, *pairs: dict[str, str]) -> None:
        path = f"/v2.0/ports/{self.port(name)['id']}"
        body = {"port": {"allowed_address_pairs": list(pairs)}}
        self.project.cloud.send("PUT", "network", path, body)

    def pairs(self, name: str) -> list[str]:
        return sorted(one["ip_address"] for one in self.port(name)["allowed_address_pairs"])

    def add_route(self, destination: str, hop: str) -> None:
        path = f"/v2.0/routers/{self.project.router}/add_extraroutes"
        body = {"router": {"routes": [{"destination": destination, "nexthop": hop}]}}
        self.project.cloud.send("PUT", "network", path, body)

    def entries(self) -> dict[str, str]:
        path = f"/v2.0/routers/{self.project.router}"
        routes = self.project.cloud.get("network", path)["router"]["routes"]
        return {one["destination"]: one["nexthop"] for one in routes}

    def add_foreign(self, destination: str) -> None:
        self.add_route(destination, OPERATOR)

    def reject(self, destination: str) -> None:
        self.rejected.add(destination)

    def remove_from_one_table(self, destination: str) -> bool:
        for name in self.project.servers:
            if destination in self.pairs(name):
                self.set_pairs(name)
                return True
        return False

    def clear(self) -> None:
        path = f"/v2.0/routers/{self.project.router}"
        self.project.cloud.send("PUT", "network", path, {"router": {"routes": []}})
        for name in self.project.servers:
            self.set_pairs(name)


@pytest.fixture(scope="module")
def furnished_once(bed: Bed) -> Iterator[Project]:
    with project(bed, f"routes-{getpid()}") as made:
        made.add_network(with_ipv6=True)
        path = f"/v2.0/routers/{made.router}/add_router_interface"
        made.cloud.send("PUT", "network", path, {"subnet_id": made.subnet6})
        made.add_servers("n1", "n2")
        yield made


@pytest.fixture
def cluster(furnished_once: Project) -> Iterator[Cluster]:
    """A cluster without routes."""
    made = Cluster(furnished_once)
    yield made
    made.clear()


class TestLaws(RoutesLaws):
    @pytest.fixture(autouse=True)
    def _on_a_router(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def make(self) -> RoutesHarness:
        return self.cluster


async def test_both_families_are_routed_and_ports_may_use_the_pod_ranges(cluster: Cluster) -> None:
    four, six = cluster.route("n1", "10.244.1.0/24"), cluster.route("n1", "fd00:244::/64")
    async with cluster.recorded() as (routes, api):
        assert await routes.create("blue", [four, six]) == {}
        assert cluster.entries() == {
            "10.244.1.0/24": cluster.hop("n1"),
            "fd00:244::/64": cluster.hop("n1", 6),
        }
        assert cluster.pairs("n1") == ["10.244.1.0/24", "fd00:244::/64"]
        assert len(api.writes) == 2, api.writes
        listed = await routes.list_routes("blue")
        assert {one.provider_id for one in listed} == {four.provider_id}
        assert not any(one.missing_in or one.blackhole for one in listed)
        assert await routes.delete("blue", listed) == {}
    assert (cluster.entries(), cluster.pairs("n1")) == ({}, [])


async def test_other_address_pairs_and_other_routes_stay(cluster: Cluster) -> None:
    cluster.set_pairs("n1", {"ip_address": "10.7.9.9", "mac_address": "fa:16:3e:00:00:01"})
    cluster.add_foreign("10.99.0.0/24")
    before = cluster.project.cloud.objects(NETWORK_AND_BALANCER)
    async with cluster.connect() as routes:
        assert await routes.create("blue", [cluster.route("n1", "10.244.1.0/24")]) == {}
        assert cluster.pairs("n1") == ["10.244.1.0/24", "10.7.9.9"]
        listed = await routes.list_routes("blue")
        ours = [one for one in listed if one.destination == "10.244.1.0/24"]
        assert await routes.delete("blue", ours) == {}
    after = cluster.project.cloud.objects(NETWORK_AND_BALANCER)
    assert list(differences(before, after)) == []


async def test_routes_of_the_go_ccm_are_taken_over_without_any_write(cluster: Cluster) -> None:
    for name, destination in (("n1", "10.244.1.0/24"), ("n2", "10.244.2.0/24")):
        cluster.add_route(destination, cluster.hop(name))
        cluster.set_pairs(name, {"ip_address": destination})
    before = cluster.project.cloud.objects(NETWORK_AND_BALANCER)
    async with cluster.recorded() as (routes, api):
        listed = await routes.list_routes("blue")
        assert {one.destination: one.provider_id for one in listed} == {
            "10.244.1.0/24": cluster.node("n1").provider_id,
            "10.244.2.0/24": cluster.node("n2").provider_id,
        }
        assert not any(one.missing_in or one.blackhole for one in listed)
        assert api.writes == []
    after = cluster.project.cloud.objects(NETWORK_AND_BALANCER)
    assert list(differences(before, after)) == []


async def test_a_route_to_an_address_without_port_is_a_blackhole(cluster: Cluster) -> None:
    cluster.add_foreign("10.244.9.0/24")
    async with cluster.connect() as routes:
        (found,) = await routes.list_routes("blue")
    assert (found.blackhole, found.provider_id, found.target) == (True, "", None)


async def test_many_routes_are_one_request(cluster: Cluster) -> None:
    cluster.set_pairs("n1", {"ip_address": "10.244.0.0/16"})
    wanted = cluster.routes("n1", 25)
    async with cluster.recorded() as (routes, api):
        assert await routes.create("blue", wanted) == {}
        assert len(api.writes) == 1, api.writes
        api.calls.clear()
        listed = await routes.list_routes("blue")
        assert (len(listed), len(api.calls)) == (25, 3), [call.path for call in api.calls]
        assert not any(one.missing_in for one in listed)
        assert await routes.delete("blue", listed) == {}
        assert len(api.writes) == 1, api.writes
    assert cluster.pairs("n1") == ["10.244.0.0/16"]


async def test_more_address_pairs_than_a_port_may_have_are_a_quota(cluster: Cluster) -> None:
    wanted = cluster.routes("n1", 12)
    async with cluster.connect() as routes:
        errors = await routes.create("blue", wanted)
        listed = await routes.list_routes("blue")
    assert set(errors) == set(wanted)
    assert "max_allowed_address_pair" in str(errors[wanted[0]])
    assert all(one.missing_in for one in listed)


async def test_more_routes_than_a_router_may_have_are_a_quota(cluster: Cluster) -> None:
    cluster.set_pairs("n1", {"ip_address": "10.244.0.0/16"})
    wanted = cluster.routes("n1", 40)
    async with cluster.recorded() as (routes, api):
        errors = await routes.create("blue", wanted)
        assert len(cluster.entries()) + len(errors) == 40
        assert errors, "the router has a limit of 30"
        assert all(isinstance(one, QuotaExceeded) for one in errors.values())
        assert "quota router_route" in str(next(iter(errors.values())))
        assert len(api.calls) < 40, "not one request for each route"


async def test_a_node_outside_the_routers_subnets_fails_alone(cluster: Cluster) -> None:
    far = replace(
        cluster.route("n2", "10.244.2.0/24"),
        addresses=(Address(AddressType.INTERNAL_IP, "192.168.7.7"),),
    )
    async with cluster.connect() as routes:
        errors = await routes.create("blue", [cluster.route("n1", "10.244.1.0/24"), far])
    assert list(errors) == [far]
    assert "openstack router add subnet" in str(errors[far])
    assert list(cluster.entries()) == ["10.244.1.0/24"]


async def test_an_unknown_router_is_reported_with_the_routers_there_are(cluster: Cluster) -> None:
    async with cluster.connect() as routes:
        routes.router_id = "00000000-0000-4000-8000-000000000000"
        with pytest.raises(Misconfigured, match=f"Routers: {cluster.project.router}"):
            await routes.list_routes("blue")


async def test_without_atomic_changes_a_route_that_was_added_meanwhile_is_not_lost(
    cluster: Cluster,
) -> None:
    route = cluster.route("n1", "10.244.1.0/24")

    async def interfere(call: Call) -> None:
        if call.method == "PUT" and call.path.endswith(cluster.project.router):
            await asyncio.to_thread(cluster.add_foreign, "10.99.0.0/24")

    async with cluster.recorded() as (routes, api):
        routes._features._neutron = NeutronFeatures(frozenset({"extraroute"}))
        api.before = interfere
        errors = await routes.create("blue", [route])
        assert isinstance(errors[route], Conflict)
        assert list(cluster.entries()) == ["10.99.0.0/24"]
        api.before = None
        assert await routes.create("blue", [route]) == {}
        assert sorted(cluster.entries()) == ["10.244.1.0/24", "10.99.0.0/24"]


async def test_a_pair_that_was_added_meanwhile_is_not_lost(cluster: Cluster) -> None:
    route = cluster.route("n1", "10.244.1.0/24")
    other = {"ip_address": "10.7.9.9"}

    async def interfere(call: Call) -> None:
        if call.method == "PUT" and "/ports/" in call.path:
            await asyncio.to_thread(cluster.set_pairs, "n1", other)

    async with cluster.recorded() as (routes, api):
        api.before = interfere
        errors = await routes.create("blue", [route])
        assert isinstance(errors[route], Conflict)
        api.before = None
        (listed,) = await routes.list_routes("blue")
        assert listed.missing_in
        assert await routes.create("blue", [route]) == {}
    assert cluster.pairs("n1") == ["10.244.1.0/24", "10.7.9.9"]
