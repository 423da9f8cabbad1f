"""A simulated world: API server, cloud, kubelets, users, managers, and a judge."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pileus.app.registry import CONTROLLERS
from pileus.app.settings import ManagerSettings
from pileus.clock import Clock
from pileus.cloud.interface import Cloud
from pileus.controllers.lifecycle.descriptor import LIFECYCLE
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.node.settings import NodeSettings
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.route.settings import RouteSettings
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.ssh_keys.descriptor import SSH_KEYS
from pileus.controllers.ssh_keys.settings import SshKeysSettings
from pileus.runtime.settings import LeaderElectionSettings
from pileus_lab.node_agents.node import Registration
from pileus_lab.simulation.clouds import second
from pileus_lab.simulation.clouds.deeds import AddMachine
from pileus_lab.simulation.clouds.interface import MakeCloud, SimulatedCloud
from pileus_lab.simulation.clouds.second import SecondCloud, troubles
from pileus_lab.simulation.connections.process import ConnectionContext, Life
from pileus_lab.simulation.diagnostics import Queues, Sayings
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import MERGE, Cluster, Manners
from pileus_lab.simulation.environment.kubelets import Kubelets
from pileus_lab.simulation.environment.operators import Operators
from pileus_lab.simulation.environment.races import Replacing
from pileus_lab.simulation.environment.steps import Answer, Call, Trace
from pileus_lab.simulation.environment.storage import Claims
from pileus_lab.simulation.environment.users import People, Users
from pileus_lab.simulation.event_loop import SimulationLoop
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.judge import Judge
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.managers import Mishaps, Replica
from pileus_lab.simulation.request_costs import RequestCosts
from pileus_lab.simulation.schedule import Deed, Schedule, Weather, stream
from pileus_lab.simulation.setup import Setup

if TYPE_CHECKING:
    from pileus_lab.simulation.hosts.machines import Hosts

FIRST_CLAIMS = 4
LAX = 0.4
"""Fraction of clouds that attach a volume twice, and delete an attached one, if asked to."""


class World:
    """Built for one schedule."""

    def __init__(
        self, schedule: Schedule, make_cloud: MakeCloud, loop: SimulationLoop, clock: Clock
    ) -> None:
        seed, setup = schedule.seed, schedule.setup
        self.schedule = self._schedule = schedule
        self._loop, self._clock = loop, clock
        loop.set_exception_handler(self._callback_failed)
        self.quiet_seconds, self.patience = schedule.quiet_seconds, schedule.patience
        self.trace = Trace(loop.now)
        self.judge = Judge(self.trace, loop.now)
        self.weather, self.done = Weather(seed, schedule.items, loop.now), Counter[DeedKind]()
        self.sayings = Sayings(seed, setup.config)
        manners = Manners(schedule.streams_lists, schedule.page_size)
        self._cluster = Cluster(clock, stream(seed, "cluster"), self.judge.see, manners)
        self._account = self._opened(make_cloud(stream(seed, "settings")))
        self._people = People(
            self._cluster,
            self._account,
            self.weather,
            both_families=schedule.machines_have_both,
        )
        self._users = Users(self._cluster, self._account)
        self._claims = Claims(self._cluster, self._account, has_kubelets=setup.has_hosts)
        self._hosts = self._machines(seed) if setup.has_hosts else None
        self._operators = Operators(
            self._cluster,
            self._account,
            clock,
            loop.call_later,
            self.judge.meddled,
            syncs_labels=setup.config[NodeSettings].sync_labels,
        )
        self._kubelets = Kubelets(
            self._cluster,
            self._account,
            clock,
            cidrs=() if setup.gives_cidrs else setup.cluster_cidrs,
            how=Registration(reports_provider_id=schedule.kubelets_identify),
        )
        self._replacing = Replacing(self._cluster, self._account, self._people, self._kubelets)
        self._managers = self._assembled(clock)
        costs = RequestCosts(self._account, self.judge.blame)
        self.judge.observers.append(costs.see)
        for manager in self._managers:
            manager.watch_cloud = costs.watched
        lease = setup.config[LeaderElectionSettings].durations.lease
        self.taken_over: Mapping[str, str] = {}
        """Balancers that another manager made, by the UID of their Service."""
        self._mishaps = Mishaps(self._managers, self._cluster, loop, self.trace, lease)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Runs the world while the block lasts."""
        await self._account.open()
        self.judge.begin(self._facts())
        self._furnish()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._kubelets.run(), name="kubelets")]
            if self._schedule.setup.has_volumes:
                tasks.append(group.create_task(self._claims.run(), name="storage"))
            if self._hosts is not None:
                tasks.append(group.create_task(self._hosts.run(), name="hosts"))
            for manager in self._managers:
                living = manager.run(self._failed)
                tasks.append(group.create_task(living, name=manager.name))
            yield
            self.abandon()
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

    def end_faults(self, *, tidies: bool = True) -> None:
        """Ends all faults; with `tidies`, users also revert impossible requests."""
        self.trace.note("schedule", "all faults end")
        self._mishaps.end()
        self.weather.end()
        if self._second is not None:
            self._second.ends()
        self._replacing.end()
        self._operators.end()
        self._kubelets.end()
        if self._hosts is not None:
            self._hosts.end()
            self._claims.tidy()
        if tidies:
            self._users.tidy()

    def hand_over(self) -> None:
        """Makes all balancers those of another manager, as far as the cloud knows such."""
        self.trace.note("schedule", "another manager has made all balancers")
        self.taken_over = self._operators.hand_over(stream(self._schedule.seed, "hand over"))

    @property
    def loop(self) -> SimulationLoop:
        return self._loop

    @property
    def account(self) -> Account:
        return self._account

    @property
    def managers(self) -> Sequence[Replica]:
        return self._managers

    def planner(self, told: Callable[[Call | Answer], None]) -> Replica:
        """Returns a process besides the managers; `told` gets its requests instead of a judge.

        It is not started.
        """
        seed, config = self._schedule.seed, self._schedule.setup.config
        around = replace(self._around, told=told)
        return Replica("planner", config, self._clock, stream(seed, "planner"), around)

    def _assembled(self, clock: Clock) -> list[Replica]:
        seed, setup = self._schedule.seed, self._schedule.setup
        self._second = self._second_cloud()
        around = self._around = ConnectionContext(
            loop=self._loop,
            cluster=self._cluster,
            account=self._account,
            weather=self.weather,
            trace=self.trace,
            chance=stream(seed, "wires"),
            outside=copy_context(),
            sayings=self.sayings,
            told=self._told,
            second=self._second,
        )
        return [
            Replica(name, setup.config, clock, stream(seed, name), around)
            for name in (f"manager-{number}" for number in range(1, self._schedule.replicas + 1))
        ]

    def _second_cloud(self) -> SecondCloud | None:
        if not self._schedule.setup.has_second_cloud:
            return None
        chance = stream(self._schedule.seed, "second")
        return SecondCloud(self._loop.now, troubles(chance, self._schedule.seconds))

    def _told(self, step: Call | Answer) -> None:
        self.judge.see(step)
        if isinstance(step, Call):
            self._replacing.see(step)

    def notify_waiting(self) -> None:
        """Shows why something does not happen, for example a deadlock."""
        for line in self._loop.waiting():
            self.trace.note("waits", line)

    def _facts(self) -> Facts:
        return Facts(
            schedule=self._schedule,
            cluster=self._cluster,
            account=self._account,
            trace=self.trace,
            sayings=self.sayings,
            now=self._loop.now,
            controllers=_controllers(self._schedule.setup, self._account.offered),
            cluster_id=self._cluster.cluster_id(),
            living=self._living,
            queues=self._queues,
            lives=self._lives,
            second=self._second,
            hosts=self._hosts,
            lost_volumes=self._claims.lost,
        )

    def _opened(self, cloud: SimulatedCloud[Any, Any]) -> Account:
        seed = self._schedule.seed
        setup, chance = self._schedule.setup, stream(seed, "account")
        is_lax = setup.has_hosts and stream(seed, "lax").random() < LAX
        name = setup.cloud_name
        return Account(cloud, self._clock, chance, self.judge.see, is_lax=is_lax, name=name)

    def _machines(self, seed: int) -> "Hosts":
        """Machines on which volumes are mounted. Needs the packages of the node plugin."""
        from pileus_lab.simulation.hosts.machines import Around, Hosts  # noqa: PLC0415

        around = Around(
            cluster=self._cluster,
            account=self._account,
            claims=self._claims,
            loop=self._loop,
            weather=self.weather,
            chance=stream(seed, "hosts"),
            told=self.judge.see,
            failed=self._failed,
        )
        return Hosts(around)

    def _living(self) -> frozenset[str]:
        lives = [one.life for one in self._managers if one.life is not None]
        return frozenset(life.identity for life in lives if not life.process.paused)

    def _lives(self) -> Mapping[str, Life]:
        return {one.name: one.life for one in self._managers if one.life is not None}

    def _queues(self) -> Mapping[str, Queues]:
        lives = [one.life for one in self._managers if one.life is not None]
        return {life.identity: life.queues for life in lives}

    def _furnish(self) -> None:
        self._operators.furnish()
        if self._schedule.setup.has_volumes:
            self._claims.furnish(self._schedule.seed % FIRST_CLAIMS if self._hosts else 0)
        if self._second is not None:
            self._cluster.act("setup", "POST", "/api/v1/nodes", second.node())
            self._cluster.act("setup", "POST", second.SERVICES_PATH, second.service())
            chance = stream(self._schedule.seed, "users of the second cloud")
            for request in second.user_requests(chance, self._schedule.seconds):
                self._loop.call_at(request.at, self._act_on_second, request)
        for number in range(self._schedule.machines):
            has_both = self._schedule.machines_have_both
            near = self._schedule.setup.has_hosts
            machine = AddMachine(f"m-0{number}", ipv6=has_both, near_volumes=near)
            self._account.do("setup", machine)
        for number in range(self._schedule.services):
            kind = DeedKind.SERVICE_CREATE
            deed = Deed(number=0, at=0.0, kind=kind, choice=number, seconds=0.0)
            self._people.deeds[kind](deed)

    def _act_on_second(self, request: second.UserRequest) -> None:
        self.trace.note("second", f"{request.method} {request.path}")
        self._cluster.act("users", request.method, request.path, request.body, MERGE)

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self._loop.now()))

    def _do(self, deed: Deed) -> None:
        self.done[deed.kind] += 1
        guests = (self._people, self._users, self._operators, self._kubelets, self._claims)
        hosts = (self._hosts,) if self._hosts is not None else ()
        for actor in (*guests, *hosts, self._mishaps, self._replacing):
            if deed.kind in actor.deeds:
                actor.deeds[deed.kind](deed)

    def _failed(self, who: str, error: BaseException) -> None:
        told = "".join(traceback.format_exception(error))
        self.judge.blame("no_manager_ends_by_a_bug", f"{who}: {told}")

    def _callback_failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Otherwise exceptions in callbacks, such as in the model of the cloud, go unnoticed."""
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception):
            told = "".join(traceback.format_exception(error))
            self.judge.blame("nothing_fails_unseen", told)

    def abandon(self) -> None:
        """Ends all managers silently."""
        self.trace.close()
        for manager in self._managers:
            if manager.life is not None:
                manager.life.process.is_dead = True
                self._loop.release(manager.life.process)


def _controllers(setup: Setup, offered: Cloud) -> frozenset[str]:
    """The controllers that run in this setup and with this cloud."""
    config = setup.config
    running = {
        one.canonical
        for one in CONTROLLERS.names
        if CONTROLLERS.is_running(one, config[ManagerSettings].controllers)
    }
    if offered.routes is None or not config[RouteSettings].enabled:
        running.discard(ROUTE.canonical)
    if offered.ssh_keys is None or not config[SshKeysSettings].source:
        running.discard(SSH_KEYS.canonical)
    if offered.balancers is None:
        running.discard(SERVICE.canonical)
    if offered.instances is None:
        running -= {NODE.canonical, LIFECYCLE.canonical}
    return frozenset(running)
