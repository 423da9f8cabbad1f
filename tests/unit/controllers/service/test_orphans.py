"""Load balancers with this cluster's tag and without a Service."""

import asyncio
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import BalancerSpec, Listener, Owner
from pileus.controllers.service.orphans import GRACE, Policy, SweepSettings, deletable
from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus.objects.preview import EVERYTHING, Planned, Scope, Trouble, title
from tests.unit.controllers.service.plain import PlainBalancers, Seen
from tests.unit.controllers.service.world import CLUSTER, World

SPEC = BalancerSpec(listeners=frozenset({Listener(port=80, node_port=30080)}), members=frozenset())
DELETE = SweepSettings(policy=Policy.DELETE, period=600)


def left_behind(cloud: PlainBalancers, *uids: str, cluster: str = CLUSTER) -> None:
    for uid in uids:
        cloud.standing[Owner(cluster, uid)] = Seen(Owner(cluster, uid), SPEC)


async def furnished(world: World, services: int = 10) -> PlainBalancers:
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(services):
        await world.add(f"s{number}")
    return cloud


async def test_orphans_are_reported_and_left_where_they_are():
    world = World()
    cloud = await furnished(world)
    left_behind(cloud, "gone-1", "gone-2")
    left_behind(cloud, "theirs", cluster="another")
    async with world.managed():
        await asyncio.sleep(4000)

        assert world.sample("pileus_orphaned_load_balancers") == 2
        assert len(cloud.standing) == 13
        messages = world.events.messages("OrphanedLoadBalancers")
        assert all("gone-1, gone-2" in message for message in messages)
        assert len(messages) in {1, 2}


async def test_orphans_are_deleted_if_told_to_a_few_at_a_time_and_nobody_elses():
    world = World()
    cloud = await furnished(world)
    left_behind(cloud, *(f"gone-{n}" for n in range(5)))
    left_behind(cloud, "theirs", cluster="another")
    async with world.managed(sweep=DELETE):
        await asyncio.sleep(GRACE - 5)
        assert len(cloud.standing) == 16
        await asyncio.sleep(30)
        assert len(cloud.standing) == 13
        await asyncio.sleep(600)

        assert {owner.uid for owner in cloud.standing if owner.cluster == "another"} == {"theirs"}
        assert len(cloud.standing) == 11
        assert world.sample("pileus_orphaned_load_balancers") == 0


async def test_so_many_orphans_that_it_looks_like_a_mistake_are_not_deleted():
    world = World()
    cloud = await furnished(world, services=2)
    left_behind(cloud, *(f"gone-{n}" for n in range(4)))
    async with world.managed(sweep=DELETE):
        await asyncio.sleep(2000)

        assert len(cloud.standing) == 6
        assert world.sample("pileus_orphan_deletion_paused") == 1
        (message,) = world.events.messages("OrphanDeletionPaused")
        assert message == (
            "4 of 4 load balancers have no Service, and at most 3 may be deleted "
            "automatically: none is deleted. List and delete them: pileus orphans"
        )


async def test_deletion_resumes_when_there_are_few_orphans_again():
    world = World()
    cloud = await furnished(world, services=2)
    left_behind(cloud, *(f"gone-{n}" for n in range(4)))
    async with world.managed(sweep=DELETE):
        await asyncio.sleep(200)
        del cloud.standing[Owner(CLUSTER, "gone-0")]
        await asyncio.sleep(1000)

        assert len(cloud.standing) == 2
        assert world.sample("pileus_orphan_deletion_paused") == 0


async def test_new_orphans_are_reported_though_others_were_before():
    world = World()
    cloud = await furnished(world)
    left_behind(cloud, "gone-1")
    async with world.managed(sweep=SweepSettings(period=60)):
        await asyncio.sleep(150)
        left_behind(cloud, "gone-2")
        await asyncio.sleep(150)

        messages = world.events.messages("OrphanedLoadBalancers")
        assert len(messages) == 2
        assert "gone-1, gone-2" in messages[-1]


async def test_orphans_are_not_looked_for_where_they_are_ignored():
    world = World()
    cloud = await furnished(world, services=0)
    left_behind(cloud, "gone-1")
    async with world.managed(sweep=SweepSettings(policy=Policy.IGNORE, period=60)):
        await asyncio.sleep(1000)

        assert world.events.messages("OrphanedLoadBalancers") == []
        assert len(cloud.standing) == 1


async def test_a_service_of_another_class_does_not_keep_orphans_from_being_deleted():
    """Its balancer counts as unwanted, is never deleted, and must not use up a round's share."""
    world = World()
    cloud = await furnished(world, services=2)
    theirs = (await world.add("theirs", loadBalancerClass="example.com/other"))["metadata"]["uid"]
    left_behind(cloud, theirs, "zz-gone")
    async with world.managed(sweep=DELETE):
        await asyncio.sleep(GRACE * 5)

        assert "zz-gone" not in {owner.uid for owner in cloud.standing}
        assert theirs in {owner.uid for owner in cloud.standing}


async def test_a_plan_names_what_each_round_of_the_sweeper_deletes():
    world = World()
    cloud = await furnished(world)
    left_behind(cloud, *(f"gone-{n}" for n in range(5)))
    async with world.managed():
        await asyncio.sleep(10)

    async with world.looked_at(sweep=DELETE) as controller:
        lines = await controller.preview(EVERYTHING)

    waits = {line.about.uid: line.waits_for for line in lines if isinstance(line, Planned)}
    assert title(lines[0].about) == "Service with UID gone-0 (deleted)"
    assert waits == {
        "gone-0": "a second check, at least 60 s after the first",
        "gone-1": "a second check, at least 60 s after the first",
        "gone-2": "a second check, at least 60 s after the first",
        "gone-3": "a further check, at least 120 s after the first",
        "gone-4": "a further check, at least 120 s after the first",
    }


async def test_a_plan_says_that_so_many_orphans_are_not_deleted():
    world = World()
    cloud = await furnished(world, services=2)
    left_behind(cloud, *(f"gone-{n}" for n in range(4)))
    async with world.managed():
        await asyncio.sleep(10)

    async with world.looked_at(sweep=DELETE) as controller:
        (line,) = await controller.preview(EVERYTHING)
        alone = await controller.preview(Scope("Service", "default", "s0"))

    assert isinstance(line, Trouble)
    assert (line.about.name, line.reason) == ("kube-system", "TooManyOrphans")
    assert line.message.startswith("4 of 6 load balancers")
    assert alone == []


async def test_what_a_fresh_list_shows_is_no_orphan():
    """The watch is deaf for a Service that is there all the same."""
    world = World()
    cloud = await furnished(world)
    async with world.managed(sweep=DELETE) as controller:
        await asyncio.sleep(10)
        deaf = controller._cluster.services()[1:]
        shown = {each.metadata.name for each in deaf}
        controller._cluster.services = lambda: deaf
        hidden = ({f"s{n}" for n in range(10)} | {"kubernetes"}) - shown
        for uid in dict(controller._notes.items()):
            is_seen = controller._cluster.service(uid) in deaf
            controller._notes.update(uid, known=is_seen)
        await asyncio.sleep(2000)

        assert len(hidden) == 1
        assert len(cloud.standing) == 10


async def test_without_a_list_of_all_services_nothing_is_deleted():
    world = World()
    cloud = await furnished(world)
    left_behind(cloud, "gone")
    async with world.managed(sweep=DELETE):
        await asyncio.sleep(10)
        world.wire.before = refuse_lists
        await asyncio.sleep(1000)
        assert len(cloud.standing) == 11

        world.wire.before = lambda request: None
        await asyncio.sleep(1000)
        assert len(cloud.standing) == 10


def refuse_lists(request: Request) -> None:
    if request.path == "/api/v1/services" and "watch" not in request.query:
        raise Unreachable(request.path, "in-process", "connection refused")


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=4), st.floats(0, 1000)),
    st.integers(0, 100),
    st.floats(0, 2000),
    st.sets(st.text("abc", min_size=1, max_size=4)),
)
def test_never_too_young_never_too_many_and_never_of_a_service_that_exists(
    orphans: Mapping[str, float], more: int, now: float, existing: set[str]
):
    owners = len(orphans) + more

    chosen = deletable(orphans, owners, now, existing)

    assert existing.isdisjoint(chosen)
    assert all(now - orphans[uid] >= GRACE for uid in chosen)
    assert len(chosen) <= max(1, owners / 5)
    if len(orphans) > max(3, owners / 2):
        assert chosen == ()


def test_the_balancer_of_a_service_that_exists_is_not_deleted_as_an_orphan():
    assert deletable({"a": 0.0, "b": 0.0}, 10, GRACE, {"a"}) == ("b",)
