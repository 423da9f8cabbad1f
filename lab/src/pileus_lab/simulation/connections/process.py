"""One life of one manager, from its start to its end, and what stands around it."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from math import inf
from random import Random

from pileus_lab.simulation.diagnostics import Queues, Sayings
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import Cluster
from pileus_lab.simulation.environment.steps import Answer, Call, Trace
from pileus_lab.simulation.event_loop import Process, SimulationLoop
from pileus_lab.simulation.schedule import Strike, Weather

SLOWEST = 0.02
"""Seconds that a message travels when nothing is wrong, at most."""


class Life:
    """A manager's process. Once it is over nothing that it does reaches anybody."""

    def __init__(self, name: str, identity: str) -> None:
        self.name = name
        self.identity = identity
        self.process = Process(name)
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.heard: list[bytes] = []
        """All that the API server has told it, in order."""
        self.heard_when: list[float] = []
        """When it was told that, in the time of the world."""
        self.misinformed: dict[str, Strike] = {}
        """Paths of lists in which an object was missing, or reported as deleted untruly."""
        self.misinformed_at = -inf
        """When that last happened."""
        self.queues = Queues()
        self._ambush: _Ambush | None = None

    @property
    def is_over(self) -> bool:
        return self.process.is_dead

    def hear(self, told: bytes, now: float) -> None:
        self.heard.append(told)
        self.heard_when.append(now)

    def heard_at(self, uid: str, version: str = "") -> float | None:
        """When it was first told of that object, or of that version of it; None: it was not."""
        wanted, exactly = uid.encode(), f'"resourceVersion":"{version}"'.encode()
        for told, when in zip(self.heard, self.heard_when, strict=True):
            if wanted in told and (not version or exactly in told):
                return when
        return None

    def crash(self) -> None:
        self.process.is_dead = True
        self.ended.set()

    def ambush(self, number: int, strike: Callable[[], None], *, after: bool) -> None:
        """Let something happen with the n-th write: before it leaves, or when it has its effect."""
        self._ambush = _Ambush(number, strike, after)

    def disarm(self) -> None:
        self._ambush = None
        self.process.spare()

    def is_struck_before_write(self) -> bool:
        """A write is about to leave; whether the ambush struck."""
        if self._ambush is not None:
            self._ambush.left -= 1
        return self._spring(after=False)

    def is_struck_after_write(self) -> bool:
        """A write has had its effect; whether the ambush struck."""
        return self._spring(after=True)

    def _spring(self, *, after: bool) -> bool:
        ambush = self._ambush
        if ambush is None or ambush.left > 0 or ambush.after is not after or self.is_over:
            return False
        self._ambush = None
        ambush.strike()
        return True


@dataclass(slots=True)
class _Ambush:
    left: int
    strike: Callable[[], None]
    after: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the wires of all managers have in common."""

    loop: SimulationLoop
    cluster: Cluster
    account: Account
    weather: Weather
    trace: Trace
    chance: Random
    outside: Context
    """The context of what belongs to no manager."""
    sayings: Sayings
    told: Callable[[Call | Answer], None]
    """Told of every request, and of every answer."""

    def latency(self) -> float:
        return self.chance.uniform(0.001, SLOWEST)

    def later(self, seconds: float, act: Callable[..., None], *args: object) -> None:
        """Let something happen outside of all managers: be they paused or dead, it happens."""
        self.loop.call_later(seconds, act, *args, context=self.outside)
