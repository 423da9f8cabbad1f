"""The local cloud: owns the state, stores it, and injects the configured faults."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase  # noqa: TID251 -- patterns of the command `pileus local fault`
from random import Random
from typing import cast

from msgspec.structs import replace as changed

from pileus.bucket import Bucket
from pileus.clock import Clock
from pileus.cloud import errors
from pileus.cloud.errors import CloudError, Throttled
from pileus_lab.local.disks import Disks
from pileus_lab.local.journal import Journal
from pileus_lab.local.model.balancers import listener_problems
from pileus_lab.local.model.records import Balancer, Fault, FaultKind, Page, Volume
from pileus_lab.local.model.state import A, Moment, Operation, Settings, State


@dataclass(frozen=True, slots=True)
class Strike:
    """The faults that hit one call."""

    faults: tuple[Fault, ...] = ()

    @property
    def delay(self) -> float:
        return sum(fault.seconds for fault in self._of(FaultKind.LATENCY))

    @property
    def staleness(self) -> float:
        return max((fault.seconds for fault in self._of(FaultKind.STALE)), default=0.0)

    def refuse(self) -> None:
        """Raises the error that replaces the effect of the call."""
        for fault in self._of(FaultKind.THROTTLE):
            raise Throttled(f"too many requests ({fault.id})", retry_after=fault.seconds)
        for fault in self._of(FaultKind.ERROR):
            raise error_of(fault)

    def lose(self) -> None:
        """Raises the error that replaces the answer of the call."""
        for fault in self._of(FaultKind.LOST):
            raise error_of(fault)

    def thin(self, answer: A, chance: Random) -> A:
        """Returns the answer without some of its items, marked as incomplete."""
        for fault in self._of(FaultKind.PARTIAL):
            if isinstance(answer, Page):
                page = cast("Page[object]", answer)
                kept = tuple(item for item in page.items if chance.random() >= fault.share)
                answer = cast("A", changed(page, items=kept, is_complete=False))
        return answer

    def _of(self, kind: FaultKind) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind is kind]


def error_of(fault: Fault) -> CloudError:
    error: type[CloudError] = getattr(errors, fault.error)
    return error(f"injected fault ({fault.id}); see `pileus local fault list`")


def strike(
    faults: Mapping[str, Fault], operation: str, chance: Random
) -> tuple[Mapping[str, Fault], Strike]:
    """Returns the remaining faults and those that hit this call."""
    left = dict(faults)
    struck: list[Fault] = []
    for fault in faults.values():
        if not fnmatchcase(operation, fault.where) or chance.random() >= fault.rate:
            continue
        struck.append(fault)
        if fault.times == 1:
            del left[fault.id]
        elif fault.times is not None:
            left[fault.id] = changed(fault, times=fault.times - 1)
    return (left if struck and left != faults else faults), Strike(tuple(struck))


REMEMBERED = 1000
"""How many past states are kept for stale reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How the cloud treats its callers."""

    lag_seconds: float = 0.0
    """Maximum age in seconds of the answer to a read that does not ask for fresh data."""
    latency_seconds: float = 0.0
    requests_per_second: float = 0.0
    """Requests per second; 0: unlimited."""
    burst: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudContext:
    """What a cloud needs: clock, randomness, and a journal for its state (None: in memory)."""

    clock: Clock
    chance: Random
    journal: Journal | None = None
    settings: Settings = field(default_factory=Settings)
    behaviour: Behaviour = field(default_factory=Behaviour)
    disks: Disks | None = None
    """The data of volumes; None: volumes have none."""


class LocalCloud:
    """One cloud. A write is stored before it is acknowledged."""

    def __init__(self, given: CloudContext) -> None:
        self._given = given
        self._state = given.journal.load() if given.journal else State()
        if given.disks:
            self._state = _with_devices(self._state, given.disks, given.journal)
        self._past = deque([(float("-inf"), self._state)], maxlen=REMEMBERED)
        behaviour = given.behaviour
        self._bucket = Bucket.full(behaviour.requests_per_second, behaviour.burst, self.now())
        self._watchers: list[Callable[[], None]] = []
        self.health: Callable[[], Mapping[tuple[str, str], str]] | None = None
        """The results of real health checks, if there is a data plane."""
        self.carried: Callable[[], Awaitable[None]] | None = None
        """Waits until the data plane has applied the last write, if there is one."""

    @property
    def state(self) -> State:
        return self._state

    def now(self) -> float:
        return self._given.clock.now().timestamp()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls `watcher` after each change. It must return quickly."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

    async def call(self, operation: Operation[A]) -> A:
        """Calls as a user: rate limit, latency, staleness and faults apply."""
        behaviour = self._given.behaviour
        self._take_token()
        struck = self._strike(operation.NAME)
        struck.refuse()
        if delay := behaviour.latency_seconds + struck.delay:
            await asyncio.sleep(delay)
        lag = 0.0 if getattr(operation, "fresh", True) else behaviour.lag_seconds
        answer = await self._performed(operation, max(lag, struck.staleness))
        struck.lose()
        return struck.thin(answer, self._given.chance)

    async def operate(self, operation: Operation[A]) -> A:
        """Calls as the operator: rate limit and faults do not apply."""
        return await self._performed(operation, staleness=0.0)

    def _take_token(self) -> None:
        if self._bucket.rate <= 0:
            return
        wait, left = self._bucket.reserve(self.now())
        if wait > 0:
            raise Throttled(
                f"more than {self._bucket.rate:g} requests per second; retry in {wait:.2f} s",
                retry_after=wait,
            )
        self._bucket = left

    def _strike(self, name: str) -> Strike:
        faults, struck = strike(self._state.faults, name, self._given.chance)
        if faults is not self._state.faults:
            self._keep(replace(self._state, faults=faults))
        return struck

    async def _performed(self, operation: Operation[A], staleness: float) -> A:
        """Returns after a write has taken effect in the data plane.

        A balancer in the answer has the problem of a listener that could not be opened.
        """
        answer = self._perform(operation, staleness)
        if operation.WRITES and self.carried:
            await self.carried()
            if isinstance(answer, Balancer):
                problem = listener_problems(self._moment()).get(answer.id, answer.problem)
                answer = cast("A", changed(answer, problem=problem))
        return answer

    def _perform(self, operation: Operation[A], staleness: float) -> A:
        moment = self._moment()
        if not operation.WRITES:
            return operation.step(self._as_of(moment.now - staleness), moment)[1]
        state, answer = operation.step(self._state, moment)
        return self._changed(state, answer)

    def _moment(self) -> Moment:
        health = self.health() if self.health else None
        return Moment(self.now(), self._given.chance, self._given.settings, health)

    def _changed(self, state: State, answer: A) -> A:
        """Stores the state, with the data of its volumes. Returns the answer with real devices."""
        before, disks = self._state, self._given.disks
        if disks is None:
            self._keep(state)
            return answer
        state = disks.prepare(before, state)
        self._keep(state)
        disks.clean(before, state)
        if isinstance(answer, Volume):
            return cast("A", state.volumes[answer.id])
        return answer

    def _keep(self, state: State) -> None:
        """Stores, then publishes. There must be no await between the two."""
        if state == self._state:
            return
        if self._given.journal:
            self._given.journal.keep(self._state, state)
        self._state = state
        self._past.append((self.now(), state))
        for watcher in self._watchers:
            watcher()

    def _as_of(self, when: float) -> State:
        return next((state for since, state in reversed(self._past) if since <= when), self._state)


def _with_devices(state: State, disks: Disks, journal: Journal | None) -> State:
    """Returns the state with the devices of this run, and stores it."""
    restored = disks.restored(state)
    if journal and restored != state:
        journal.keep(state, restored)
    return restored
