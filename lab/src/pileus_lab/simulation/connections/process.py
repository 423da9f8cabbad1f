"""One process of one manager, from start to end, and its environment."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from math import inf
from random import Random

from pileus_lab.simulation.clouds.second import SecondCloud
from pileus_lab.simulation.diagnostics import Queues, Sayings
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import Cluster
from pileus_lab.simulation.environment.steps import Answer, Call, Trace
from pileus_lab.simulation.event_loop import Process, SimulationLoop
from pileus_lab.simulation.schedule import Strike, Weather

SLOWEST = 0.02
"""Maximum seconds that a message travels without faults."""


class Life:
    """The process of a manager. After its end nothing that it does has an effect."""

    def __init__(self, name: str, identity: str) -> None:
        self.name = name
        self.identity = identity
        self.process = Process(name)
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.heard: list[bytes] = []
        """Everything that the API server has sent to it, in order."""
        self.heard_when: list[float] = []
        """When that was received, in world time."""
        self.misinformed: dict[str, Strike] = {}
        """Paths of lists in which an object was missing or falsely reported as deleted."""
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
        """When it first received that object, or that version of it; None: never."""
        wanted, exactly = uid.encode(), f'"resourceVersion":"{version}"'.encode()
        for told, when in zip(self.heard, self.heard_when, strict=True):
            if wanted in told and (not version or exactly in told):
                return when
        return None

    def crash(self) -> None:
        self.process.is_dead = True
        self.ended.set()

    def ambush(self, number: int, strike: Callable[[], None], *, after: bool) -> None:
        """Triggers a callback at the n-th write: before it is sent, or after its effect."""
        self._ambush = _Ambush(number, strike, after)

    def disarm(self) -> None:
        self._ambush = None
        self.process.spare()

    def is_struck_before_write(self) -> bool:
        """Called before a write is sent; returns whether the callback was triggered."""
        if self._ambush is not None:
            self._ambush.left -= 1
        return self._spring(after=False)

    def is_struck_after_write(self) -> bool:
        """Called after the effect of a write; returns whether the callback was triggered."""
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
class ConnectionContext:
    """What the connections of all managers share."""

    loop: SimulationLoop
    cluster: Cluster
    account: Account
    weather: Weather
    trace: Trace
    chance: Random
    outside: Context
    """The context of code that belongs to no manager."""
    sayings: Sayings
    told: Callable[[Call | Answer], None]
    """Called with every request and every answer."""
    second: SecondCloud | None = None
    """In worlds with a second cloud."""

    def latency(self) -> float:
        return self.chance.uniform(0.001, SLOWEST)

    def later(self, seconds: float, act: Callable[..., None], *args: object) -> None:
        """Runs a callback outside of all managers, even if they are paused or dead."""
        self.loop.call_later(seconds, act, *args, context=self.outside)
