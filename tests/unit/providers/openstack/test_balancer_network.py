"""Floating IPs and security groups as parts of whole load balancers, also across crashes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Wish
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import NO_LABELS, Address, NodeName, NodeRef
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.balancer_seen import Seen
from pileus.providers.openstack.balancers import OpenStackBalancers
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.providers.openstack.marks import KEPT
from pileus.providers.openstack.octavia import Octavia
from pileus_lab.openstack.model_api import ModelApi

OWNER = Owner("cluster-1", "uid-of-web")
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
KEEP = "loadbalancer.openstack.org/keep-floatingip"
LEFT = ("loadbalancers", "listeners", "pools", "members", "floatingips", "security-groups", "ports")


class Crashing(ModelApi):
    """A model whose answer to one write does not arrive, although the write took effect."""

    crash_after = 0
    """Number of the write, counted from 1; 0: none."""
    wrote = 0

    async def call(self, call: Call) -> Any:
        answer = await super().call(call)
        self.wrote += call.writes
        if call.writes and self.wrote == self.crash_after:
            raise Unavailable("the process dies here")
        return answer


@dataclass
class Site:
    """A project with an external network, a router and servers, and a Service."""

    config: LoadBalancer = field(default_factory=LoadBalancer)
    api: Crashing = field(default_factory=Crashing)
    nodes: tuple[NodeRef, ...] = ()

    def __post_init__(self) -> None:
        self.public, _ = self.api.add_network("public", "203.0.113.0/24", external=True)
        network, subnet = self.api.add_network("nodes", "10.0.0.0/16")
        self.api.add_router([subnet], external=self.public)
        for n in (1, 2):
            server = self.api.add_server(f"n{n}", network)
            address = self.api.port_of(server)["fixed_ips"][0]["ip_address"]
            addresses = (Address("InternalIP", address),)
            name, provider_id = NodeName(f"n{n}"), f"openstack:///{server}"
            node = NodeRef(name=name, provider_id=provider_id, addresses=addresses)
            self.nodes += (node,)
        self.before = self.counts()
        self.restart()

    def restart(self) -> None:
        """Begin a new process, with the configuration of now."""
        config = OpenStackConfig(load_balancer=self.config)
        self.balancers = OpenStackBalancers(Client(self.api), config)

    def counts(self) -> dict[str, int]:
        return {kind: len(self.api.records(kind)) for kind in LEFT}

    def wish(
        self, options: Mapping[str, str] = NO_LABELS, *, members: int = 2, address: str = ""
    ) -> Wish:
        spec = BalancerSpec(
            listeners=frozenset({Listener(port=80, node_port=30080)}),
            members=frozenset(self.nodes[:members]),
            requested_address=address,
        )
        return Wish(owner=OWNER, spec=spec, namespace="shop", service="web", options=options)

    async def settle(self, wish: Wish, *, deep: bool = False) -> Seen:
        """Pass after pass, as the core drives a provider."""
        for _ in range(40):
            seen = (await self.balancers.observe([wish], deep=deep))[wish.owner]
            assert isinstance(seen, Seen), seen
            changes = self.balancers.changes(wish, seen)
            if not changes and not seen.is_busy:
                return seen
            for change in changes:
                seen = await self.balancers.apply(change, seen)
                if seen.is_busy:
                    break
            self.api.now += 1
        raise AssertionError("changes without end")

    async def delete(self, wish: Wish) -> None:
        await self.settle(replace(wish, spec=None))

    def groups(self) -> list[str]:
        return [one["name"] for one in self.api.records("security-groups")]

    def users(self) -> list[str]:
        """Returns the servers whose ports have the Service's group."""
        found = self.api.records("security-groups")
        (group,) = [one["id"] for one in found if one["name"].startswith("lb-sg-")]
        ports = self.api.records("ports")
        return sorted(one["device_id"] for one in ports if group in one["security_groups"])

    def server(self, n: int) -> str:
        return self.nodes[n].provider_id.rpartition("/")[2]


async def test_a_node_that_is_no_longer_a_member_loses_the_security_group() -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    await site.settle(site.wish())
    assert site.users() == sorted([site.server(0), site.server(1)])
    await site.settle(site.wish(members=1))
    assert site.users() == [site.server(0)]


async def test_groups_are_removed_when_they_are_no_longer_managed() -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    await site.settle(site.wish())
    site.config = LoadBalancer()
    site.restart()
    await site.settle(site.wish(), deep=True)
    assert site.groups() == ["default"]


@pytest.mark.parametrize("was_stamped", [True, False])
async def test_groups_are_removed_by_the_first_quick_check_after_the_restart(
    was_stamped: bool,
) -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    await site.settle(site.wish(), deep=was_stamped)
    assert len(site.groups()) == 2
    site.config = LoadBalancer()
    site.restart()

    await site.settle(site.wish())

    assert site.groups() == ["default"]


async def test_a_removal_of_groups_that_was_interrupted_goes_on_at_the_next_quick_check() -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    await site.settle(site.wish())
    site.config = LoadBalancer()
    site.restart()
    site.api.crash_after = site.api.wrote + 1
    with pytest.raises(Unavailable):
        await site.settle(site.wish())
    site.api.crash_after = 0

    await site.settle(site.wish())

    assert site.groups() == ["default"]


async def test_groups_that_are_not_managed_are_read_once_in_a_process() -> None:
    site = Site(LoadBalancer(member_drain_time=0.0))
    await site.settle(site.wish())
    site.restart()
    await site.settle(site.wish(members=1))
    site.api.calls.clear()

    await site.settle(site.wish())

    assert any(one.path.endswith("/members") for one in site.api.calls)
    assert not any("security-groups" in one.path for one in site.api.calls)


async def test_a_service_that_becomes_internal_and_external_again() -> None:
    site = Site()
    await site.settle(site.wish())
    assert len(site.api.records("floatingips")) == 1
    await site.settle(site.wish({INTERNAL: "true"}))
    assert site.api.records("floatingips") == []
    await site.settle(site.wish())
    assert len(site.api.records("floatingips")) == 1


async def test_a_kept_floating_ip_survives_its_service_and_serves_the_next_one() -> None:
    site = Site()
    wish = site.wish({KEEP: "true"})
    await site.settle(wish)
    await site.delete(wish)
    (kept,) = site.api.records("floatingips")
    assert kept["port_id"] is None
    again = site.wish(address=kept["floating_ip_address"])
    await site.settle(again)
    await site.delete(again)
    (still,) = site.api.records("floatingips")
    assert (still["id"], set(still["tags"])) == (kept["id"], {*kept["tags"], KEPT})
    assert kept["tags"] == ["pileus.dev/for=cluster-1/shop/web"]


async def test_a_load_balancer_that_was_deleted_manually_gets_its_address_back() -> None:
    site = Site()
    await site.settle(site.wish())
    (before,) = site.api.records("floatingips")
    (balancer,) = site.api.records("loadbalancers")
    await Octavia(Client(site.api)).delete_balancer(balancer["id"], cascade=True)
    site.api.now += 5
    await site.settle(site.wish())
    (after,) = site.api.records("floatingips")
    assert after["id"] == before["id"]
    assert after["port_id"] not in {None, before["port_id"]}


@pytest.mark.parametrize("crash", range(1, 11))
async def test_a_crash_after_any_write_of_the_creation_leaks_nothing(crash: int) -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    site.api.crash_after = crash
    with pytest.raises(Unavailable):
        await site.settle(site.wish())
    site.restart()
    await site.delete(site.wish())
    assert site.counts() == site.before


@pytest.mark.parametrize("crash", range(1, 6))
async def test_a_crash_after_any_write_of_the_deletion_leaks_nothing(crash: int) -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    await site.settle(site.wish())
    site.api.crash_after = site.api.wrote + crash
    with pytest.raises(Unavailable):
        await site.delete(site.wish())
    site.restart()
    await site.delete(site.wish())
    assert site.counts() == site.before


@pytest.mark.parametrize("crash", range(1, 11))
async def test_a_crash_after_any_write_is_repaired_and_creates_nothing_twice(crash: int) -> None:
    site = Site(LoadBalancer(manage_security_groups=True))
    site.api.crash_after = crash
    with pytest.raises(Unavailable):
        await site.settle(site.wish())
    site.restart()
    await site.settle(site.wish(), deep=True)
    assert len(site.api.records("loadbalancers")) == 1
    assert len(site.api.records("floatingips")) == 1
    assert len(site.groups()) == 2
    assert site.users() == sorted([site.server(0), site.server(1)])
