"""Plays one seed and returns the verdict; finds a smaller schedule that fails in the same way."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from pileus.testing.virtual_time import LoopClock
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.event_loop import SimulationLoop, Standstill
from pileus_lab.simulation.judge import Violation
from pileus_lab.simulation.kinds import DeedKind, FaultKind
from pileus_lab.simulation.plan_check import hold_to_plans
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import Schedule
from pileus_lab.simulation.world import World

OFFSET = 0.5
"""Seconds between the end of the faults and the first check. Managers that resume at the end of
the faults start rounds at that moment, and most rounds are due at full seconds. Without the offset,
a check would be due at the same time and count keys that are due and cannot be taken yet."""
LOOK_EVERY = 10.0
AFTERGLOW = 60.0
"""Seconds for the last events and refreshes, before no more writes are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one schedule."""

    schedule: Schedule
    violation: Violation | None
    lines: tuple[str, ...]
    digest: str
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    virtual_seconds: float = 0.0


def play(schedule: Schedule, make_cloud: MakeCloud = SimulatedLocal) -> Outcome:
    """Plays a schedule to its end, or to the first violation."""
    loop = SimulationLoop()
    with _undisturbed(), closing(loop), _machines(schedule):
        world = World(schedule, make_cloud, loop, LoopClock(loop.now))
        with world.sayings.listening():
            _run(world, loop)
        return Outcome(
            schedule=schedule,
            violation=world.judge.violation,
            lines=tuple(world.trace.lines),
            digest=world.trace.digest(),
            struck=world.weather.struck,
            done=world.done,
            virtual_seconds=loop.now(),
        )


@contextmanager
def _machines(schedule: Schedule) -> Generator[None]:
    """Lets the node plugin run on simulated machines, if the schedule has them."""
    if not schedule.setup.has_hosts:
        yield
        return
    from pileus_lab.simulation.hosts.product import on_simulated_machines  # noqa: PLC0415

    with on_simulated_machines():
        yield


def _run(world: World, loop: SimulationLoop) -> None:
    try:
        loop.run_until_complete(_play(world))
    except Standstill as error:
        world.judge.blame("something_goes_on", str(error))
        world.abandon()
        loop.clear_away()


@contextmanager
def _undisturbed() -> Generator[None]:
    """Turns the garbage collector off: it would run finalizers at arbitrary moments."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


async def _play(world: World) -> None:
    async with world.running():
        if SCENARIOS[world.schedule.scenario].plans:
            await hold_to_plans(world)
            return
        await world.let_things_happen()
        world.end_faults()
        await _settle(world)
        if world.judge.violation is None:
            await _stay_quiet(world)


async def _settle(world: World) -> None:
    """Waits until everything matches the desired state, and still does at the next check."""
    was_well = False
    await asyncio.sleep(OFFSET)
    for _ in range(int(world.patience / LOOK_EVERY)):
        await asyncio.sleep(LOOK_EVERY)
        if world.judge.violation is not None:
            return
        is_well = world.judge.first_wrong() is None
        if is_well and was_well:
            return
        was_well = is_well
    _blame_what_is_wrong(world)


async def _stay_quiet(world: World) -> None:
    await asyncio.sleep(AFTERGLOW)
    before = world.judge.spent()
    await asyncio.sleep(world.quiet_seconds)
    world.judge.check_for_waste(world.judge.spent(world.quiet_seconds, before))
    _blame_what_is_wrong(world)


def _blame_what_is_wrong(world: World) -> None:
    wrong = world.judge.first_wrong()
    if wrong is not None:
        world.notify_waiting()
        world.judge.blame(*wrong)


TRIES = 300
"""Maximum number of schedules to try."""


def shrink(
    schedule: Schedule,
    told: Callable[[str], None] = lambda _: None,
    *,
    make_cloud: MakeCloud = SimulatedLocal,
) -> Outcome:
    """Returns the outcome of a schedule from which no item can be removed.

    It breaks the same invariant as the whole; an outcome without violation is returned as it is.
    """
    smallest = play(schedule, make_cloud)
    if smallest.violation is None:
        return smallest
    size, tries = max(1, len(schedule.items) // 2), 0
    while tries < TRIES:
        tries += 1
        found = _smaller(smallest, size, make_cloud)
        if found is not None:
            smallest = found
            told(f"{len(smallest.schedule.items)} items still fail")
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return smallest


def _smaller(failing: Outcome, size: int, make_cloud: MakeCloud) -> Outcome | None:
    """Returns the first that still fails in the same way without `size` neighbouring items."""
    numbers = [item.number for item in failing.schedule.items]
    for start in range(0, len(numbers), size):
        outcome = play(failing.schedule.only(_without(numbers, start, size)), make_cloud)
        if _invariant(outcome) == _invariant(failing):
            return outcome
    return None


def _invariant(outcome: Outcome) -> str:
    return outcome.violation.invariant if outcome.violation else ""


def _without(numbers: Sequence[int], start: int, size: int) -> list[int]:
    return [*numbers[:start], *numbers[start + size :]]
