import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.errors import Unavailable
from pileus.cloud.middleware.batching import Batches, batched, pack
from tests.unit.cloud.fakes import FakeInstances, cloud_of, instance, node


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
    unique=True,
)


@given(NODES, st.integers(1, 5))
def test_packing_loses_no_node_and_parts_two_versions_of_one(nodes, size):
    batches = list(pack(nodes, size))

    assert sorted(repr(n) for b in batches for n in b.values()) == sorted(map(repr, nodes))
    assert all(0 < len(batch) <= size for batch in batches)
