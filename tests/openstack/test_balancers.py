"""Load balancers of the provider on a real Octavia and Neutron."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pileus.cloud.balancer import (
    BalancerSpec,
    BalancerState,
    HealthCheck,
    Listener,
    Owner,
    Transport,
    Wish,
)
from pileus.cloud.errors import Conflict, Misconfigured, QuotaExceeded
from pileus.cloud.model import Address, NodeName, NodeRef
from pileus.providers.openstack.annotations import PREFIX
from pileus.providers.openstack.balancer_seen import Seen
from pileus.providers.openstack.balancers import OpenStackBalancers
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from tests.openstack.cloud import LIMIT, NETWORK_AND_BALANCER, Project, differences, eventually
from tests.openstack.requests import RecordedApi, requests_of

pytestmark = pytest.mark.real_time

OWNER = Owner("cluster-1", "7c1e6f52-8a2e-4a2b-9a53-0c8b5e0d6f01")
NAME = "kube_service_bed_default_web"


@dataclass
class Site:
    """The provider in one project, as the service controller uses it."""

    project: Project
    api: RecordedApi
    balancers: OpenStackBalancers

    def node(self, name: str) -> NodeRef:
        return NodeRef(
            name=NodeName(name),
            provider_id=f"openstack:///{self.project.servers[name]}",
            addresses=(Address("InternalIP", self.project.address(name)),),
        )

    def spec(self, *nodes: str, **fields: Any) -> BalancerSpec:
        ports = {
            Listener(port=80, node_port=30080, position=0),
            Listener(port=443, node_port=30443, position=1),
            Listener(port=53, node_port=30053, transport=Transport.UDP, position=2),
        }
        given: dict[str, Any] = {"listeners": frozenset(ports), **fields}
        return BalancerSpec(members=frozenset(map(self.node, nodes)), **given)

    def wish(self, spec: BalancerSpec | None, **fields: Any) -> Wish:
        given: dict[str, Any] = {"owner": OWNER, "namespace": "default", "service": "web"}
        return Wish(**{**given, **fields}, spec=spec)

    async def seen(self, wish: Wish, *, deep: bool = False) -> Seen:
        found = (await self.balancers.observe([wish], deep=deep))[wish.owner]
        assert isinstance(found, Seen), found
        return found

    async def settle(self, wish: Wish, *, deep: bool = False) -> Seen:
        """Pass after pass, until nothing is left to change and Octavia is not busy."""
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            seen = await self.seen(wish, deep=deep)
            changes = self.balancers.changes(wish, seen)
            if not changes and not seen.is_busy:
                return seen
            await self._apply(changes, seen)
            await asyncio.sleep(0.25)
        raise AssertionError(f"not reached: {wish}")

    async def _apply(self, changes: tuple[Any, ...], seen: Seen) -> None:
        try:
            for change in changes:
                seen = await self.balancers.apply(change, seen)
                if seen.is_busy:
                    return
        except Conflict:
            return

    def listeners(self) -> dict[tuple[int, str], dict[str, Any]]:
        found = self.project.cloud.listed("listeners")
        return {(one["protocol_port"], one["protocol"]): one for one in found}

    def members(self, port: int, protocol: str = "TCP") -> dict[str, dict[str, Any]]:
        pool = self.listeners()[port, protocol]["default_pool_id"]
        path = f"/v2/lbaas/pools/{pool}/members"
        found = self.project.cloud.get("balancer", path)["members"]
        return {one["name"]: one for one in found}

    def writes(self) -> list[str]:
        found = self.api.writes
        self.api.calls.clear()
        return found


@asynccontextmanager
async def site_of(project: Project, **settings: Any) -> AsyncGenerator[Site]:
    config = OpenStackConfig(load_balancer=LoadBalancer(**settings))
    async with requests_of(project.cloud) as api:
        yield Site(project, api, OpenStackBalancers(api.client, config, "bed"))


@pytest.mark.extended
async def test_a_load_balancer_lives_changes_and_leaves_nothing(furnished: Project) -> None:
    before = furnished.cloud.objects(NETWORK_AND_BALANCER)
    async with site_of(furnished, create_monitor=True, manage_security_groups=True) as site:
        wish = site.wish(site.spec("node-1", "node-2", source_ranges=frozenset({"10.0.0.0/8"})))
        seen = await site.settle(wish, deep=True)

        (balancer,) = furnished.balancers()
        assert balancer["name"] == NAME
        assert seen.balancer is not None
        (floating,) = furnished.cloud.listed("floatingips")
        assert [one.ip for one in seen.balancer.ingress] == [floating["floating_ip_address"]]
        assert set(site.listeners()) == {(80, "TCP"), (443, "TCP"), (53, "UDP")}
        assert site.listeners()[80, "TCP"]["allowed_cidrs"] == ["10.0.0.0/8"]
        assert set(site.members(80)) == {"node-1", "node-2"}

        await _changes(site)
        await site.settle(site.wish(None))
    after = furnished.cloud.objects(NETWORK_AND_BALANCER)
    assert list(differences(before, after)) == []


async def _changes(site: Site) -> None:
    """Ports, affinity, ranges, members and the health check change; the address stays."""
    (balancer,) = site.project.balancers()
    later = site.spec(
        "node-2",
        "node-3",
        listeners=frozenset({
            Listener(port=80, node_port=31080, position=0),
            Listener(port=8080, node_port=30880, position=1),
        }),
        sticky_seconds=10800,
        health=HealthCheck(node_port=32000),
    )
    await site.settle(site.wish(later), deep=True)

    (after,) = site.project.balancers()
    assert after["vip_address"] == balancer["vip_address"]
    assert set(site.listeners()) == {(80, "TCP"), (8080, "TCP")}
    assert site.listeners()[80, "TCP"]["allowed_cidrs"] == ["0.0.0.0/0"]
    members = site.members(80)
    assert {(name, one["monitor_port"]) for name, one in members.items()} == {
        ("node-2", 32000),
        ("node-3", 32000),
    }
    pools = site.project.cloud.listed("pools")
    assert {one["session_persistence"]["type"] for one in pools} == {"SOURCE_IP"}
    assert {one["type"] for one in site.project.cloud.listed("healthmonitors")} == {"HTTP"}


async def test_requests_of_creation_checks_and_a_new_node(furnished: Project) -> None:
    async with site_of(furnished) as site:
        wish = site.wish(site.spec("node-1", "node-2"))
        await site.settle(wish)
        created = site.writes()
        assert len(created) <= 8, created

        # The first heartbeat changes `updated_at`, and the next check reads all parts once.
        eventually(
            "Octavia has got a heartbeat",
            lambda: all(one["operating_status"] == "ONLINE" for one in furnished.balancers()),
        )
        await site.seen(wish)
        site.api.calls.clear()
        assert not site.balancers.changes(wish, await site.seen(wish))
        assert len(site.api.calls) <= 4, site.api.calls
        assert site.writes() == []

        more = site.wish(site.spec("node-1", "node-2", "node-3"))
        await site.settle(more)
        joined = site.writes()
        assert len(joined) == 3, joined
        assert set(site.members(53, "UDP")) == {"node-1", "node-2", "node-3"}


@pytest.mark.extended
async def test_a_load_balancer_of_the_go_program_is_taken_over_unchanged(
    furnished: Project,
) -> None:
    async with site_of(furnished) as site:
        wish = site.wish(site.spec("node-1", "node-2"))
        seen = await site.settle(wish)
        _strip(site)
        before = furnished.cloud.objects(NETWORK_AND_BALANCER)
        assert seen.balancer is not None

        with pytest.raises(Misconfigured, match="nothing proves"):
            await site.settle(wish)
        published = frozenset(one.ip for one in seen.balancer.ingress)
        await site.settle(replace(wish, published=published), deep=True)

        after = furnished.cloud.objects(NETWORK_AND_BALANCER)
        changed = list(differences(before, after))
        assert changed
        assert all(": tags: " in line for line in changed), changed


def _strip(site: Site) -> None:
    """Leave the tags that the Go program sets."""
    cloud = site.project.cloud
    (balancer,) = site.project.balancers()
    changes = [("loadbalancer", balancer["id"], [NAME])]
    changes += [("listener", one["id"], [NAME]) for one in cloud.listed("listeners")]
    changes += [("pool", one["id"], []) for one in cloud.listed("pools")]
    for kind, identity, tags in changes:
        _wait_until_active(site)
        cloud.send("PUT", "balancer", f"/v2/lbaas/{kind}s/{identity}", {kind: {"tags": tags}})
    _wait_until_active(site)
    for one in cloud.listed("floatingips"):
        cloud.send("PUT", "network", f"/v2.0/floatingips/{one['id']}/tags", {"tags": []})


def _wait_until_active(site: Site) -> None:
    eventually(
        "the load balancer is active",
        lambda: all(one["provisioning_status"] == "ACTIVE" for one in site.project.balancers()),
    )


async def test_error_and_pending_states(furnished: Project) -> None:
    async with site_of(furnished) as site:
        wish = site.wish(site.spec("node-1"))
        await site.settle(wish)
        (balancer,) = furnished.balancers()

        furnished.balancer_status(balancer["id"], "PENDING_UPDATE")
        more = site.wish(site.spec("node-1", "node-2"))
        seen = await site.seen(more)
        assert seen.balancer is not None
        assert seen.balancer.state is BalancerState.PENDING
        assert site.balancers.changes(more, seen) == ()

        furnished.balancer_status(balancer["id"], "ERROR")
        seen = await site.seen(more)
        assert seen.balancer is not None
        assert seen.balancer.state is BalancerState.FAILED
        assert f"openstack loadbalancer failover {balancer['id']}" in seen.balancer.problem
        assert site.balancers.changes(more, seen) == ()
        await site.settle(site.wish(None))
    assert furnished.balancers() == []


@pytest.mark.extended
async def test_one_that_fails_while_it_is_created_is_created_again(furnished: Project) -> None:
    async with site_of(furnished) as site:
        wish = site.wish(site.spec("node-1"))
        seen = await site.seen(wish)
        (create,) = site.balancers.changes(wish, seen)
        await site.balancers.apply(create, seen)
        (first,) = furnished.balancers()
        _wait_until_active(site)
        furnished.balancer_status(first["id"], "ERROR")

        await site.settle(wish)

    (second,) = furnished.balancers()
    assert second["id"] != first["id"]
    assert len(furnished.cloud.listed("floatingips")) == 1


@pytest.mark.extended
async def test_two_services_share_a_load_balancer(furnished: Project) -> None:
    async with site_of(furnished) as site:
        first = site.wish(site.spec("node-1"))
        seen = await site.settle(first)
        assert seen.found is not None
        ports = frozenset({Listener(port=8080, node_port=30808)})
        second = site.wish(
            site.spec("node-1", listeners=ports),
            owner=Owner("cluster-1", "0b8a6f52-8a2e-4a2b-9a53-0c8b5e0d6f02"),
            service="other",
            adopts=seen.found.id,
        )
        await site.settle(second, deep=True)
        assert len(site.listeners()) == 4
        await site.settle(first, deep=True)
        assert len(site.listeners()) == 4

        await site.settle(replace(second, spec=None, adopts=""))
        assert len(site.listeners()) == 3
        (balancer,) = furnished.balancers()
        assert not [tag for tag in balancer["tags"] if "other" in tag]

        await site.settle(replace(first, spec=None))
    assert furnished.balancers() == []


@pytest.mark.extended
async def test_two_families_have_two_addresses(empty: Project) -> None:
    empty.add_network(with_ipv6=True)
    empty.add_servers("node-1")
    async with site_of(empty) as site:
        spec = site.spec("node-1", families=("IPv4", "IPv6"))
        seen = await site.settle(site.wish(spec), deep=True)
        assert seen.balancer is not None
        first, second = (one.ip for one in seen.balancer.ingress)
        assert "." in first
        assert ":" in second


async def test_an_unknown_annotation_value_is_refused_before_anything_is_created(
    furnished: Project,
) -> None:
    async with site_of(furnished) as site:
        options = {f"{PREFIX}subnet-id": "6f0c2b61-0000-4000-8000-000000000000"}
        with pytest.raises(Misconfigured, match="no subnet 6f0c2b61"):
            await site.settle(site.wish(site.spec("node-1"), options=options))
        assert site.writes() == []


class ShiftedClock:
    """The time of this machine, and later if a test says so."""

    seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.seconds)


async def test_two_nodes_with_one_address_are_one_member(furnished: Project) -> None:
    async with site_of(furnished) as site:
        spec = site.spec("node-1", "node-2")
        twin = replace(site.node("node-2"), name=NodeName("twin"))
        await site.settle(site.wish(replace(spec, members=spec.members | {twin})))

        assert sorted(site.members(80)) == ["node-1", "node-2"]
        await site.settle(site.wish(None))
    assert vip_ports(furnished) == []


async def test_the_port_of_a_failed_creation_is_deleted(furnished: Project) -> None:
    path = f"/v2/lbaas/quotas/{furnished.cloud.project}"
    furnished.admin.send("PUT", "balancer", path, {"quota": {"listener": 2}})
    clock = ShiftedClock()
    async with site_of(furnished) as site:
        site.balancers.clock = clock
        wish = site.wish(site.spec("node-1"))
        try:
            with pytest.raises(QuotaExceeded):
                await site.settle(wish)
            assert len(vip_ports(furnished)) == 1, "Octavia deletes the port itself now"
            clock.seconds = 80
            await site.settle(site.wish(None))
        finally:
            furnished.admin.send("DELETE", "balancer", path)
    assert vip_ports(furnished) == []


def vip_ports(of: Project) -> list[str]:
    return [one["id"] for one in of.cloud.listed("ports", device_owner="Octavia")]
