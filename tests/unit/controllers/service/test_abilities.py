"""Services and their load balancers on clouds that can do less, or say more, than the local one."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities, Affinity
from pileus.cloud.balancer import BalancerState, Owner
from pileus.cloud.options import ADOPTS, SELECTOR, SELECTS_MEMBERS, TEXT, Option, Options
from pileus.cloud.selectors import EVERY_NODE
from pileus_lab.local.model.balancers import CreateBalancer
from pileus_lab.local.model.records import Mark, Port
from tests.unit.controllers.service.plain import Change, Seen
from tests.unit.controllers.service.world import CLUSTER, World

STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}


async def test_a_balancer_that_is_provisioning_is_changed_and_published_when_ready():
    world = World()
    cloud = world.plainly()
    world.abilities = Abilities(changes_while_provisioning=True)
    await world.add_node("a")
    uid = (await world.add())["metadata"]["uid"]
    owner = Owner(CLUSTER, uid)

    def provision(_: Owner, change: Change) -> None:
        if owner not in cloud.standing:
            cloud.standing[owner] = Seen(owner, state=BalancerState.PROVISIONING)

    cloud.changing = provision
    async with world.managed():
        await asyncio.sleep(3)
        assert not await world.ingress()
        await world.change(spec={"ports": [{"port": 81, "nodePort": 30081}]})
        await asyncio.sleep(3)
        assert {one.port for one in cloud.standing[owner].wanted.listeners} == {81}
        assert not await world.ingress()

        cloud.standing[owner] = replace(cloud.standing[owner], state=BalancerState.READY)
        await asyncio.sleep(20)
        assert await world.ingress()
        assert (await world.condition())[0] == "True"


async def test_a_balancer_that_is_as_close_as_possible_is_published_and_checked_again_in_time():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    uid = (await world.add())["metadata"]["uid"]
    async with world.managed():
        await asyncio.sleep(10)
        owner = Owner(CLUSTER, uid)
        cloud.standing[owner] = replace(cloud.standing[owner], check_again_in=40.0)
        await world.change(metadata={"annotations": {"look": "now"}})
        await asyncio.sleep(5)
        before = len(cloud.looks)

        await asyncio.sleep(30)
        assert len(cloud.looks) == before
        await asyncio.sleep(100)
        assert 2 <= len(cloud.looks) - before <= 3
        assert await world.ingress()


@pytest.mark.parametrize(
    ("abilities", "spec", "said"),
    [
        (Abilities(affinity=Affinity.NONE), STICKY, "spec.sessionAffinity"),
        (
            Abilities(source_ranges=False),
            {"loadBalancerSourceRanges": ["10.0.0.0/8"]},
            "loadBalancerSourceRanges",
        ),
    ],
)
async def test_what_the_cloud_cannot_do_is_refused_with_the_field_and_the_fix(
    abilities: Abilities, spec: dict[str, Any], said: str
):
    world = World()
    cloud = world.plainly()
    world.abilities = abilities
    await world.add_node("a")
    await world.add(**spec)
    async with world.managed():
        await asyncio.sleep(20)

        state, _, message = await world.condition()
        assert state == "False"
        assert said in message
        assert "Fix: " in message
        assert not cloud.changed


async def test_a_cloud_with_affinity_on_or_off_is_not_changed_for_other_seconds():
    world = World()
    cloud = world.plainly()
    world.abilities = Abilities(affinity=Affinity.ON_OFF)
    await world.add_node("a")
    await world.add(**STICKY)
    async with world.managed():
        await asyncio.sleep(10)
        (seen,) = cloud.standing.values()
        assert seen.wanted.sticky_seconds == DEFAULT_AFFINITY_SECONDS
        before = len(cloud.changed)

        await world.change(spec={"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}})
        await asyncio.sleep(10)
        assert len(cloud.changed) == before


async def test_members_without_a_provider_id_are_left_out_where_the_cloud_needs_one():
    world = World()
    cloud = world.plainly()
    world.abilities = Abilities(members_by_provider_id=True)
    await world.add_node("a")
    await world.add_node("new", spec={"providerID": ""})
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        (seen,) = cloud.standing.values()
        assert {one.name for one in seen.wanted.members} == {"a"}

        await world.change_node("new", spec={"providerID": "local://new"})
        await asyncio.sleep(10)
        (seen,) = cloud.standing.values()
        assert {one.name for one in seen.wanted.members} == {"a", "new"}


async def test_a_label_that_the_provider_declared_is_a_change_of_members():
    world = World()
    cloud = world.plainly()
    world.abilities = Abilities(member_labels=frozenset({"rack"}))
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        before = len(cloud.changed)
        await world.change_node("a", metadata={"labels": {"colour": "blue"}})
        await asyncio.sleep(10)
        assert len(cloud.changed) == before

        await world.change_node("a", metadata={"labels": {"rack": "r1"}})
        await asyncio.sleep(10)
        (seen,) = cloud.standing.values()
        (member,) = seen.wanted.members
        assert dict(member.labels) == {"rack": "r1"}


async def test_a_node_that_registers_again_keeps_its_place():
    world = World()
    cloud = world.plainly()
    world.abilities = Abilities(members_by_provider_id=True)
    await world.add_node("b")
    await world.add_node("a")
    await world.set_machine("a", "U-1")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        before = len(cloud.changed)
        await world.remove_node("a")
        await world.add_node("a", spec={"providerID": ""})
        await world.set_machine("a", "U-1")
        await asyncio.sleep(10)

        (seen,) = cloud.standing.values()
        assert {(one.name, one.provider_id) for one in seen.wanted.members} == {
            ("a", "local://a"),
            ("b", "local://b"),
        }
        assert len(cloud.changed) == before, "the member lost its place"


NODES = Option("acme/nodes", SELECTOR, EVERY_NODE, "Members.", role=SELECTS_MEMBERS)
NAMED = Option("acme/id", TEXT, "", "Existing load balancer.", role=ADOPTS)


async def test_an_annotation_of_the_provider_selects_members_and_labels_are_followed():
    world = World()
    cloud = world.plainly()
    world.annotations = Options(NODES, namespace="acme/")
    for name in "abcd":
        await world.add_node(name, metadata={"labels": {"pool": "web"}})
    await world.add_node("x")
    await world.add(annotations={NODES.name: "pool=web"})
    await world.add("all")

    def members() -> Any:
        found = (
            sorted(one.name for one in seen.wanted.members) for seen in cloud.standing.values()
        )
        return sorted(found)

    async with world.managed():
        await asyncio.sleep(10)
        assert members() == [["a", "b", "c", "d"], ["a", "b", "c", "d", "x"]]
        before = len(cloud.changed)

        await world.change_node("x", metadata={"labels": {"pool": "web"}})
        await world.change_node("a", metadata={"labels": {"pool": "db"}})
        await asyncio.sleep(10)
        assert members() == [["a", "b", "c", "d", "x"], ["b", "c", "d", "x"]]
        assert len(cloud.changed) == before + 1, "a label changed the members of all nodes"

        await world.change(metadata={"annotations": {NODES.name: "pool in (a)"}})
        await asyncio.sleep(10)
        assert "must be a node selector" in (await world.condition())[2]
        assert members() == [["a", "b", "c", "d", "x"], ["b", "c", "d", "x"]]


async def test_services_with_equal_members_and_different_selectors_are_compared_separately():
    world = World()
    cloud = world.plainly()
    world.annotations = Options(NODES, namespace="acme/")
    await world.add_node("a", metadata={"labels": {"pool": "web"}})
    await world.add(annotations={NODES.name: "pool=web"})
    await world.add("all")
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        await world.add_node("x")
        await asyncio.sleep(10)

        found = [{one.name for one in seen.wanted.members} for seen in cloud.standing.values()]
        assert sorted(found, key=len) == [{"a"}, {"a", "x"}]


async def test_an_annotation_of_the_provider_names_the_load_balancer_to_adopt():
    world = World()
    world.annotations = Options(NAMED, namespace="acme/")
    made = await world.cloud.call(
        CreateBalancer(name="by-hand", mark=Mark(), ports=(Port(port=1, node_port=9),))
    )
    await world.add_node("a")
    await world.add(annotations={NAMED.name: made.id})
    async with world.managed(trusted_namespaces=("default",)):
        await asyncio.sleep(20)
        (balancer,) = world.balancers.values()
        assert balancer.id == made.id
        assert {one.port for one in balancer.ports} == {80}

        await world.change(metadata={"annotations": {"pileus.dev/adopt": "another"}})
        await asyncio.sleep(10)
        assert "two load balancers are named" in (await world.condition())[2]
