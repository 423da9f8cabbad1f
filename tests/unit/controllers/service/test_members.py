"""Which nodes are members of balancers."""

import asyncio

import pytest

from pileus.controllers.service.members import EXCLUDED, MemberRules, means_the_same
from pileus.kube.model.core_v1 import Node, NodeSpec, Taint
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.nodes import reference
from pileus.objects.ownership import owner_by
from pileus.testing.virtual_time import EPOCH
from tests.unit.controllers.service.world import World

WHOSE = owner_by("local", None)
KEEPS, DRAINS = MemberRules(whose=WHOSE), MemberRules(whose=WHOSE, drain_cordoned=True)
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def node(name: str = "a", **spec: object) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(**spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "member"),
    [("", False), ("true", False), ("yes", False), ("1", False), ("false", True), ("F", True)],
)
def test_the_label_that_excludes_means_false_only_by_a_word_for_it(value: str, member: bool):
    labelled = Node(metadata=ObjectMeta(name="a", labels={EXCLUDED: value}))

    assert KEEPS.is_member(labelled) is member


def test_a_node_is_a_member_whether_ready_cordoned_or_initialized():
    tainted = node(
        taints=(Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule"),)
    )

    assert KEEPS.is_member(node())
    assert KEEPS.is_member(node(unschedulable=True))
    assert not DRAINS.is_member(node(unschedulable=True))
    assert DRAINS.is_member(tainted)


def test_a_node_that_is_about_to_go_is_none():
    leaving = node(taints=(Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoExecute"),))
    going = Node(metadata=ObjectMeta(name="a", deletion_timestamp=EPOCH))

    assert not KEEPS.is_member(leaving)
    assert not KEEPS.is_member(going)


def test_labels_make_no_difference_to_a_balancer():
    one, other = reference(node()), reference(node(provider_id="x://1"))
    labelled = reference(Node(metadata=ObjectMeta(name="a", labels={"x": "y"})))

    assert means_the_same(one, labelled)
    assert not means_the_same(one, other)
    assert not means_the_same(one, None)


async def test_nodes_leave_balancers_before_they_go():
    world = World()
    for name in "abcdefgh":
        await world.add_node(name)
    await world.add()
    async with world.managed(drain_cordoned=True):
        await asyncio.sleep(10)
        await world.change_node("a", spec={"taints": [LEAVING]})
        await world.change_node("b", spec={"unschedulable": True})
        await world.change_node("c", metadata={"labels": {EXCLUDED: ""}})
        await world.change_node("d", metadata={"finalizers": ["example.com/slow"]})
        await world.remove_node("d")
        await asyncio.sleep(3)
        assert world.members() == ["e", "f", "g", "h"]

        await world.change_node("a", spec={"taints": None})
        await world.change_node("b", spec={"unschedulable": None})
        await asyncio.sleep(3)
        assert world.members() == ["a", "b", "e", "f", "g", "h"]


async def test_a_member_that_gets_another_machine_is_updated():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.remove_node("a")
        await world.add_node("a", spec={"providerID": "local://another"})
        await asyncio.sleep(10)

        (member,) = world.balancers["default-web"].members
        assert member.machine == "another"


async def test_a_node_of_another_cloud_is_no_member_and_leaves_the_balancers_that_have_it():
    world = World()
    for name in "abcd":
        await world.add_node(name)
    await world.add_node("x", spec={"providerID": "elsewhere://x"})
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        assert world.members() == ["a", "b", "c", "d"]

        await world.remove_node("a")
        await world.add_node("a", spec={"providerID": "elsewhere://a"})
        await asyncio.sleep(10)
        assert world.members() == ["b", "c", "d"]


async def test_a_balancer_keeps_its_members_if_no_node_was_ever_recognised():
    world = World()
    await world.add_node("a")
    await world.add_node("b")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    for name in "ab":
        await world.remove_node(name)
        await world.add_node(name, spec={"providerID": f"elsewhere://{name}"})
    async with world.managed():
        await asyncio.sleep(1000)

        assert world.members() == ["a", "b"]
        assert "all nodes belong to other clouds" in str(world.events.told[-1].message)

        await world.add_node("c")
        await asyncio.sleep(1000)
        assert world.members() == ["c"]


async def test_the_last_node_of_this_cloud_leaves_the_balancer_though_others_are_left():
    world = World()
    await world.add_node("a")
    await world.add_node("x", spec={"providerID": "elsewhere://x"})
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.remove_node("a")
        await asyncio.sleep(100)

        assert world.members() == []
