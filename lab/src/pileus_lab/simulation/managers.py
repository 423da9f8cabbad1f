"""The managers of a simulation: the real program, restarted when it ends, and its faults."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial
from random import Random

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.manager import Manager
from pileus.app.run import ending_of
from pileus.app.startup import World
from pileus.clock import Clock
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.kube.access import Access
from pileus.runtime.leadership import LeadershipLost, Times
from pileus.settings.config import Config
from pileus.telemetry.metrics import Metrics
from pileus_lab.simulation.clouds.second import SECOND
from pileus_lab.simulation.connections.api import Wire
from pileus_lab.simulation.connections.cloud import CloudWire
from pileus_lab.simulation.connections.process import ConnectionContext, Life
from pileus_lab.simulation.environment.cluster import Cluster
from pileus_lab.simulation.environment.steps import Trace
from pileus_lab.simulation.event_loop import PROCESS, SimulationLoop
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import CHOICES, Deed
from pileus_lab.simulation.setup import PROVIDER, SECRET

FASTEST, SLOWEST = 1.1, 0.9
"""How wrong the clocks may be that decide about the lease."""


class SkewedClock:
    """A wall clock that is wrong by some seconds."""

    def __init__(self, right: Clock, wrong_by: float) -> None:
        self._right = right
        self.wrong_by = wrong_by

    def now(self) -> datetime:
        return self._right.now() + timedelta(seconds=self.wrong_by)


class PacedClock:
    """A monotonic clock that runs a little too fast or too slow; the pace may change."""

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
    """While `run` runs there is a manager, or one is about to be started."""

    def __init__(
        self, name: str, config: Config, clock: Clock, chance: Random, around: ConnectionContext
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
        """Wraps the cloud of every process, to record its calls."""
        self._may_live = asyncio.Event()
        self._may_live.set()

    async def run(self, failed: Callable[[str, BaseException], None]) -> None:
        """Starts the manager again and again. Calls `failed` after an unexpected end."""
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
        """Kills it, and does not restart it until `bring_up`."""
        self._may_live.clear()
        if self.life is not None:
            self.life.crash()

    def bring_up(self) -> None:
        self._may_live.set()

    def stop(self) -> None:
        """Asks it to end, as SIGTERM does."""
        if self.life is not None and self.life.task is not None:
            self.life.task.cancel()

    def wind(self, seconds: float, share: float) -> None:
        """Its wall clock jumps, and its monotonic clock runs at another pace from now on."""
        self.clock.wrong_by += seconds
        self.monotonic.run_at(SLOWEST + share * (FASTEST - SLOWEST))

    def crash_when_started(self, step: int) -> None:
        """Ends the next process at its n-th step, if it gets there; 0: never."""
        self._ambush = step

    def _arm(self, life: Life) -> None:
        if self._ambush:
            life.process.strike_at_step(self._ambush, life.crash)
        self._ambush = 0

    def _bury(self, life: Life, task: asyncio.Task[None]) -> None:
        self._around.trace.note(self.name, "crashed")
        self._around.loop.release(life.process)
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
        """Returns the environment of that process."""
        providers = Registry(discover=tuple)
        providers.register(PROVIDER, self._provider(life))
        if self._around.second is not None:
            providers.register(SECOND, self._around.second.connect)

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
    """Virtual time cannot stop, and threads cannot be used in it."""
    return nullcontext()


def _nothing() -> None:
    """Garbage is collected between seeds; the collector is off in each."""


LONGEST_OUTAGE = 30.0
"""Maximum seconds for which the API server is unreachable or lags behind."""
MOST_STEPS = 3000
"""Steps of a manager's tasks after which it is hit; about as many as its start takes."""


class Mishaps:
    def __init__(
        self,
        managers: Sequence[Replica],
        cluster: Cluster,
        loop: SimulationLoop,
        trace: Trace,
        lease_seconds: float,
    ) -> None:
        self._managers = managers
        self._cluster = cluster
        self._loop = loop
        self._trace = trace
        self._lease_seconds = lease_seconds
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.REPLICA_CLOCK: self._wind,
            DeedKind.REPLICA_CRASH: self._to_who_lives(lambda _, life: life.crash()),
            DeedKind.REPLICA_CRASH_AT_WRITE: self._to_who_lives(self._crash_at_write),
            DeedKind.REPLICA_CRASH_AT_STEP: self._crash_at_step,
            DeedKind.REPLICA_STOP: lambda deed: self._chosen(deed).stop(),
            DeedKind.REPLICA_PAUSE: self._to_who_lives(
                lambda deed, life: self._pause(life, deed.seconds)
            ),
            DeedKind.REPLICA_PAUSE_AT_WRITE: self._to_who_lives(self._pause_at_write),
            DeedKind.REPLICA_PAUSE_AT_STEP: self._to_who_lives(self._pause_at_step),
            DeedKind.REPLICA_SLEEP: self._to_who_lives(self._sleep),
            DeedKind.SERVER_RESTART: self._restart,
            DeedKind.SERVER_SWITCH: self._switch,
            DeedKind.SERVER_COMPACT: lambda _: self._cluster.forget(),
        }

    def end(self) -> None:
        """No further faults; current ones end, but suspended machines stay suspended."""
        self._cluster.come_back()
        for manager in self._managers:
            manager.crash_when_started(0)
            if manager.life is not None:
                manager.life.disarm()
                self._loop.resume(manager.life.process)

    def _chosen(self, deed: Deed) -> Replica:
        """Mostly the leader: the others have little to lose."""
        leader = self._cluster.leader()
        leading = [one for one in self._managers if one.life and one.life.identity == leader]
        among = leading if leading and deed.choice % 4 else self._managers
        return among[deed.choice % len(among)]

    def _to_who_lives(self, strike: Callable[[Deed, Life], None]) -> Callable[[Deed], None]:
        """A manager that has crashed and not restarted is skipped."""

        def strike_chosen(deed: Deed) -> None:
            life = self._chosen(deed).life
            if life is not None:
                strike(deed, life)

        return strike_chosen

    def _wind(self, deed: Deed) -> None:
        seconds = deed.seconds * (60 if deed.choice % 2 else -60)
        self._chosen(deed).wind(seconds, deed.choice / CHOICES)

    def _crash_at_write(self, deed: Deed, life: Life) -> None:
        life.ambush(1 + deed.choice % 7, life.crash, after=deed.choice % 2 > 0)

    def _crash_at_step(self, deed: Deed) -> None:
        """At work; or while it ends cleanly; or soon after its restart."""
        manager = self._chosen(deed)
        life = manager.life
        if life is None:
            return
        if deed.choice // 256 % 4 == 0:
            manager.crash_when_started(_step(deed))
            life.crash()
            return
        if deed.choice // 256 % 4 == 1:
            manager.stop()
        life.process.strike_at_step(_step(deed), life.crash)

    def _pause_at_write(self, deed: Deed, life: Life) -> None:
        pause = partial(self._pause, life, self._lease_seconds + deed.seconds)
        life.ambush(1 + deed.choice % 5, pause, after=deed.choice % 2 > 0)

    def _pause_at_step(self, deed: Deed, life: Life) -> None:
        pause = partial(self._pause, life, self._lease_seconds + deed.seconds)
        life.process.strike_at_step(_step(deed), pause)

    def _pause(self, life: Life, seconds: float) -> None:
        self._trace.note(life.name, f"paused for {seconds:.1f} s")
        self._loop.pause(life.process)
        self._loop.call_later(seconds, self._loop.resume, life.process)

    def _sleep(self, deed: Deed, life: Life) -> None:
        self._trace.note(life.name, f"sleeps for {deed.seconds:.1f} s")
        self._loop.suspend(life.process, deed.seconds)

    def _restart(self, deed: Deed) -> None:
        self._cluster.go_down()
        self._loop.call_later(min(deed.seconds, LONGEST_OUTAGE), self._cluster.come_back)

    def _switch(self, deed: Deed) -> None:
        self._cluster.behind_until = self._loop.now() + min(deed.seconds, LONGEST_OUTAGE)
        self._cluster.cut_watches()


def _step(deed: Deed) -> int:
    """The first steps are as likely as the many later ones."""
    return int(MOST_STEPS ** (deed.choice % 256 / 256))
