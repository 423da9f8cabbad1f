"""Which nodes are members of load balancers."""

import asyncio

import pytest

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import Rejected
from pileus.controllers.service.annotations import MemberScope
from pileus.controllers.service.members import (
    EXCLUDED,
    MemberRules,
    Membership,
    means_the_same,
)
from pileus.kube.model.core_v1 import NODES, Node, NodeSpec, Taint
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.patch import MergePatch
from pileus.objects.nodes import reference
from pileus.objects.ownership import owner_by
from pileus.testing.virtual_time import EPOCH
from tests.unit.controllers.service.plain import PlainBalancers
from tests.unit.controllers.service.world import World

WHOSE = owner_by("local", None)
KEEPS, DRAINS = MemberRules(whose=WHOSE), MemberRules(whose=WHOSE, drain_cordoned=True)
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}


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


async def slow_world() -> tuple[World, PlainBalancers]:
    """A cloud in which each change takes 10 s, and one node."""
    world = World()
    cloud = world.plainly()
    cloud.change_takes = 10.0
    await world.add_node("a")
    return world, cloud


def given_to(cloud: PlainBalancers) -> list[str]:
    (seen,) = cloud.standing.values()
    assert seen.spec is not None
    return sorted(member.name for member in seen.spec.members)


async def test_a_node_that_joins_during_the_first_pass_is_added_without_drift_repair():
    world, cloud = await slow_world()
    async with world.managed(drift_period=0.0):
        await world.add()
        await asyncio.sleep(5)
        await world.add_node("b")
        await asyncio.sleep(30)

        assert given_to(cloud) == ["a", "b"]
        assert [effect for _, effect in cloud.changed] == [Effect.CREATE, Effect.UPDATE]
        assert len(cloud.looks) == 2


async def test_a_node_that_leaves_again_during_a_pass_is_removed_without_drift_repair():
    """When the round comes, the members are those of the last pass, not of the current one."""
    world, cloud = await slow_world()
    for name in "bcdefg":
        await world.add_node(name)
    async with world.managed(drift_period=0.0):
        await world.add()
        await asyncio.sleep(30)
        await world.add_node("h")
        await asyncio.sleep(5)
        await world.remove_node("h")
        await asyncio.sleep(30)

        assert given_to(cloud) == list("abcdefg")


@pytest.mark.parametrize("joins", [0, 1, 5])
async def test_nodes_that_join_during_a_pass_cost_one_more_pass(joins: int):
    world, cloud = await slow_world()
    async with world.managed(drift_period=0.0):
        await world.add()
        await asyncio.sleep(0.5)
        before = world.sample("workqueue_adds_total", name="service")
        for number in range(joins):
            await asyncio.sleep(1.5)
            await world.add_node(f"late-{number}")
        await asyncio.sleep(60)

        assert len(given_to(cloud)) == 1 + joins
        assert world.sample("workqueue_adds_total", name="service") - before == bool(joins)


async def test_a_round_during_a_pass_that_already_has_the_members_queues_nothing():
    world, cloud = await slow_world()
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(5)
        await world.add_node("b")
        await world.add()
        await asyncio.sleep(60)

        assert given_to(cloud) == ["a", "b"]
        assert world.sample("workqueue_adds_total", name="service") == 1


async def test_a_failed_pass_is_not_retried_at_once_because_a_node_joined_during_it():
    world, cloud = await slow_world()
    cloud.takes = 3.0
    async with world.managed(drift_period=0.0):
        service = await world.add()
        cloud.answers[service["metadata"]["uid"]] = Rejected("no such network")
        await asyncio.sleep(0.5)
        await world.add_node("b")
        await asyncio.sleep(4)
        assert (await world.condition())[0] == "False"
        assert len(cloud.looks) == 1

        cloud.answers.clear()
        await asyncio.sleep(60)
        assert given_to(cloud) == ["a", "b"]


ALL = {"pileus.dev/members": "all"}


async def hybrid_world() -> tuple[World, PlainBalancers]:
    """Two nodes of this cloud and two of another."""
    world = World()
    cloud = world.plainly()
    for name in "ab":
        await world.add_node(name)
    for name in "xy":
        await world.add_node(name, spec={"providerID": f"elsewhere://{name}"})
    return world, cloud


async def test_a_service_can_have_the_nodes_of_all_clouds_as_members():
    world, cloud = await hybrid_world()
    await world.add_node("excluded", metadata={"labels": {EXCLUDED: ""}})
    await world.add(annotations=ALL)
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b", "x", "y"]

        await world.add_node("z", spec={"providerID": "elsewhere://z"})
        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b", "x", "y", "z"]

        await world.remove_node("x")
        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b", "y", "z"]


async def test_a_node_of_another_cloud_changes_only_services_with_members_of_all_clouds():
    world, cloud = await hybrid_world()
    own, every = await world.add("own"), await world.add("every", annotations=ALL)
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        cloud.changed.clear()
        looks = len(cloud.looks)
        await world.add_node("z", spec={"providerID": "elsewhere://z"})
        await asyncio.sleep(10)

        assert cloud.changed == [(every["metadata"]["uid"], Effect.UPDATE)]
        assert len(cloud.looks) == looks + 1
        specs = {owner.uid: seen.wanted for owner, seen in cloud.standing.items()}
        assert {one.name for one in specs[own["metadata"]["uid"]].members} == {"a", "b"}


async def test_services_with_equal_members_and_different_scopes_are_compared_separately():
    """While no other cloud has a node, both scopes have the same members."""
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add("own")
    every = await world.add("every", annotations=ALL)
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        await world.add_node("x", spec={"providerID": "elsewhere://x"})
        await asyncio.sleep(10)

        specs = {owner.uid: seen.wanted for owner, seen in cloud.standing.items()}
        assert {one.name for one in specs.pop(every["metadata"]["uid"]).members} == {"a", "x"}
        assert [one.name for spec in specs.values() for one in spec.members] == ["a"]


async def test_a_change_of_the_scope_of_members_is_a_host_update():
    world, cloud = await hybrid_world()
    await world.add_node("c")
    await world.add()
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b", "c"]
        world.events.told.clear()

        await world.change(metadata={"annotations": ALL})
        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b", "c", "x", "y"]
        assert {event.reason for event in world.events.told} == {"UpdatedLoadBalancer"}

        await world.change(metadata={"annotations": {"pileus.dev/members": None}})
        await asyncio.sleep(3)
        assert given_to(cloud) == ["a", "b", "c"]


async def test_many_members_of_other_clouds_are_removed_only_after_a_second_check():
    world, cloud = await hybrid_world()
    await world.add_node("z", spec={"providerID": "elsewhere://z"})
    await world.add(annotations=ALL)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"annotations": {"pileus.dev/members": "cloud"}})
        await asyncio.sleep(3)
        assert given_to(cloud) == ["a", "b", "x", "y", "z"]
        assert world.sample("pileus_services_held") == 1

        await asyncio.sleep(10)
        assert given_to(cloud) == ["a", "b"]


async def test_a_second_check_confirms_the_members_of_all_clouds():
    world, cloud = await hybrid_world()
    await world.add_node("z", spec={"providerID": "elsewhere://z"})
    await world.add(annotations=ALL)
    async with world.managed():
        await asyncio.sleep(10)
        for name in "abx":
            await world.remove_node(name)
        await asyncio.sleep(4)
        assert given_to(cloud) == ["a", "b", "x", "y", "z"]

        await asyncio.sleep(20)
        assert given_to(cloud) == ["y", "z"]


async def test_a_node_of_another_cloud_that_registers_again_keeps_its_place():
    world, cloud = await hybrid_world()
    await world.set_machine("x", "uuid-x")
    await world.add(annotations=ALL)
    async with world.managed(drift_period=0.0):
        await asyncio.sleep(10)
        await world.remove_node("x")
        await world.add_node("x", spec={"providerID": ""})
        await world.set_machine("x", "uuid-x")
        await asyncio.sleep(10)

        (seen,) = cloud.standing.values()
        ids = {str(member.name): member.provider_id for member in seen.wanted.members}
        assert ids["x"] == "elsewhere://x"


async def test_an_unknown_scope_of_members_changes_nothing_and_is_reported():
    world, cloud = await hybrid_world()
    await world.add(annotations={"pileus.dev/members": "al"})
    async with world.managed():
        await asyncio.sleep(10)

        status, reason, message = await world.condition()
        assert (status, reason) == ("False", "Misconfigured")
        assert "pileus.dev/members" in message
        assert '"all"' in message
        assert not cloud.standing


async def test_a_cloud_that_identifies_members_by_provider_id_refuses_nodes_of_other_clouds():
    world, cloud = await hybrid_world()
    world.abilities = Abilities(members_by_provider_id=True)
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"annotations": ALL})
        await asyncio.sleep(10)

        status, reason, message = await world.condition()
        assert (status, reason) == ("False", "Misconfigured")
        assert "load balancers of this cloud accept only its own machines as members" in message
        assert "kubectl annotate service -n default web pileus.dev/members-" in message
        assert given_to(cloud) == ["a", "b"]

        await world.change(metadata={"annotations": {"pileus.dev/members": None}})
        await asyncio.sleep(30)
        assert (await world.condition())[0] == "True"


async def test_a_provider_that_refuses_a_member_of_another_cloud_names_it_in_the_condition():
    world = World()
    await world.add_node("a")
    await world.add_node("x", spec={"providerID": "elsewhere://x"})
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"annotations": ALL})
        await asyncio.sleep(10)

        status, reason, message = await world.condition()
        assert (status, reason) == ("False", "Misconfigured")
        assert "node x with provider ID elsewhere://x is a machine of another cloud" in message
        assert world.members() == ["a"]


async def test_a_node_with_a_provider_id_is_a_member_once_it_is_accepted():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.add_node("b", spec={"taints": [UNINITIALIZED]})
        await asyncio.sleep(10)
        assert world.members() == ["a"]

        await world.change_node("b", spec={"taints": None})
        await asyncio.sleep(10)
        assert world.members() == ["a", "b"]

        await world.change_node("b", spec={"taints": [UNINITIALIZED]})
        await asyncio.sleep(10)
        assert world.members() == ["a"], "it was refused"


async def test_a_node_that_registers_again_with_its_provider_id_stays_a_member():
    world = World()
    for name in "ab":
        await world.add_node(name)
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.remove_node("b")
        await world.add_node("b", spec={"taints": [UNINITIALIZED]})
        await asyncio.sleep(10)

        assert world.members() == ["a", "b"]


async def test_members_are_kept_after_a_restart_until_a_node_that_registered_again_is_checked():
    world = World()
    for name in "ab":
        await world.add_node(name)
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    for name in "ab":
        await world.remove_node(name)
        await world.add_node(name, spec={"taints": [UNINITIALIZED]})
    async with world.managed():
        await asyncio.sleep(1000)
        assert world.members() == ["a", "b"]
        said = str(world.events.told[-1].message)
        assert 'a claims "local://a"' in said
        assert said.endswith("To see what is missing: kubectl describe node a")

        await initialize(world, "b")
        await asyncio.sleep(10)
        assert world.members() == ["b"]


async def test_nodes_of_another_cloud_of_the_manager_do_not_keep_members():
    other = node("x", provider_id="other://x")

    async def read() -> list[Node]:
        return [other]

    rules = MemberRules(whose=WHOSE, is_of_another=lambda _: True)
    membership = Membership(read, lambda _: None, rules)

    assert await membership.second_check(MemberScope.CLOUD) == frozenset()


async def initialize(world: World, name: str) -> None:
    status = {"status": {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{ord(name)}"}]}}
    await world.user.patch(NODES, name, MergePatch(status), subresource="status")
    await world.change_node(name, spec={"taints": None, "providerID": f"local://{name}"})


async def test_a_new_load_balancer_waits_a_moment_for_nodes_that_are_initialized():
    world = World()
    plain = world.plainly()
    world.abilities = Abilities(members_by_address=True)
    for name in "abc":
        await world.add_node(name, spec={"taints": [UNINITIALIZED], "providerID": None})
    await world.add()
    async with world.managed():
        for name in "abc":
            await asyncio.sleep(0.7)
            await initialize(world, name)
        await asyncio.sleep(10)

    assert [effect for _, effect in plain.changed] == [Effect.CREATE]
    (built,) = plain.standing.values()
    assert sorted(each.name for each in built.wanted.members) == ["a", "b", "c"]
    assert all(each.addresses for each in built.wanted.members)


async def test_a_new_load_balancer_does_not_wait_long_for_a_node_that_is_never_initialized():
    world = World()
    world.abilities = Abilities(members_by_address=True)
    await world.add_node("a", spec={"taints": [UNINITIALIZED], "providerID": None})
    await world.add()
    async with world.managed():
        await asyncio.sleep(4)
        assert world.balancers == {}
        await asyncio.sleep(4)

        assert list(world.balancers) == ["default-web"]
