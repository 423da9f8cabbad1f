"""The finalizer: added before the first change, removed after the last."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from pileus.cloud import errors as cloud_errors
from pileus.cloud.balancer import BalancerState, Effect, Owner, Wish
from pileus.kube.errors import Conflict, Status
from pileus.kube.transport import Request
from tests.unit.controllers.service.plain import Change, PlainBalancers, Seen
from tests.unit.controllers.service.world import FINALIZER, World


async def furnished(world: World, nodes: str = "abcd") -> None:
    for name in nodes:
        await world.add_node(name)
    await world.add()


async def test_trap_6_the_finalizer_is_there_before_the_first_change_in_the_cloud():
    world = World()
    cloud = world.plainly()
    before: list[tuple[str, str, Any]] = []
    cloud.changing = lambda owner, change: before.extend(world.wire.writes)
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)

    ((method, path, body),) = before
    assert (method, path) == ("PATCH", "/api/v1/namespaces/default/services/web/status")
    assert body["metadata"]["finalizers"] == [FINALIZER]
    assert body["metadata"]["resourceVersion"]


async def test_trap_6_a_service_that_is_being_deleted_never_gets_a_finalizer():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add(finalizers=["example.com/keeps-it"])
    await world.delete()
    async with world.managed():
        await asyncio.sleep(600)

        service = await world.service()
        assert service["metadata"]["finalizers"] == ["example.com/keeps-it"]
        assert (cloud.changed, world.wire.writes) == ([], [])


async def test_trap_6_a_deletion_that_comes_in_between_keeps_the_finalizer_off():
    """The watch is behind: what we see of the Service is not yet on its way out."""
    world = World()
    cloud = world.plainly()
    cloud.takes = 5.0
    await world.add_node("a")
    async with world.managed():
        await world.add(finalizers=["example.com/keeps-it"])
        await asyncio.sleep(2)

        def refuse_news(request: Request) -> None:
            if request.method == "PATCH" and "finalizers" in str(request.body):
                tries.append(request.path)

        tries: list[str] = []
        world.wire.before = refuse_news
        await world.delete()
        await asyncio.sleep(60)

        service = await world.service()
        assert service["metadata"]["finalizers"] == ["example.com/keeps-it"]
        assert (cloud.changed, len(tries)) == ([], 1)


async def test_trap_6_foreign_finalizers_are_never_lost():
    world = World()
    await world.add_node("a")
    async with world.managed():
        await world.add(finalizers=["example.com/one"])
        await asyncio.sleep(10)
        service = await world.service()
        assert service["metadata"]["finalizers"] == ["example.com/one", FINALIZER]

        await world.delete()
        await asyncio.sleep(10)
        service = await world.service()
        assert service["metadata"]["finalizers"] == ["example.com/one"]
        assert world.balancers == {}
        assert await world.ingress() == []


async def test_one_empty_answer_does_not_release_a_service_whose_balancer_stands():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        hidden, cloud.standing = cloud.standing, {}
        await world.delete()
        await asyncio.sleep(20)
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.standing = hidden
        await asyncio.sleep(20)

        assert cloud.standing == {}
        assert await world.services() == {}


async def test_what_lists_lack_for_a_moment_after_the_deletion_is_still_deleted():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        standing = dict(cloud.standing)
        await world.delete()
        await asyncio.sleep(1)
        assert cloud.standing == {}, "the cloud accepted the deletion"
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.standing.update(standing)
        await asyncio.sleep(20)

        assert cloud.standing == {}
        assert await world.services() == {}


async def test_a_change_of_the_service_does_not_bring_the_check_after_its_deletion_forward():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        standing = dict(cloud.standing)
        await world.delete()
        await asyncio.sleep(1)
        await world.change(metadata={"annotations": {"a": "b"}})
        await asyncio.sleep(1)
        assert cloud.standing == {}, "the cloud accepted the deletion"
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.standing.update(standing)
        await asyncio.sleep(20)

        assert cloud.standing == {}
        assert await world.services() == {}


async def test_tidying_up_what_was_noted_is_no_proof_that_the_balancer_is_gone():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        hidden, cloud.standing = cloud.standing, {}
        cloud.untidy.update(hidden)
        await world.delete()
        await asyncio.sleep(20)
        assert not cloud.untidy
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.standing = hidden
        await asyncio.sleep(20)

        assert cloud.standing == {}
        assert await world.services() == {}


@dataclass
class InTwoParts(PlainBalancers):
    """A cloud with a part beside each load balancer: they are deleted one after the other."""

    beside: set[Owner] = field(default_factory=set[Owner])
    """Whose part is there."""
    beside_first: bool = True
    refuses: bool = False
    """Whether the part cannot be deleted now."""

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        changes = super().changes(wish, seen)
        if wish.spec is not None or seen.state is BalancerState.PENDING:
            return changes
        beside = (Change(Effect.DELETE, "part", None),) if seen.owner in self.beside else ()
        if not self.beside_first:
            return changes or beside
        return *beside, *changes

    async def apply(self, change: Change, seen: Seen) -> Seen:
        if change.summary != "part":
            return await super().apply(change, seen)
        if self.refuses:
            raise cloud_errors.Conflict("it is in use")
        self.beside.discard(seen.owner)
        return replace(seen, state=BalancerState.PENDING)


async def test_the_deletion_of_a_part_is_no_proof_that_the_balancer_is_gone():
    world = World()
    world.plain = cloud = InTwoParts()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        standing = cloud.standing
        cloud.beside.update(standing)
        await world.delete()
        await asyncio.sleep(0.5)
        assert not cloud.beside
        cloud.standing = {}
        await asyncio.sleep(20)
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.standing = standing
        await asyncio.sleep(20)

        assert cloud.standing == {}
        assert await world.services() == {}


async def test_two_checks_that_find_nothing_do_not_count_if_one_between_them_finds_a_part():
    world = World()
    world.plain = cloud = InTwoParts()
    cloud.beside_first, cloud.refuses = False, True
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        parts = set(cloud.standing)
        cloud.standing = {}
        await world.delete()
        await asyncio.sleep(5)  # the first check finds nothing
        cloud.beside.update(parts)
        await asyncio.sleep(27)  # the second one finds a part that cannot be deleted
        cloud.beside.clear()
        await asyncio.sleep(20)
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.beside.update(parts)
        cloud.refuses = False
        await asyncio.sleep(60)

        assert not cloud.beside
        assert await world.services() == {}


async def test_what_is_found_beside_a_deleted_balancer_is_not_forgotten_if_it_is_not_shown_again():
    world = World()
    world.plain = cloud = InTwoParts()
    cloud.beside_first, cloud.refuses = False, True
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        parts = set(cloud.standing)
        cloud.beside.update(parts)
        await world.delete()
        await asyncio.sleep(5)
        assert cloud.standing == {}
        cloud.beside.clear()
        await asyncio.sleep(10)
        assert FINALIZER in (await world.service())["metadata"]["finalizers"]

        cloud.beside.update(parts)
        cloud.refuses = False
        await asyncio.sleep(60)

        assert not cloud.beside
        assert await world.services() == {}


async def test_what_is_found_gone_twice_is_gone():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        cloud.standing.clear()
        await world.delete()
        await asyncio.sleep(40)

        assert await world.services() == {}


async def test_a_service_that_others_keep_changing_is_claimed_ever_more_seldom_and_says_so():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    tries = 0

    def contested(request: Request) -> None:
        nonlocal tries
        if request.method == "PATCH" and b"finalizers" in (request.body or b""):
            tries += 1
            raise Conflict("PATCH services", 409, Status())

    world.wire.before = contested
    async with world.managed():
        await asyncio.sleep(120)

        assert 5 < tries <= 30
        assert cloud.standing == {}
        assert (await world.condition())[:2] == ("False", "ServiceWriteFailed")
        world.wire.before = lambda request: None
        await asyncio.sleep(200)
        assert (await world.condition())[0] == "True"


class InParts(PlainBalancers):
    """Each balancer has a part that outlives it, and is listed apart."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: set[Owner] = set()
        self.overlooks = 0
        """How many lists of parts are empty from now on."""

    def _seen(self, wish: Wish) -> Seen | Any:
        seen = super()._seen(wish)
        if not isinstance(seen, Seen):
            return seen
        is_listed = self.overlooks == 0 and wish.owner in self.parts
        self.overlooks = max(0, self.overlooks - 1)
        return replace(seen, problem="part" if is_listed else "")

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        found = super().changes(wish, seen)
        if wish.spec is None and seen.problem:
            return (*found, Change(Effect.DELETE, "part", None))
        return found

    async def apply(self, change: Change, seen: Seen) -> Seen:
        if change.summary == "part":
            self.parts.discard(seen.owner)
            return replace(seen, problem="")
        after = await super().apply(change, seen)
        if change.spec is not None:
            self.parts.add(seen.owner)
        return replace(after, problem=seen.problem)


async def test_a_part_that_a_list_lacked_for_a_moment_is_deleted_before_the_finalizer_goes():
    world = World()
    world.plain = cloud = InParts()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        assert cloud.parts
        cloud.overlooks = 1
        cloud.looks.clear()
        await world.delete()
        await asyncio.sleep(10)

        assert "web" not in await world.services()
    assert (cloud.standing, cloud.parts) == ({}, set())
    assert cloud.looks == [(1, True)] * 3, "before the deletion, after it, after that of the part"
