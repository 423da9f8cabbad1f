"""Which nodes are members of balancers."""

import asyncio

import pytest

from pileus.controllers.service.members import EXCLUDED, is_member, means_the_same, members_of
from pileus.kube.model.core_v1 import Node, NodeSpec, Taint
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.nodes import reference
from pileus.testing.virtual_time import EPOCH
from tests.unit.controllers.service.world import World

LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def node(name: str = "a", **spec: object) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec(**spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "member"),
    [("", False), ("true", False), ("yes", False), ("1", False), ("false", True), ("F", True)],
)
def test_the_label_that_excludes_means_false_only_by_a_word_for_it(value: str, member: bool):
    labelled = Node(metadata=ObjectMeta(name="a", labels={EXCLUDED: value}))

    assert is_member(labelled, drain_cordoned=False) is member


def test_a_node_is_a_member_whether_ready_cordoned_or_initialized():
    tainted = node(
        taints=(Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule"),)
    )

    assert is_member(node(), drain_cordoned=False)
    assert is_member(node(unschedulable=True), drain_cordoned=False)
    assert not is_member(node(unschedulable=True), drain_cordoned=True)
    assert is_member(tainted, drain_cordoned=True)


def test_a_node_that_is_about_to_go_is_none():
    leaving = node(taints=(Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoExecute"),))
    going = Node(metadata=ObjectMeta(name="a", deletion_timestamp=EPOCH))

    assert members_of([leaving, going], drain_cordoned=False) == frozenset()


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
