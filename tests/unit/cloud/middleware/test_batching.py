import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.abilities import Batches
from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import CloudError, Misconfigured, Unauthorized, Unavailable
from pileus.cloud.middleware.batching import batched, pack
from tests.unit.cloud.fakes import Change, FakeBalancers, FakeInstances, cloud_of, instance, node


async def ask(cloud: Any, *names: str, fresh: bool = False):
    return await cloud.instances.find([node(name) for name in names], fresh=fresh)


async def all_of(*coroutines):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]


async def test_a_thousand_callers_become_two_calls_and_each_gets_its_own_answer():
    instances = FakeInstances(latency=1)

    async with batched(cloud_of(instances), Batches(size=500)) as cloud:
        answers = await all_of(*(ask(cloud, f"n{i}") for i in range(1000)))

    assert len(instances.asked) == 2
    assert answers == [{f"n{i}": instance(f"n{i}")} for i in range(1000)]


async def test_who_comes_while_calls_are_under_way_gathers_for_the_next():
    instances = FakeInstances(latency=10)

    async def late(cloud: Any, i: int):
        await asyncio.sleep(i / 100)
        return await ask(cloud, f"n{i}")

    async with batched(cloud_of(instances), Batches(at_once=1)) as cloud:
        await all_of(*(late(cloud, i) for i in range(500)))

    assert len(instances.asked) == 2


async def test_fresh_and_cached_look_ups_never_share_a_call():
    instances = FakeInstances()

    async with batched(cloud_of(instances), Batches()) as cloud:
        await all_of(ask(cloud, "a", fresh=True), ask(cloud, "a"), ask(cloud, "b", fresh=True))

    assert sorted(instances.asked) == [(("a",), False), (("a", "b"), True)]


async def test_one_node_asked_for_by_many_is_looked_up_once():
    instances = FakeInstances()

    async with batched(cloud_of(instances), Batches()) as cloud:
        answers = await all_of(*(ask(cloud, "a") for _ in range(5)))

    assert instances.asked == [(("a",), False)]
    assert answers == [{"a": instance("a")}] * 5


async def test_a_node_left_out_of_the_answer_is_left_out_for_its_caller_only():
    instances = FakeInstances(lambda nodes: {"a": instance("a")})

    async with batched(cloud_of(instances), Batches()) as cloud:
        assert await all_of(ask(cloud, "a", "b"), ask(cloud, "b")) == [{"a": instance("a")}, {}]


async def test_an_error_reaches_those_of_its_batch_and_no_other():
    def answer(nodes):
        if "bad" in {n.name for n in nodes}:
            raise Unavailable("down")
        return {n.name: instance(n.name) for n in nodes}

    instances = FakeInstances(answer)
    async with batched(cloud_of(instances), Batches(size=2)) as cloud, asyncio.TaskGroup() as group:
        good = group.create_task(ask(cloud, "a", "b"))
        failing = [group.create_task(_error_of(ask(cloud, "bad"))) for _ in range(3)]

    assert set(good.result()) == {"a", "b"}
    assert [str(task.result()) for task in failing] == ["down"] * 3


async def _error_of(coroutine) -> Exception | None:
    try:
        await coroutine
    except Exception as error:
        return error
    return None


class OneIsOdd(FakeInstances):
    """Raises for all because of one, which no provider should."""

    error: Exception = Misconfigured("n7 is odd")

    async def find(self, nodes, *, fresh):
        found = await super().find(nodes, fresh=fresh)
        if any(one.name == "n7" for one in nodes):
            raise self.error
        return found


async def attempt(cloud: Any, name: str) -> object:
    try:
        return await ask(cloud, name)
    except CloudError as error:
        return error


async def test_a_question_that_spoils_the_call_is_found_and_harms_no_other():
    instances = OneIsOdd()

    async with batched(cloud_of(instances), Batches()) as cloud:
        answers = await all_of(*(attempt(cloud, f"n{i}") for i in range(64)))

    assert answers.pop(7) is instances.error
    assert all(isinstance(answer, dict) for answer in answers)
    assert len(instances.asked) <= 1 + 2 * 6


@pytest.mark.parametrize("error", [Unavailable("away"), Unauthorized("not you")])
async def test_a_call_that_fails_for_everyone_is_not_repeated_for_each(error: CloudError):
    instances = OneIsOdd()
    instances.error = error

    async with batched(cloud_of(instances), Batches()) as cloud:
        answers = await all_of(*(attempt(cloud, f"n{i}") for i in range(64)))

    assert answers == [error] * 64
    assert len(instances.asked) == 1


async def test_a_caller_with_more_nodes_than_a_call_takes_gets_them_all():
    instances = FakeInstances()

    async with batched(cloud_of(instances), Batches(size=3)) as cloud:
        answer = await ask(cloud, *"abcdefgh")

    assert set(answer) == set("abcdefgh")
    assert [len(names) for names, _ in instances.asked] == [3, 3, 2]


async def test_cancelling_one_caller_cancels_no_other():
    instances = FakeInstances(latency=5)

    async with batched(cloud_of(instances), Batches()) as cloud, asyncio.TaskGroup() as group:
        hasty = group.create_task(ask(cloud, "a"))
        patient = group.create_task(ask(cloud, "b"))
        await asyncio.sleep(1)
        hasty.cancel()

    assert hasty.cancelled()
    assert patient.result() == {"b": instance("b")}


async def test_who_is_cancelled_while_gathering_is_not_looked_up():
    instances = FakeInstances()

    async with batched(cloud_of(instances), Batches(window=1)) as cloud:
        async with asyncio.TaskGroup() as group:
            hasty = group.create_task(ask(cloud, "a"))
            await asyncio.sleep(0.5)
            hasty.cancel()
        await asyncio.sleep(2)

    assert instances.asked == []


@pytest.mark.parametrize("moment", [0.01, 5], ids=["gathering", "under way"])
async def test_who_waits_at_the_end_is_told_and_nothing_stays_behind(moment):
    cloud_at_work = batched(cloud_of(FakeInstances(latency=1000)), Batches())
    async with asyncio.TaskGroup() as group, cloud_at_work as cloud:
        waiting = group.create_task(_error_of(ask(cloud, "a")))
        await asyncio.sleep(moment)

    assert "stopping" in str(waiting.result())
    assert "stopping" in str(await _error_of(ask(cloud, "b")))
    assert asyncio.get_running_loop().time() < 100


async def test_an_error_of_the_block_comes_out_as_it_is():
    with pytest.raises(KeyError):
        async with batched(cloud_of(FakeInstances()), Batches()):
            raise KeyError("ours")


async def test_asking_for_nothing_costs_nothing():
    instances = FakeInstances()

    async with batched(cloud_of(instances), Batches()) as cloud:
        assert await ask(cloud) == {}

    assert instances.asked == []


NODES = st.lists(
    st.builds(node, st.sampled_from("abcdef"), provider_id=st.sampled_from(["", "x", "y"])),
    max_size=12,
)


@given(NODES, st.integers(1, 5))
def test_packing_loses_no_node_asks_none_twice_and_parts_two_versions_of_one(nodes, size):
    batches = list(pack([(n.name, n) for n in nodes], size))

    packed = [repr(n) for batch in batches for n in batch.values()]
    assert sorted(packed) == sorted(set(map(repr, nodes)))
    assert all(0 < len(batch) <= size for batch in batches)
    assert all(name == n.name for batch in batches for name, n in batch.items())


@dataclass(frozen=True)
class Told:
    """What was seen for a wish, so that a mix-up shows."""

    wish: Wish
    balancer: None = None


def telling(wishes: Sequence[Wish]) -> Mapping[Owner, object]:
    return {wish.owner: Told(wish) for wish in wishes}


@dataclass
class Watched(FakeBalancers):
    tell: Callable[[Sequence[Wish]], Mapping[Owner, Any]] = telling
    latency: float = 0.0
    looks: list[tuple[int, bool]] = field(default_factory=list)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Any]:
        self.looks.append((len(wishes), deep))
        await asyncio.sleep(self.latency)
        return self.tell(wishes)


def wish(uid: str, name: str = "") -> Wish:
    return Wish(owner=Owner("blue", uid), spec=None, name=name)


async def look(cloud: Any, *wishes: Wish, deep: bool = False):
    return await cloud.balancers.observe(wishes, deep=deep)


async def test_a_thousand_looks_become_two_calls_and_each_gets_its_own_answer():
    balancers = Watched(latency=1)
    wishes = [wish(f"u{i}") for i in range(1000)]

    async with batched(cloud_of(balancers=balancers), Batches(size=500)) as cloud:
        answers = await all_of(*(look(cloud, one) for one in wishes))

    assert balancers.looks == [(500, False), (500, False)]
    assert answers == [{one.owner: Told(one)} for one in wishes]


async def test_shallow_and_deep_looks_never_share_a_call():
    balancers = Watched()

    async with batched(cloud_of(balancers=balancers), Batches()) as cloud:
        await all_of(look(cloud, wish("a"), deep=True), look(cloud, wish("a"), wish("b")))

    assert balancers.looks == [(2, False), (1, True)]


async def test_different_wishes_of_one_owner_never_share_a_call():
    balancers = Watched()
    old, new = wish("a", "old"), wish("a", "new")

    async with batched(cloud_of(balancers=balancers), Batches()) as cloud:
        answers = await all_of(look(cloud, old), look(cloud, new), look(cloud, replace(old)))

    assert balancers.looks == [(1, False), (1, False)]
    assert [told[old.owner].wish.name for told in answers] == ["old", "new", "old"]


async def test_an_owner_left_out_of_an_answer_is_left_out_for_its_caller_only():
    known, unknown = wish("a"), wish("b")
    balancers = Watched(lambda: (), tell=lambda _: {known.owner: Told(known)})

    async with batched(cloud_of(balancers=balancers), Batches()) as cloud:
        answers = await all_of(look(cloud, known), look(cloud, unknown))

    assert answers == [{known.owner: Told(known)}, {}]


async def test_an_error_of_a_look_reaches_those_who_took_part_and_no_other():
    def tell(wishes: Sequence[Wish]) -> Mapping[Owner, object]:
        if any(one.owner.uid == "bad" for one in wishes):
            raise Unavailable("down")
        return telling(wishes)

    async with batched(cloud_of(balancers=Watched(tell=tell)), Batches(size=1)) as cloud:
        good, bad = await all_of(
            _error_of(look(cloud, wish("a"))), _error_of(look(cloud, wish("bad")))
        )

    assert (good, str(bad)) == (None, "down")


async def test_cancelling_one_look_cancels_no_other():
    balancers = Watched(latency=5)

    async with (
        batched(cloud_of(balancers=balancers), Batches()) as cloud,
        asyncio.TaskGroup() as group,
    ):
        hasty = group.create_task(look(cloud, wish("a")))
        patient = group.create_task(look(cloud, wish("b")))
        await asyncio.sleep(1)
        hasty.cancel()

    assert hasty.cancelled()
    assert patient.result() == {wish("b").owner: Told(wish("b"))}


async def test_look_ups_of_nodes_and_of_balancers_do_not_wait_for_one_another():
    instances, balancers = FakeInstances(latency=1000), Watched()

    async with (
        batched(cloud_of(instances, balancers), Batches(at_once=1)) as cloud,
        asyncio.TaskGroup() as group,
    ):
        slow = group.create_task(ask(cloud, "a"))
        await asyncio.sleep(1)
        await look(cloud, wish("a"))
        assert not slow.done()

    assert balancers.looks == [(1, False)]


async def test_what_is_no_look_up_passes():
    balancers = FakeBalancers(lambda: (Change(),))

    async with batched(cloud_of(balancers=balancers), Batches()) as cloud:
        assert cloud.balancers
        assert cloud.balancers.changes(wish("a"), Told(wish("a"))) == (Change(),)
        assert cloud.balancers.lock_key(wish("a")) == (Change(),)
        assert await cloud.balancers.owners("blue") == (Change(),)
        assert await cloud.balancers.apply(Change(), Told(wish("a"))) == (Change(),)
    assert balancers.applied == [Change()]
