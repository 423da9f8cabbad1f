"""One of the managers of a simulation: the real program, started again whenever it ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import copy_context
from datetime import datetime, timedelta
from random import Random

from pileus.app.config import Config
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.manager import Manager
from pileus.app.run import ending_of
from pileus.app.startup import World
from pileus.clock import Clock
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.kube.access import Access
from pileus.runtime.leadership import LeadershipLost, Times
from pileus.telemetry.metrics import Metrics
from pileus_lab.simulation.loop import PROCESS
from pileus_lab.simulation.setup import PROVIDER, SECRET
from pileus_lab.simulation.wires.api import Wire
from pileus_lab.simulation.wires.cloud import CloudWire
from pileus_lab.simulation.wires.life import Life, Surroundings

FASTEST, SLOWEST = 1.1, 0.9
"""How wrong the clocks may run that decide about the lease."""


class SkewedClock:
    """A wall clock that is wrong by some seconds."""

    def __init__(self, right: Clock, wrong_by: float) -> None:
        self._right = right
        self.wrong_by = wrong_by

    def now(self) -> datetime:
        return self._right.now() + timedelta(seconds=self.wrong_by)


class PacedClock:
    """A monotonic clock that runs a little too fast or too slow; how much may change."""

    def __init__(self, right: Callable[[], float], pace: float) -> None:
        self._right = right
        self._since, self._shown = right(), 0.0
        self._pace = pace

    def __call__(self) -> float:
        return self._shown + (self._right() - self._since) * self._pace

    def run_at(self, pace: float) -> None:
        self._since, self._shown = self._right(), self()
        self._pace = pace


class Replica:
    """Guarantees: while `run` runs there is a manager, or one is about to be started."""

    def __init__(
        self, name: str, config: Config, clock: Clock, chance: Random, around: Surroundings
    ) -> None:
        self.name = name
        self._config = config
        self._chance = chance
        self._around = around
        self._lives = 0
        self._ambush = 0
        self.monotonic = PacedClock(around.trace.now, chance.uniform(SLOWEST, FASTEST))
        self.clock = SkewedClock(clock, chance.uniform(-120, 120))
        self.life: Life | None = None
        self.watch_cloud: Callable[[Cloud], Cloud] = _as_it_is
        """Wraps the cloud of every life, to record what is asked of it."""
        self._may_live = asyncio.Event()
        self._may_live.set()

    async def run(self, failed: Callable[[str, BaseException], None]) -> None:
        """Live again and again. `failed` is told of an end that no program should have."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._may_live.wait()
                life = self.life = self.next_life()
                context = copy_context()
                context.run(PROCESS.set, life.process)
                task = group.create_task(self._live(life, failed), context=context)
                self._arm(life)
                await life.ended.wait()
                self.life = None
                if life.is_over:
                    self._bury(life, task)
                await asyncio.sleep(self._chance.uniform(1, 15))

    def next_life(self) -> Life:
        self._lives += 1
        return Life(self.name, f"{self.name}-{self._lives}")

    def keep_down(self) -> None:
        """Kill it, and do not start it again until `bring_up`."""
        self._may_live.clear()
        if self.life is not None:
            self.life.crash()

    def bring_up(self) -> None:
        self._may_live.set()

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        if self.life is not None and self.life.task is not None:
            self.life.task.cancel()

    def wind(self, seconds: float, share: float) -> None:
        """Its wall clock jumps, and its other one runs at another pace from now on."""
        self.clock.wrong_by += seconds
        self.monotonic.run_at(SLOWEST + share * (FASTEST - SLOWEST))

    def crash_when_started(self, step: int) -> None:
        """Let the next life end with its n-th step, if it gets there; 0: it may live."""
        self._ambush = step

    def _arm(self, life: Life) -> None:
        if self._ambush:
            life.process.strike_at_step(self._ambush, life.crash)
        self._ambush = 0

    def _bury(self, life: Life, task: asyncio.Task[None]) -> None:
        self._around.trace.note(self.name, "crashed")
        self._around.loop.resume(life.process)
        task.cancel()

    async def _live(self, life: Life, failed: Callable[[str, BaseException], None]) -> None:
        life.task = asyncio.current_task()
        self._around.trace.note(self.name, f"starts as {life.identity}")
        try:
            await Manager(self._config, self.surroundings(life)).run()
        except asyncio.CancelledError:
            how = "stopped"
        except BaseException as error:  # noqa: BLE001 -- judged below
            ending = ending_of(error)
            how = f"ended: {type(ending).__name__}: {ending}"
            if not life.is_over and not isinstance(ending, LeadershipLost | Fatal | CommandFailed):
                failed(self.name, error)
        else:
            how = "returned"
        if not life.is_over:
            self._around.trace.note(self.name, how)
        life.ended.set()

    def surroundings(self, life: Life) -> World:
        """Returns what the process of that life finds around itself."""
        providers = Registry(discover=tuple)
        providers.register(PROVIDER, self._provider(life))

        def connect(_: Access) -> Wire:
            return Wire(life, self._around)

        return World(
            environ={"CLOUD_TOKEN": SECRET},
            times=Times(self.clock, self.monotonic),
            random=Random(self._chance.getrandbits(64)),  # noqa: S311 -- no secret
            set_verbosity=lambda _: None,
            providers=providers,
            connect=connect,
            identity=lambda: life.identity,
            watched=_unwatched,
            metrics=lambda: life.queues.read_from(self._around.sayings.metrics),
            settled=_nothing,
        )

    def _provider(self, life: Life) -> Connect:
        @asynccontextmanager
        async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
            del config
            wire = CloudWire(life, self._around)
            async with self._around.account.cloud.connect(wire) as cloud:
                yield self.watch_cloud(cloud)

        return connect


def _as_it_is(cloud: Cloud) -> Cloud:
    return cloud


def _unwatched(_: Metrics) -> AbstractContextManager[None]:
    """Virtual time cannot stand still, and threads have no place in it."""
    return nullcontext()


def _nothing() -> None:
    """Whoever plays many seeds clears away what they leave; the collector is off in each."""
