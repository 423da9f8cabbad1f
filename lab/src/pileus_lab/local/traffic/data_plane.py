"""The data plane: keeps the open sockets equal to the desired ones.

state ──desired (pure)──▶ listeners and answering instances ──open, update, close──▶ sockets
"""

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from pileus.cloud.balancer import Transport
from pileus.telemetry.log import Log
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.traffic.desired import (
    Answering,
    Front,
    Place,
    Wanted,
    next_change,
    wanted,
)
from pileus_lab.local.traffic.echo import Echo
from pileus_lab.local.traffic.forwarding import TcpFront, UdpFront
from pileus_lab.local.traffic.health_checks import Checking, Checks, subjects
from pileus_lab.local.traffic.sockets import Loopback, Wires

RETRY = 2.0
"""Seconds until a port that was in use is tried again."""

LAST_TURNS = 5
"""Iterations of the event loop in which connections that were just accepted are set up and
closed."""

log = Log(__name__)


class DataPlane:
    """All sockets of one cloud; see `carrying`."""

    def __init__(
        self, cloud: LocalCloud, checking: Checking, wires: Wires, tasks: asyncio.TaskGroup
    ) -> None:
        self._cloud = cloud
        self._wires = wires
        self._tasks = tasks
        self._checks = Checks(checking, wires)
        self._changed = asyncio.Event()
        self._writes = 0
        self._applied: float = 0
        """How many of the writes are applied, whether or not every socket could be opened."""
        self._is_applied = asyncio.Event()
        self._recheck = asyncio.Event()
        self._wanted = Wanted((), ())
        self._fronts: dict[tuple[str, Place], TcpFront | UdpFront] = {}
        self._echoes: dict[Place, Echo] = {}
        self._retired: list[Echo] = []
        """Ports of instances to which no balancer leads any more, except for draining
        connections."""
        self._refused: dict[tuple[str, Place], str] = {}
        """What could not be opened and why, by balancer; "" for an instance."""

    def health(self) -> Mapping[tuple[str, str], str]:
        """Problems by balancer and member; those of a listener are under its address."""
        listeners = {
            (balancer, f"listener {place}"): problem
            for (balancer, place), problem in self._refused.items()
            if balancer
        }
        return {**self._checks.problems(), **listeners}

    def wake(self) -> None:
        self._writes += 1
        self._changed.set()

    async def carried(self) -> None:
        """Waits until the writes so far are applied: sockets are open, or have a problem."""
        writes = self._writes
        while self._applied < writes:
            await self._is_applied.wait()

    async def follow(self) -> None:
        """Follows the cloud until cancelled."""
        try:
            while True:
                self._changed.clear()
                writes = self._writes
                due = await self.adapt()
                self._apply(writes)
                await self._wait(self._changed, due)
        finally:
            self._apply(math.inf)  # no one applies what is written from now on

    def _apply(self, writes: float) -> None:
        self._applied = writes
        self._is_applied.set()
        self._is_applied = asyncio.Event()

    async def check(self) -> None:
        """Checks the members until cancelled."""
        while True:
            self._recheck.clear()
            await self._checks.round(subjects(self._wanted.fronts))
            await self._wait(self._recheck, self._checks.settings.interval)

    async def adapt(self) -> float | None:
        """Opens, changes and closes sockets that differ from the desired ones.

        Returns the seconds after which to check again even if nothing is written.
        """
        state, now = self._cloud.state, self._cloud.now()
        want = wanted(state, now)
        self._retire_echoes(want)
        is_wired = await self._wires.adapt(state, now)
        await self._open_echoes({one.place: one for one in want.answering})
        await self._adapt_fronts({(one.balancer, one.place): one for one in want.fronts})
        if subjects(self._wanted.fronts) != subjects(want.fronts):
            self._recheck.set()
        self._wanted = want
        due = next_change(state, now)
        times = [RETRY] if self._refused or not is_wired else []
        if due is not None:
            times.append(due - now)
        return min(times, default=None)

    def close(self) -> None:
        for front in self._fronts.values():
            front.cut()
        for echo in (*self._echoes.values(), *self._retired):
            echo.cut()

    def _retire_echoes(self, want: Wanted) -> None:
        places = {one.place for one in want.answering}
        for place in [place for place in self._echoes if place not in places]:
            echo = self._echoes.pop(place)
            echo.retire()
            self._retired.append(echo)
        for echo in self._retired:
            if echo.answering.place.address not in want.running:
                echo.cut()
        self._retired = [echo for echo in self._retired if echo.is_talking]

    async def _open_echoes(self, want: Mapping[Place, Answering]) -> None:
        self._forget_refused({("", place) for place in want}, of_balancers=False)
        for place, answering in want.items():
            if place in self._echoes:
                self._echoes[place].answering = answering
            elif await self._opened("", place, echo := Echo(answering, self._wires, self._tasks)):
                self._echoes[place] = echo

    async def _adapt_fronts(self, want: Mapping[tuple[str, Place], Front]) -> None:
        standing = self._cloud.state.balancers
        for key in [key for key in self._fronts if key not in want]:
            front = self._fronts.pop(key)
            if key[0] in standing:
                front.retire()
            else:
                front.cut()
        self._forget_refused(set(want), of_balancers=True)
        for key, front in want.items():
            if key in self._fronts:
                self._fronts[key].update(front)
            elif await self._opened(*key, opening := self._listener(front)):
                self._fronts[key] = opening

    def _listener(self, front: Front) -> TcpFront | UdpFront:
        if front.place.transport is Transport.UDP:
            return UdpFront(front, self._checks.usable, self._wires)
        return TcpFront(front, self._checks.usable, self._wires, self._tasks)

    async def _opened(self, whose: str, place: Place, opening: Echo | TcpFront | UdpFront) -> bool:
        try:
            await opening.open()
        except OSError as error:
            problem = _explained(place, error)
            if self._refused.get((whose, place)) != problem:
                log.warning("Cannot listen", balancer=whose, place=str(place), problem=problem)
            self._refused[whose, place] = problem
            return False
        except asyncio.CancelledError:
            opening.cut()
            raise
        self._refused.pop((whose, place), None)
        return True

    def _forget_refused(self, want: set[tuple[str, Place]], *, of_balancers: bool) -> None:
        for key in [key for key in self._refused if bool(key[0]) is of_balancers]:
            if key not in want:
                del self._refused[key]

    async def _wait(self, event: asyncio.Event, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass


def _explained(place: Place, error: OSError) -> str:
    text = os.strerror(error.errno).lower() if error.errno else str(error)
    if isinstance(error, PermissionError):
        return (
            f"{text}: a port below 1024 needs root, or a lower net.ipv4.ip_unprivileged_port_start"
        )
    return f"{text}: {place} is in use" if "in use" in text else text


@asynccontextmanager
async def carrying(
    cloud: LocalCloud, checking: Checking, wires: Wires | None = None
) -> AsyncGenerator[DataPlane]:
    """Carries the cloud's traffic while the block lasts. Existing listeners are open at once."""
    async with asyncio.TaskGroup() as tasks:
        plane = DataPlane(cloud, checking, wires or Loopback(), tasks)
        cloud.watch(plane.wake)
        cloud.health, cloud.carried = plane.health, plane.carried
        await plane.adapt()
        running = [tasks.create_task(plane.follow()), tasks.create_task(plane.check())]
        try:
            yield plane
        finally:
            cloud.health = cloud.carried = None
            cloud.unwatch(plane.wake)
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            plane.close()
            for _ in range(LAST_TURNS):
                await asyncio.sleep(0)
