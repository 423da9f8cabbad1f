"""The loop of simulations: time jumps, processes pause, and what never ends is told."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any

import pytest

from pileus.runtime.queue import WorkQueue
from pileus.telemetry.metrics import new_metrics
from pileus_lab.simulation.event_loop import PROCESS, Process, SimulationLoop, Standstill


@pytest.fixture
def loop() -> Generator[SimulationLoop]:
    made = SimulationLoop()
    yield made
    made.close()


async def _in(process: Process, *coroutines: Coroutine[Any, Any, None]) -> None:
    """Run them as tasks of one process."""
    context = copy_context()
    context.run(PROCESS.set, process)
    async with asyncio.TaskGroup() as group:
        for coroutine in coroutines:
            group.create_task(coroutine, context=context)


def test_an_hour_passes_at_once(loop: SimulationLoop):
    loop.run_until_complete(asyncio.sleep(3600))

    assert loop.time() == pytest.approx(3600)


def test_a_paused_process_takes_no_step_and_catches_up_when_it_is_resumed(loop: SimulationLoop):
    process, ticks = Process("p"), list[float]()

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            ticks.append(loop.time())

    loop.call_at(1.5, loop.pause, process)
    loop.call_at(10, loop.resume, process)
    loop.run_until_complete(_in(process, tick()))

    assert ticks == pytest.approx([1, 10, 11])


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_process_can_be_struck_between_any_two_of_its_steps(loop: SimulationLoop, number: int):
    process, steps = Process("p"), list[int]()
    process.strike_at_step(number, lambda: steps.append(-1))

    async def walk() -> None:
        for step in range(4):
            steps.append(step)
            await asyncio.sleep(0)

    loop.run_until_complete(_in(process, walk()))

    assert steps.index(-1) == number - 1
    assert [step for step in steps if step >= 0] == [0, 1, 2, 3]


def test_the_timers_of_a_machine_that_sleeps_stand_still(loop: SimulationLoop):
    asleep, done = Process("p"), list[str]()

    async def say(what: str) -> None:
        await asyncio.sleep(4)
        done.append(f"{what} at {loop.now():.0f}")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_in(asleep, say("asleep")))
            group.create_task(_in(Process("q"), say("awake")))

    loop.call_at(1, loop.suspend, asleep, 10)
    loop.run_until_complete(both())

    assert done == ["awake at 4", "asleep at 14"]


def test_the_monotonic_clock_of_a_machine_that_sleeps_stands_still(loop: SimulationLoop):
    asleep, seen = Process("p"), list[tuple[float, float]]()

    async def look() -> None:
        for _ in range(2):
            await asyncio.sleep(4)
            seen.append((round(loop.time(), 6), round(loop.now(), 6)))

    loop.call_at(1, loop.suspend, asleep, 10)
    loop.run_until_complete(_in(asleep, look()))

    assert seen == [(4, 14), (8, 18)]


@pytest.mark.parametrize(
    ("pause", "sleep", "ticks_at"),
    [
        ((1.5, 3.5), (2.5, 10), [1, 12.5, 13.5]),
        ((3.5, 5.5), (2.5, 10), [1, 2, 13]),
        ((1.5, 20.5), (2.5, 10), [1, 20.5, 21.5]),
    ],
    ids=["the pause ends first", "the pause is within the sleep", "the sleep ends first"],
)
def test_a_process_that_is_paused_on_a_machine_that_sleeps_waits_for_the_end_of_both(
    loop: SimulationLoop,
    pause: tuple[float, float],
    sleep: tuple[float, float],
    ticks_at: list[float],
):
    process, ticks = Process("p"), list[float]()

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            ticks.append(loop.now())

    loop.call_at(pause[0], loop.pause, process)
    loop.call_at(pause[1], loop.resume, process)
    loop.call_at(sleep[0], loop.suspend, process, sleep[1])
    loop.run_until_complete(_in(process, tick()))

    assert ticks == pytest.approx(ticks_at)


@pytest.mark.parametrize(("second", "wakes"), [(2, 11), (20, 25)])
def test_a_machine_that_is_suspended_twice_wakes_up_at_the_later_time(
    loop: SimulationLoop, second: float, wakes: float
):
    asleep, seen = Process("p"), list[tuple[float, float]]()

    async def look() -> None:
        for _ in range(2):
            await asyncio.sleep(4)
            seen.append((round(loop.time(), 6), round(loop.now(), 6)))

    loop.call_at(1, loop.suspend, asleep, 10)
    loop.call_at(5, loop.suspend, asleep, second)
    loop.run_until_complete(_in(asleep, look()))

    assert seen == [(4, wakes + 3), (8, wakes + 7)]


def test_a_process_that_was_ended_is_cleaned_up_although_its_machine_sleeps(loop: SimulationLoop):
    process = Process("p")

    async def work() -> None:
        await asyncio.sleep(100)

    async def end() -> float:
        task = asyncio.ensure_future(_in(process, work()))
        await asyncio.sleep(1)
        loop.suspend(process, 50)
        loop.release(process)
        task.cancel()
        await asyncio.wait([task])
        return loop.now()

    assert loop.run_until_complete(end()) == pytest.approx(1)


def test_others_go_on_while_one_is_paused(loop: SimulationLoop):
    paused = Process("p")
    loop.pause(paused)
    loop.call_at(5, loop.resume, paused)
    done = list[str]()

    async def say(what: str) -> None:
        await asyncio.sleep(1)
        done.append(f"{what} at {loop.time():.0f}")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_in(paused, say("paused")))
            group.create_task(_in(Process("q"), say("other")))

    loop.run_until_complete(both())

    assert done == ["other at 1", "paused at 6"]


def test_a_deadlock_ends_with_who_waits_and_where(loop: SimulationLoop):
    async def waits_in_vain() -> None:
        await asyncio.Event().wait()

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_in_vain(), name="forlorn")

    with pytest.raises(Standstill, match="no timer will wake one") as told:
        loop.run_until_complete(both())

    assert "forlorn" in str(told.value)
    assert "waits_in_vain" in str(told.value)


def test_a_loop_that_never_ends_is_told_instead_of_run(loop: SimulationLoop):
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Standstill, match="no end") as told:
        loop.run_until_complete(spins())

    assert "spins" in str(told.value)


def test_tasks_in_a_set_are_in_the_order_of_their_making(loop: SimulationLoop):
    async def made() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = {group.create_task(asyncio.sleep(1), name=f"{n}") for n in range(6)}
            return [task.get_name() for task in tasks]

    assert loop.run_until_complete(made()) == ["0", "1", "2", "3", "4", "5"]


def test_who_waits_is_told_by_place_and_without_paths_of_this_machine(loop: SimulationLoop):
    async def waits() -> None:
        await asyncio.sleep(5)

    async def many() -> list[str]:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(waits(), name=f"one-{number}")
            await asyncio.sleep(1)
            return loop.waiting()

    told = loop.run_until_complete(many())

    assert "one-0, one-1, one-2 and 2 more: waits > sleep" in told
    assert not any("/" in line for line in told)


def test_our_own_code_is_told_by_its_place_in_the_package(loop: SimulationLoop):
    async def takes() -> list[str]:
        async with asyncio.TaskGroup() as group:
            queue = WorkQueue[str]("keys", new_metrics())
            task = group.create_task(queue.take(), name="taker")
            await asyncio.sleep(1)
            task.cancel()
            return loop.waiting()

    told = loop.run_until_complete(takes())

    assert any(line.startswith("taker: runtime/queue.py:") for line in told), told


def test_what_stands_still_is_cleared_away_and_ends(loop: SimulationLoop):
    ended = list[str]()

    async def spins() -> None:
        try:
            while True:
                await asyncio.sleep(0)
        finally:
            ended.append("spins")

    with pytest.raises(Standstill):
        loop.run_until_complete(spins())
    loop.clear_away()

    assert ended == ["spins"]


def test_tasks_keep_the_names_that_they_are_given(loop: SimulationLoop):
    async def names() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(asyncio.sleep(0), name="kubelets"),
                group.create_task(asyncio.sleep(0)),
            ]
        return [task.get_name() for task in tasks]

    assert loop.run_until_complete(names()) == ["kubelets", "task-3"]
