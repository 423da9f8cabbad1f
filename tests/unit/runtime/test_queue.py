"""Keys wait once, are held once, and are never lost."""

import asyncio
import gc
import weakref
from collections import deque
from contextvars import ContextVar

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from pileus.runtime.queue import Priority, QueueClosed, WorkQueue
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import VirtualTimeLoop


def new_queue() -> tuple[WorkQueue[str], MetricRegistry]:
    registry = MetricRegistry()
    return WorkQueue("things", Metrics(registry)), registry


def value(registry: MetricRegistry, name: str) -> float | None:
    return registry.value(name, {"name": "things"})


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken: list[str] = []
    while len(queue):
        taken.append(await queue.take())
        queue.done(taken[-1])
    return taken


async def test_a_key_added_thrice_is_taken_once() -> None:
    queue, _ = new_queue()

    for key in "aba":
        queue.add(key)

    assert await take_all(queue) == ["a", "b"]


async def test_a_key_added_while_held_is_taken_again_only_after_done() -> None:
    queue, _ = new_queue()
    queue.add("a")
    key = await queue.take()

    queue.add("a")
    queue.add("a")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 10)
    queue.done(key)
    assert await take_all(queue) == ["a"]


async def test_a_key_is_held_from_take_to_done_and_not_while_it_waits() -> None:
    queue, _ = new_queue()
    queue.add("a")
    assert not queue.is_held("a")

    key = await queue.take()
    queue.add("a")
    assert queue.is_held("a")

    queue.done(key)
    assert not queue.is_held("a")


async def test_what_is_urgent_goes_before_what_is_refreshed() -> None:
    queue, _ = new_queue()

    queue.add("old", Priority.REFRESH)
    queue.add("older", Priority.REFRESH)
    queue.add("new")
    queue.add("older")

    assert await take_all(queue) == ["new", "older", "old"]


async def test_a_refresh_does_not_set_an_urgent_key_back() -> None:
    queue, _ = new_queue()

    queue.add("a")
    queue.add("b")
    queue.add("a", Priority.REFRESH)

    assert await take_all(queue) == ["a", "b"]


async def test_of_several_delays_the_earliest_counts() -> None:
    queue, _ = new_queue()
    loop = asyncio.get_running_loop()
    start = loop.time()

    queue.add_after("a", 30)
    queue.add_after("a", 5)
    queue.add_after("a", 60)

    queue.done(await queue.take())
    assert loop.time() - start == pytest.approx(5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 1000)


async def test_a_pass_for_another_reason_makes_the_planned_one_void_and_no_wish_of_others() -> None:
    queue, _ = new_queue()
    queue.next_pass("a", 5, retry=True)
    queue.add_after("a", 30)
    queue.add("a")
    assert await take_all(queue) == ["a"]

    await asyncio.sleep(20)
    assert len(queue) == 0
    await asyncio.sleep(20)
    assert await take_all(queue) == ["a"]


async def test_a_paused_key_is_taken_after_the_pause_whatever_adds_it() -> None:
    queue, _ = new_queue()
    loop = asyncio.get_running_loop()
    queue.add("a")
    held = await queue.take()
    queue.add("a")
    queue.pause("a", 10)
    queue.pause("a", 5)
    queue.done(held)
    queue.add_after("a", 1)
    queue.next_pass("a", 2)
    queue.add("b")

    await asyncio.sleep(9.9)
    assert await take_all(queue) == ["b"]
    queue.add("a")
    assert len(queue) == 0

    assert await queue.take() == "a"
    assert loop.time() == pytest.approx(10)
    queue.done("a")
    queue.add("a")
    assert await take_all(queue) == ["a"]


async def test_a_pause_adds_no_key() -> None:
    queue, _ = new_queue()
    queue.add("a")
    held = await queue.take()
    queue.pause("a", 10)
    queue.done(held)

    await asyncio.sleep(20)

    assert queue.known() == frozenset()


async def test_the_longest_of_several_pauses_counts() -> None:
    queue, _ = new_queue()
    queue.add("a")
    held = await queue.take()
    queue.pause("a", 5)
    queue.pause("a", 10)
    queue.add("a")
    queue.done(held)

    assert await queue.take() == "a"
    assert asyncio.get_running_loop().time() == pytest.approx(10)


async def test_a_queue_that_is_closed_during_a_pause_forgets_the_key() -> None:
    queue, _ = new_queue()
    queue.add("a")
    held = await queue.take()
    queue.pause("a", 5)
    queue.add("a")
    queue.done(held)

    queue.close()
    await asyncio.sleep(10)

    assert queue.known() == frozenset()


async def test_a_worker_cancelled_while_it_waits_loses_no_key() -> None:
    queue, _ = new_queue()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 1)

    queue.add("a")

    assert await asyncio.wait_for(queue.take(), 1) == "a"


async def test_a_closed_queue_gives_out_and_takes_in_nothing() -> None:
    queue, _ = new_queue()
    queue.add("a")
    queue.add_after("b", 1)

    queue.close()
    queue.add("c")
    queue.add_after("d", 1)

    with pytest.raises(QueueClosed):
        await queue.take()
    await asyncio.sleep(10)
    assert len(queue) == 0


async def test_closing_wakes_every_waiting_worker() -> None:
    queue, _ = new_queue()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(closed(queue)) for _ in range(3)]
        await asyncio.sleep(1)
        queue.close()
    assert all(task.result() for task in tasks)


async def closed(queue: WorkQueue[str]) -> bool:
    try:
        await queue.take()
    except QueueClosed:
        return True
    return False


async def test_draining_waits_for_the_keys_that_are_held() -> None:
    queue, _ = new_queue()
    loop = asyncio.get_running_loop()
    queue.add("a")
    queue.add("b")
    held = [await queue.take(), await queue.take()]
    queue.add("a")
    start = loop.time()

    for delay, key in enumerate(held, 1):
        loop.call_later(delay, queue.done, key)
    await queue.drain()

    assert loop.time() - start == pytest.approx(2)
    assert len(queue) == 0


async def test_a_key_counts_once_whether_it_waits_is_held_or_is_due_later() -> None:
    queue, registry = new_queue()
    queue.add("held")
    await queue.take()
    queue.add("held")
    queue.add("waiting")
    queue.add_after("waiting", 5)
    queue.add_after("later", 5)
    queue.next_pass("later", 7)

    assert value(registry, "pileus_workqueue_keys") == 3
    queue.close()
    queue.done("held")
    assert value(registry, "pileus_workqueue_keys") == 0


async def test_the_metrics_tell_depth_waits_and_work_in_hand() -> None:
    queue, registry = new_queue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert value(registry, "workqueue_depth") == 2
    assert value(registry, "workqueue_adds_total") == 2

    await asyncio.sleep(3)
    await queue.take()
    await queue.take()
    await asyncio.sleep(4)

    assert value(registry, "workqueue_depth") == 0
    assert value(registry, "workqueue_queue_duration_seconds_sum") == pytest.approx(6)
    assert value(registry, "workqueue_unfinished_work_seconds") == pytest.approx(8)
    assert value(registry, "workqueue_longest_running_processor_seconds") == pytest.approx(4)
    queue.done("a")
    assert value(registry, "workqueue_unfinished_work_seconds") == pytest.approx(4)
    assert value(registry, "workqueue_work_duration_seconds_sum") == pytest.approx(4)
    queue.next_pass("a", 1, retry=True)
    assert value(registry, "workqueue_retries_total") == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add_after", "next_pass", "take", "pause", "done"]),
        st.sampled_from("abc"),
        st.sampled_from(Priority),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_key_is_taken_after_its_latest_add_and_never_held_twice(
    steps: list[tuple[str, str, Priority]],
) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(walk(steps))


async def walk(steps: list[tuple[str, str, Priority]]) -> None:
    world = Walk()
    for step, key, priority in steps:
        await world.take_step(step, key, priority)
        assert len(world.queue) == len(world.owed - set(world.held) - world.paused)
    while world.held:
        world.queue.done(world.held.popleft())
    await asyncio.sleep(2)
    assert sorted(await take_all(world.queue)) == sorted(world.owed)


class Walk:
    """A queue, and what is known of its keys."""

    def __init__(self) -> None:
        self.queue, _ = new_queue()
        self.held: deque[str] = deque()
        self.owed: set[str] = set()
        self.paused: set[str] = set()

    async def take_step(self, step: str, key: str, priority: Priority) -> None:
        match step:
            case "add":
                self.queue.add(key, priority)
                self.owed.add(key)
            case "add_after" | "next_pass":
                add = self.queue.add_after if step == "add_after" else self.queue.next_pass
                add(key, 1, priority)
                await asyncio.sleep(2)
                self.owed.add(key)
                self.paused.clear()
            case "take" if len(self.queue):
                taken = await self.queue.take()
                assert taken not in self.held
                assert taken in self.owed - self.paused
                self.owed.discard(taken)
                self.held.append(taken)
            case "pause" if self.held:
                self.queue.pause(self.held[0], 1)
                self.paused.add(self.held[0])
            case "done" if self.held:
                self.queue.done(self.held.popleft())
            case _:
                pass


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_key_that_is_due_at_once_can_be_scheduled_again_on_every_event_loop(make_loop) -> None:
    """uvloop has no timer for what is due at once, and its handle does not know the time."""

    async def scheduled_twice() -> list[str]:
        queue, _ = new_queue()
        queue.add_after("a", 0.0)
        queue.add_after("a", 0.0)
        queue.next_pass("b", 0.0)
        queue.next_pass("b", 0.0)
        taken = [await queue.take(), await queue.take()]
        queue.add_after("c", 0.0)
        queue.close()
        return sorted(taken)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(scheduled_twice()) == ["a", "b"]


async def test_a_key_that_is_due_later_does_not_keep_the_pass_that_planned_it():
    """A timer keeps the context in which it is set, and the context the pass."""
    queue, _ = new_queue()
    current = ContextVar[set[str]]("current")

    class Pass(set[str]):
        """A set can be referred to weakly."""

    async def plan() -> weakref.ref[Pass]:
        of_pass = Pass()
        current.set(of_pass)
        queue.next_pass("a", 60)
        return weakref.ref(of_pass)

    of_pass = await asyncio.create_task(plan())
    await asyncio.sleep(0)
    gc.collect()

    assert of_pass() is None
    assert await queue.take() == "a"
