"""A simulated world put together: API server, cloud, kubelets, people, managers, and a judge."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import copy_context

from pileus.app.controllers import ALL, LIFECYCLE, NODE, ROUTE, SERVICE, is_running
from pileus.app.leading import DUTIES
from pileus.clock import Clock
from pileus.cloud.interface import Cloud
from pileus.simulation.chance import stream
from pileus.simulation.clouds.deeds import AddMachine
from pileus.simulation.clouds.interface import MakeCloud
from pileus.simulation.invariants.facts import Facts
from pileus.simulation.judge import Judge
from pileus.simulation.kinds import DeedKind
from pileus.simulation.loop import SimulationLoop
from pileus.simulation.replica import Replica
from pileus.simulation.schedule import Deed, Schedule
from pileus.simulation.setup import LEASE, Setup
from pileus.simulation.stage.account import Account
from pileus.simulation.stage.cluster import Cluster
from pileus.simulation.stage.kubelets import Kubelets
from pileus.simulation.stage.people import People
from pileus.simulation.stage.steps import Sending
from pileus.simulation.trace import Trace
from pileus.simulation.weather import Weather
from pileus.simulation.wires.life import Life, Surroundings

LONGEST_OUTAGE = 30.0
"""Seconds for which the API server is away, at most."""


class World:
    """Built for one schedule."""

    def __init__(
        self, schedule: Schedule, make_cloud: MakeCloud, loop: SimulationLoop, clock: Clock
    ) -> None:
        seed, setup = schedule.seed, schedule.setup
        self._schedule = schedule
        self._loop = loop
        self.quiet_seconds = schedule.quiet_seconds
        self.trace = Trace(loop.time)
        self.judge = Judge(self.trace, loop.time)
        self.weather = Weather(seed, schedule.items, loop.time)
        self.done: Counter[DeedKind] = Counter()
        self._cluster = Cluster(clock, stream(seed, "cluster"), self.judge.see)
        cloud = make_cloud(stream(seed, "settings"))
        self._account = Account(cloud, clock, stream(seed, "account"), self.judge.see)
        self._people = People(self._cluster, self._account)
        self._kubelets = Kubelets(
            self._cluster, self._account, clock, gives_cidrs=not setup.gives_cidrs
        )
        around = Surroundings(
            cluster=self._cluster,
            account=self._account,
            weather=self.weather,
            trace=self.trace,
            chance=stream(seed, "wires"),
            outside=copy_context(),
            misled=self.judge.misled,
            sending=lambda life, what: self.judge.see(Sending(life.name, life.identity, what)),
        )
        self._managers = [
            Replica(name, setup.config, clock, stream(seed, name), around)
            for name in (f"manager-{number}" for number in range(1, schedule.replicas + 1))
        ]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The world goes round for as long as the block lasts."""
        await self._account.open()
        self.judge.begin(self._facts())
        self._furnish()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._kubelets.run(), name="kubelets")]
            for manager in self._managers:
                living = manager.run(self._failed)
                tasks.append(group.create_task(living, name=manager.name))
            yield
            self.trace.close()
            self._end_all()
            for task in tasks:
                task.cancel()

    async def let_things_happen(self) -> None:
        for item in self._schedule.items:
            await self._until(item.at)
            if self.judge.violation is not None:
                return
            self.trace.note("schedule", str(item))
            if isinstance(item, Deed):
                self._do(item)
        await self._until(self._schedule.seconds)

    def mend(self) -> None:
        """From now on nothing goes wrong any more."""
        self.trace.note("schedule", "all is mended")
        self._cluster.come_back()
        for manager in self._managers:
            if manager.life is not None:
                manager.life.disarm()
                self._loop.resume(manager.life.process)

    def _facts(self) -> Facts:
        return Facts(
            schedule=self._schedule,
            cluster=self._cluster,
            account=self._account,
            trace=self.trace,
            now=self._loop.time,
            controllers=_controllers(self._schedule.setup, self._account.offered),
            cluster_id=self._cluster.cluster_id(),
        )

    def _furnish(self) -> None:
        for number in range(self._schedule.machines):
            self._account.do("setup", AddMachine(f"m-0{number}"))
        for number in range(self._schedule.services):
            kind = DeedKind.SERVICE_CREATE
            self._people.do(Deed(number=0, at=0.0, kind=kind, choice=number, seconds=0.0))

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self._loop.time()))

    def _do(self, deed: Deed) -> None:
        self.done[deed.kind] += 1
        if self._people.can(deed.kind):
            self._people.do(deed)
        elif deed.kind is DeedKind.SERVER_RESTART:
            self._cluster.go_down()
            self._loop.call_later(min(deed.seconds, LONGEST_OUTAGE), self._cluster.come_back)
        elif deed.kind is DeedKind.SERVER_COMPACT:
            self._cluster.forget()
        else:
            self._do_to_manager(deed, self._chosen(deed))

    def _chosen(self, deed: Deed) -> Replica:
        """Mostly the one that leads: the others have little to lose."""
        leader = self._cluster.leader()
        leading = [one for one in self._managers if one.life and one.life.identity == leader]
        among = leading if leading and deed.choice % 4 else self._managers
        return among[deed.choice % len(among)]

    def _do_to_manager(self, deed: Deed, manager: Replica) -> None:
        life = manager.life
        if deed.kind is DeedKind.REPLICA_CLOCK:
            manager.clock.wrong_by += deed.seconds * (60 if deed.choice % 2 else -60)
        if life is None:
            return
        match deed.kind:
            case DeedKind.REPLICA_CRASH:
                life.crash()
            case DeedKind.REPLICA_CRASH_AT_WRITE:
                life.ambush(1 + deed.choice % 7, life.crash, after=deed.choice % 2 > 0)
            case DeedKind.REPLICA_STOP:
                manager.stop()
            case DeedKind.REPLICA_PAUSE:
                self._pause(life, deed.seconds)
            case DeedKind.REPLICA_PAUSE_AT_WRITE:
                after, seconds = deed.choice % 2 > 0, LEASE + deed.seconds
                life.ambush(1 + deed.choice % 5, lambda: self._pause(life, seconds), after=after)
            case _:
                pass

    def _pause(self, life: Life, seconds: float) -> None:
        self.trace.note(life.name, f"paused for {seconds:.1f} s")
        self._loop.pause(life.process)
        self._loop.call_later(seconds, self._loop.resume, life.process)

    def _failed(self, who: str, error: BaseException) -> None:
        told = "".join(traceback.format_exception(error))
        self.judge.blame("no_manager_ends_by_a_bug", f"{who}: {told}")

    def _end_all(self) -> None:
        """Let all managers end without a trace of it."""
        for manager in self._managers:
            if manager.life is not None:
                manager.life.process.is_dead = True
                self._loop.resume(manager.life.process)


def _controllers(setup: Setup, offered: Cloud) -> frozenset[str]:
    """Those that run in this setup and with this cloud, of those that there are."""
    config = setup.config
    running = {one.canonical for one in ALL if is_running(one, config.generic.controllers)}
    if offered.routes is None or not config.shared.configure_cloud_routes:
        running.discard(ROUTE.canonical)
    if offered.balancers is None:
        running.discard(SERVICE.canonical)
    if offered.instances is None:
        running -= {NODE.canonical, LIFECYCLE.canonical}
    return frozenset(running & DUTIES.keys())
