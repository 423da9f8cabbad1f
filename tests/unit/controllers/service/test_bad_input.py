"""Services with invalid specs or annotations: reported, and no other Service is affected."""

import asyncio
from typing import Any

import pytest

from pileus_lab.local.model.account import SetQuota
from tests.unit.controllers.service.world import World


async def neighbours(world: World) -> None:
    for name in "abcd":
        await world.add_node(name)
    for number in range(3):
        await world.add(f"good-{number}")


async def all_well(world: World) -> None:
    for number in range(3):
        assert await world.ingress(f"good-{number}")
        assert (await world.condition(f"good-{number}"))[0] == "True"


BAD = {
    "a range in the annotation that does not parse": (
        {
            "annotations": {
                "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, nowhere"
            }
        },
        "Misconfigured",
        '"nowhere" is not a CIDR',
    ),
    "an address of a family that it has not": (
        {"loadBalancerIP": "2001:db8::7"},
        "Misconfigured",
        "2001:db8::7 is IPv6, but the load balancer is for IPv4",
    ),
    "an address that is none": (
        {"loadBalancerIP": "the-nice-one"},
        "Misconfigured",
        '"the-nice-one" is not an IP address',
    ),
    "an annotation of the wrong type": (
        {"annotations": {"local.pileus/drain-seconds": "soon"}},
        "Misconfigured",
        "local.pileus/drain-seconds: invalid value",
    ),
    "no node ports where the cloud needs them": (
        {"allocateLoadBalancerNodePorts": False},
        "Rejected",
        "ports are from 1 to",
    ),
    "a protocol that the cloud has not": (
        {"ports": [{"port": 80, "protocol": "SCTP"}]},
        "Unsupported",
        "TCP and UDP only",
    ),
    "an address that the cloud does not have": (
        {"loadBalancerIP": "192.0.2.77"},
        "Rejected",
        "192.0.2.77",
    ),
}


@pytest.mark.parametrize(("spec", "reason", "words"), BAD.values(), ids=BAD.keys())
async def test_a_service_that_asks_for_nonsense_is_told_and_harms_nobody(
    spec: dict[str, object], reason: str, words: str
):
    world = World()
    await neighbours(world)
    async with world.managed():
        await world.add("bad", **spec)
        await asyncio.sleep(10)

        state, told, message = await world.condition("bad")
        assert (state, told) == ("False", reason)
        assert words in message
        (event,) = world.events.messages("SyncLoadBalancerFailed")
        assert event.startswith("Error syncing load balancer: failed to ensure load balancer: ")
        assert words in event
        assert "default-bad" not in world.balancers
        await all_well(world)


@pytest.mark.parametrize("spec", [spec for spec, *_ in BAD.values()], ids=BAD.keys())
async def test_a_service_that_begins_to_ask_for_nonsense_keeps_what_it_has(spec: dict[str, Any]):
    world = World()
    await world.add_node("a")
    await world.add("bad")
    async with world.managed():
        await asyncio.sleep(10)
        before, address = world.balancers["default-bad"], await world.ingress("bad")
        change = dict(spec)
        metadata = {"annotations": change.pop("annotations", None)}
        if "ports" in change:
            change["ports"] = [{"port": 80, "protocol": "SCTP", "targetPort": 80}]
        if "allocateLoadBalancerNodePorts" in change:
            change["ports"] = [{"port": 443, "targetPort": 443}]
        await world.change("bad", metadata=metadata, spec=change)
        await asyncio.sleep(100)

        assert (await world.condition("bad"))[0] == "False"
        assert world.balancers["default-bad"] == before
        assert await world.ingress("bad") == address

        await world.delete("bad")
        await asyncio.sleep(10)
        assert (world.balancers, await world.services()) == ({}, {})


async def test_clashing_addresses_go_to_who_came_first_and_the_other_is_told():
    world = World()
    await neighbours(world)
    async with world.managed():
        await world.add("first", loadBalancerIP="127.78.0.200")
        await asyncio.sleep(5)
        await world.add("second", loadBalancerIP="127.78.0.200")
        await asyncio.sleep(10)

        assert (await world.condition("second"))[:2] == ("False", "Rejected")
        assert "is taken by another balancer" in (await world.condition("second"))[2]
        assert (await world.ingress("first"))[0]["ip"] == "127.78.0.200"
        await all_well(world)

        await world.delete("first")
        await asyncio.sleep(400)
        assert (await world.ingress("second"))[0]["ip"] == "127.78.0.200"
        assert (await world.condition("second"))[0] == "True"


async def test_a_thousand_ports_are_served_or_told():
    world = World()
    await neighbours(world)
    ports = [
        {"name": f"p{number}", "port": number, "nodePort": 30000 + number}
        for number in range(1, 1001)
    ]
    async with world.managed():
        await world.add("many", ports=ports)
        await asyncio.sleep(10)
        assert (await world.condition("many"))[:2] == ("False", "QuotaExceeded")
        await all_well(world)

        await world.cloud.operate(SetQuota(limits={"listeners": 2000}))
        await asyncio.sleep(400)
        assert len(world.balancers["default-many"].ports) == 1000
        assert (await world.condition("many"))[0] == "True"


async def test_a_service_without_nodes_gets_a_balancer_and_a_warning():
    world = World()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)

        assert world.members() == []
        assert await world.ingress()
        assert world.events.messages("UnAvailableLoadBalancer") == [
            "There are no available nodes for LoadBalancer"
        ]
        assert (await world.condition())[:2] == ("False", "NoMembers")


async def test_a_class_that_nobody_serves_is_left_alone():
    world = World()
    await neighbours(world)
    async with world.managed():
        await world.add("other", loadBalancerClass="example.com/nobody")
        await asyncio.sleep(10)

        assert "default-other" not in world.balancers
        assert await world.condition("other") == ("", "", "")
        assert world.events.reasons("other") == []


async def test_a_misspelt_annotation_is_told_once_and_the_rest_goes_on():
    world = World()
    await world.add_node("a")
    async with world.managed(drift_period=60):
        await world.add(
            annotations={"local.pileus/drain-second": "7", "local.pileus/proxy-protocol": "v2"}
        )
        await asyncio.sleep(300)

        assert world.balancers["default-web"].traffic.proxy == "v2"
        (message,) = world.events.messages("UnknownAnnotation")
        assert 'did you mean "local.pileus/drain-seconds"?' in message
        assert (await world.condition())[0] == "True"


async def test_a_service_that_was_refused_and_is_made_anew_is_served_at_once():
    world = World()
    await world.add_node("a")
    async with world.managed():
        await world.add("bad", loadBalancerIP="the-nice-one")
        await asyncio.sleep(5)
        await world.delete("bad")
        await world.add("bad")
        await asyncio.sleep(3)

        assert await world.ingress("bad")
