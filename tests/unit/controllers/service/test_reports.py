"""When a failure is reported on a Service, in which words, and what a failed host update does."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from pileus.classic.errors import Postponed, RetryError, translated
from pileus.cloud import errors
from pileus.cloud.balancer import Effect, Owner, Part, Wish
from pileus.cloud.errors import CloudError
from tests.unit.controllers.service.plain import Change, PlainBalancers, Seen
from tests.unit.controllers.service.world import World

GO = "Error syncing load balancer: failed to ensure load balancer: "


def kinds(kind: type[CloudError] = CloudError) -> Iterator[type[CloudError]]:
    """All errors of the contract."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from kinds(each)


def made(kind: type[CloudError]) -> CloudError:
    return errors.Throttled("why", retry_after=60) if kind is errors.Throttled else kind("why")


NEEDS_SOMEONE = {
    errors.Rejected,
    errors.QuotaExceeded,
    errors.Unauthorized,
    errors.Misconfigured,
    errors.Unsupported,
}


async def failing(error: Exception) -> tuple[World, PlainBalancers]:
    world = World()
    cloud = world.plainly()

    def fail(owner: Owner, change: Change) -> None:
        raise error

    cloud.changing = fail
    await world.add_node("a")
    await world.add()
    return world, cloud


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
async def test_what_someone_has_to_fix_is_reported_at_once_and_nothing_else(
    kind: type[CloudError],
):
    world, _ = await failing(made(kind))
    async with world.managed():
        await asyncio.sleep(2)

        told = world.events.messages("SyncLoadBalancerFailed")
        assert bool(told) is (kind in NEEDS_SOMEONE)
        assert set(told) <= {f"{GO}why"}
        assert ((await world.condition())[1] != "") is bool(told)


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        pytest.param(RuntimeError("no such network"), "no such network", id="its words"),
        pytest.param(OSError(), "OSError", id="no words"),
        pytest.param(KeyError("region"), "KeyError: 'region'", id="a bug"),
    ],
)
async def test_an_exception_of_a_ported_provider_is_reported_at_once_in_its_own_words(
    raised: Exception, text: str
):
    world, _ = await failing(translated(raised))
    async with world.managed():
        await asyncio.sleep(2)

        (told,) = world.events.messages("SyncLoadBalancerFailed")
        assert told == f"{GO}{text}"


async def test_a_ported_provider_that_only_polls_is_not_reported_at_once():
    world, _ = await failing(translated(RetryError("still provisioning", 3)))
    async with world.managed():
        await asyncio.sleep(8)
        assert world.events.messages("SyncLoadBalancerFailed") == []
        await asyncio.sleep(8)

        (told,) = world.events.messages("SyncLoadBalancerFailed")
        assert told.startswith(f"{GO}still provisioning")


async def test_after_a_failed_host_update_everything_is_ensured_at_once():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    tried: list[float] = []

    def fail_thrice(owner: Owner, change: Change) -> None:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) <= 3:
            raise errors.Rejected("no more members")

    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = fail_thrice
        await world.add_node("b")
        await asyncio.sleep(60)

        at_once, first, second = (later - sooner for sooner, later in pairwise(tried))
        assert at_once < 1
        assert 5 <= first < 6, "then with back-off"
        assert 10 <= second < 12
        assert len(world.events.messages("UpdateLoadBalancerFailed")) == 1
        (told,) = world.events.messages("SyncLoadBalancerFailed")
        assert told.startswith(f"{GO}no more members")
        assert world.sample("service_controller_nodesync_error_total") == 1
        assert (await world.condition())[0] == "True"


async def test_a_failed_host_update_that_asks_for_a_delay_gets_it():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    tried: list[float] = []

    def postpone_once(owner: Owner, change: Change) -> None:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) == 1:
            raise Postponed("busy", retry_after=20)

    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = postpone_once
        await world.add_node("b")
        await asyncio.sleep(60)

        (gap,) = (later - sooner for sooner, later in pairwise(tried))
        assert 20 <= gap < 23


async def test_members_follow_the_nodes_although_another_change_keeps_failing():
    world = World()
    cloud = world.plainly()
    for name in "abc":
        await world.add_node(name)
    await world.add()

    def refuse_ports(owner: Owner, change: Change) -> None:
        if change.part is Part.WHOLE:
            raise errors.QuotaExceeded("no more listeners")

    def in_parts(wish: Wish, seen: Seen) -> tuple[Change, ...]:
        """Change the listeners first, then the members."""
        whole = PlainBalancers.changes(cloud, wish, seen)
        if not whole or whole[0].part is Part.MEMBERS or wish.spec is None or seen.spec is None:
            return whole
        ports = replace(wish.spec, members=seen.spec.members)
        members = replace(seen.spec, members=wish.spec.members)
        changes = (
            Change(Effect.UPDATE, "listeners", ports),
            Change(Effect.UPDATE, "members", members, Part.MEMBERS),
        )
        return tuple(change for change in changes if change.spec != seen.spec)

    cloud.changes = in_parts
    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = refuse_ports
        await world.change(spec={"ports": [{"port": 81}]})
        await asyncio.sleep(300)
        world.events.told.clear()
        await world.remove_node("a")
        await asyncio.sleep(3)

        (standing,) = cloud.standing.values()
        assert {each.name for each in standing.wanted.members} == {"b", "c"}
        assert world.events.reasons("web") == ["UpdatedLoadBalancer"]
        cloud.changing = lambda owner, change: None
        await asyncio.sleep(310)
        assert (await world.condition())[0] == "True"
