"""Services under a ported provider, as users and the API server see them."""

import asyncio
from typing import Any

import pytest

from pileus.controllers.service.preview import DRIFT
from pileus.kube.model.core_v1 import LoadBalancerIngress, LoadBalancerStatus, PortStatus
from pileus.objects.preview import EVERYTHING, Planned
from tests.unit.classic.world import World

PORTS = (
    PortStatus(port=80, protocol="TCP"),
    PortStatus(port=443, protocol="TCP", error="acme.example/PortInUse"),
)
BOTH = LoadBalancerIngress(
    ip="203.0.113.7", hostname="lb.acme.example", ip_mode="Proxy", ports=PORTS
)
PUBLISHED = {
    "ip": "203.0.113.7",
    "hostname": "lb.acme.example",
    "ipMode": "Proxy",
    "ports": [
        {"port": 80, "protocol": "TCP"},
        {"port": 443, "protocol": "TCP", "error": "acme.example/PortInUse"},
    ],
}


async def served(world: World, **spec: Any) -> None:
    await world.add_node("n1")
    await world.add(**spec)
    await asyncio.sleep(30)


async def test_every_field_of_an_ingress_is_published_and_then_left_alone():
    world = World()
    world.account.status = LoadBalancerStatus(ingress=(BOTH,))

    async with world.managed(drift_period=60):
        await served(world)
        assert await world.ingress() == [PUBLISHED]
        world.wire.writes.clear()
        await asyncio.sleep(600)

    assert world.wire.written() == []
    assert "get" in world.account.calls, "a full check took place"


async def test_an_ingress_survives_a_restart_in_every_field():
    world = World()
    world.account.status = LoadBalancerStatus(ingress=(BOTH,))
    async with world.managed():
        await served(world)
    world.wire.writes.clear()
    world.account.calls.clear()

    async with world.managed():
        await asyncio.sleep(30)

    assert await world.ingress() == [PUBLISHED]
    assert (world.wire.written(), world.account.calls) == ([], [])


async def test_a_plan_names_addresses_that_only_a_full_check_restores():
    """Addresses that were edited while no manager ran look like those that were published."""
    world = World()
    async with world.managed():
        await served(world)
    await world.change_status(loadBalancer={"ingress": [{"ip": "192.0.2.1"}]})

    async with world.looked_at() as controller:
        (line,) = await controller.preview(EVERYTHING)

    assert isinstance(line, Planned)
    assert line.details == ("status.loadBalancer.ingress: 192.0.2.1 → 203.0.113.7",)
    assert line.waits_for == DRIFT


@pytest.mark.parametrize(
    "ports",
    [
        pytest.param((), id="no longer reported"),
        pytest.param(PORTS[:1], id="one less"),
        pytest.param((PORTS[0], PortStatus(port=443, protocol="TCP")), id="error cleared"),
        pytest.param((PORTS[0], PortStatus(port=443, protocol="UDP")), id="other protocol"),
    ],
)
async def test_a_change_of_ports_alone_is_published(ports: tuple[PortStatus, ...]):
    world = World()
    world.account.status = LoadBalancerStatus(ingress=(BOTH,))
    async with world.managed(drift_period=60):
        await served(world)
        changed = LoadBalancerIngress(
            ip=BOTH.ip, hostname=BOTH.hostname, ip_mode=BOTH.ip_mode, ports=ports or None
        )
        world.account.status = LoadBalancerStatus(ingress=(changed,))
        await asyncio.sleep(300)

        (entry,) = await world.ingress()
        found = [
            (each["port"], each["protocol"], each.get("error")) for each in entry.get("ports", [])
        ]
        assert found == [(each.port, each.protocol, each.error) for each in ports]


@pytest.mark.parametrize("text", ["reserved-address-7", "2001:db8::7", "192.0.2.9"])
async def test_whatever_the_user_asks_for_as_address_reaches_the_provider_unchanged(text: str):
    world = World()

    async with world.managed():
        await served(world, loadBalancerIP=text)

    (service,) = world.account.passed
    assert service.spec
    assert service.spec.load_balancer_ip == text
