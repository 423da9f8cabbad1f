"""The law of the plan: a manager does what `pileus plan` announced just before, and nothing else.

    things happen ──▶ managers are down ──▶ all is mended ──▶ plan ──▶ a manager runs for an hour
                                                               ▲              │
                                                               └─ plan again ─┘ after each change

- If the first plan is empty, an hour passes without a write to cluster or cloud.
- Every write was in a plan made before it, from all that had happened until then: whenever
  something changes, managers stand still until the next plan is made.
- What the first and the last plan announce, and nothing has to happen first, was tried.

Excepted are leases and events, which are no part of a plan, and what becomes of a change that a
plan announced: the condition that reports how far the cloud has come with it, and the addresses of
a balancer that is changed in place.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from pileus.app.plan import Plan, Planner, looking
from pileus.cloud.balancer import Effect
from pileus.cloud.interface import Cloud
from pileus.controllers.route.plan import CONDITION as ROUTED
from pileus.controllers.service.annotations import ENSURED
from pileus.controllers.service.preview import BUSY, BY_CLOUD, LONG
from pileus.controllers.service.status import CONDITION as READY
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope
from pileus_lab.simulation.chance import stream
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.stage.steps import Answer, Call, Channel, CloudStep, ObjectStep, Step
from pileus_lab.simulation.world import World
from pileus_lab.simulation.written import Write, differences, promised, recorded

HOUR = 3600.0
REST = 400.0
"""Seconds between the last thing that happens and the plan: no machine boots, no balancer is
pending and no kubelet is about to be declared dead any more."""
SETTLED = 900.0
"""Seconds after which managers that were never stopped have done all that there was to do."""
WORD = 0.05
"""Seconds in which what has changed is known to whoever watches."""
STOPS = (0.0, 0.4, 0.6, 0.7, 0.8, 0.9, None)
"""When managers are stopped, as a part of the time in which things happen; None: afterwards."""

EMPTY = "an_empty_plan_means_no_write"
PLANNED = "every_write_was_planned"
TRIED = "what_is_planned_is_tried"
READS = "a_plan_writes_nothing"
LAWS = (EMPTY, PLANNED, TRIED, READS)

OUTCOMES = {
    "Service": (f"status.conditions[{READY}]", f"metadata.annotations[{ENSURED}]"),
    "Node": (f"status.conditions[{ROUTED}]",),
}
"""The fields that report what became of a change in the cloud."""
ADDRESSES = "status.loadBalancer.ingress"
RANGES = "spec.podCIDRs"
"""A manager goes on from the range that it assigned last, which no plan knows: only the first plan
names the ranges, later ones say that there will be some."""
ANY = "*"


async def hold_to_plans(world: World) -> None:
    """Plays the world of a schedule; what breaks the law is blamed."""
    await _prepare(world)
    keeper = Keeper(world)
    world.judge.observers.append(keeper.see)
    for manager in world.managers:
        manager.watch_cloud = keeper.watched
    async with keeper.planning():
        for manager in world.managers:
            manager.bring_up()
        await _an_hour(world)
        await keeper.finish()


async def _prepare(world: World) -> None:
    """Lets things happen, with managers only at first, until nothing more happens by itself."""
    stop = stream(world.schedule.seed, "plan").choice(STOPS)
    async with asyncio.TaskGroup() as group:
        if stop is not None:
            group.create_task(_stop_at(world, stop * world.schedule.seconds))
        await world.let_things_happen()
    world.mend(tidies=False)
    if stop is None:
        await asyncio.sleep(SETTLED)
    _stop(world)
    await asyncio.sleep(REST)


async def _stop_at(world: World, moment: float) -> None:
    await asyncio.sleep(moment)
    _stop(world)


def _stop(world: World) -> None:
    for manager in world.managers:
        manager.keep_down()


async def _an_hour(world: World) -> None:
    for _ in range(60):
        await asyncio.sleep(HOUR / 60)
        if world.judge.violation is not None:
            return


class Keeper:
    """Makes plans whenever something has changed, and compares what managers do with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = asyncio.Event()
        self._ask: Callable[[Scope], Awaitable[Plan]] = _nobody
        self._first = Plan()
        self._promises: set[Write] = set()
        self._at_first: set[Write] = set()
        self._tried: set[Write] = set()
        self._is_busy = False

    @asynccontextmanager
    async def planning(self) -> AsyncGenerator[None]:
        """Plans for as long as the block lasts; the first plan is made before it."""
        replica = self._world.planner(self._hear)
        config, life = self._world.schedule.setup.config, replica.next_life()
        async with looking(config, replica.surroundings(life)) as context:
            self._ask = Planner(context).plan
            self._first = await self._plan()
            changes = [change for _, change in self._first.changes]
            self._at_first = {replace(one, value="") for it in changes for one in promised(it)}
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                yield
                following.cancel()

    def watched(self, cloud: Cloud) -> Cloud:
        return recorded(cloud, self._write)

    def see(self, step: Step) -> None:
        """Is told of every step of the world."""
        if isinstance(step, ObjectStep | CloudStep):
            if isinstance(step, ObjectStep) and is_manager(step.who):
                for write in differences(step):
                    self._write(write)
            self._hold()
        elif isinstance(step, Call) and step.is_work:
            self._sent(step)
        elif isinstance(step, Call) and step.channel is Channel.CLOUD_READ and self._is_busy:
            self._hold()  # a balancer that is no longer pending may show what is left to change

    async def finish(self) -> None:
        """What was planned at first, and still is, was tried."""
        last = {*_immediate(await self._plan())}
        for write in sorted(last & {*_immediate(self._first)} - self._tried):
            self._blame(TRIED, f"{write} is planned for an hour, and was never tried")

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            while self._changed.is_set():
                self._changed.clear()
                await asyncio.sleep(WORD)
            await self._plan()
            if not self._changed.is_set():
                self._resume()

    async def _plan(self) -> Plan:
        made = await self._ask(EVERYTHING)
        self._is_busy = any(change.waits_for in {BUSY, LONG} for _, change in made.changes)
        for controller, why in made.failures.items():
            self._blame(PLANNED, f"{controller} has no plan: {why}")
        for _, change in made.changes:
            for write in promised(change):
                self._promises |= {write, replace(write, value=ANY)}
            if change.place is Place.CLOUD:
                self._promise_outcome(change)
        return made

    def _promise_outcome(self, change: Planned) -> None:
        for write in promised(change):
            kind, _, _ = write.about.partition(" ")
            for path in OUTCOMES[kind]:
                self._promises.add(Write(write.about, Place.CLUSTER, path, BY_CLOUD))
            if change.effect is Effect.UPDATE:
                self._promises.add(Write(write.about, Place.CLUSTER, ADDRESSES, BY_CLOUD))

    def _hold(self) -> None:
        self._changed.set()
        for manager in self._world.managers:
            if manager.life is not None:
                self._world.loop.pause(manager.life.process)

    def _resume(self) -> None:
        for manager in self._world.managers:
            if manager.life is not None:
                self._world.loop.resume(manager.life.process)

    def _sent(self, call: Call) -> None:
        if not any(True for _ in self._first.changes):
            self._blame(EMPTY, f"{call.what}, though the plan was empty")
        elif call.channel is Channel.WRITE and not _is_known(call.what):
            self._blame(PLANNED, f"{call.what}: no plan names such objects")

    def _write(self, write: Write) -> None:
        self._tried.add(write)
        if write.what == Effect.DELETE:
            self._at_first.discard(replace(write, what=RANGES))  # its successor is another node
        unknown = replace(write, value=BY_CLOUD)
        if write.what == RANGES and replace(write, value="") not in self._at_first:
            unknown = replace(write, value=ANY)
        if self._promises.isdisjoint({write, unknown}):
            self._blame(PLANNED, f"{write}; planned: {self._nearest(write)}")

    def _nearest(self, write: Write) -> str:
        same = sorted(str(one) for one in self._promises if one.about == write.about)
        return "; ".join(same) or "nothing for this object"

    def _hear(self, step: Call | Answer) -> None:
        if isinstance(step, Call) and (step.is_work or step.channel is Channel.EVENT):
            self._blame(READS, f"the planner sent {step.what}")

    def _blame(self, law: str, why: str) -> None:
        self._world.judge.blame(law, why)


async def _nobody(_: Scope) -> Plan:
    return Plan()


def _immediate(plan: Plan) -> Iterable[Write]:
    for _, change in plan.changes:
        if not change.waits_for:
            yield from promised(change)


def _is_known(what: str) -> bool:
    return any(f"/{name}/" in what for name in ("nodes", "services"))
