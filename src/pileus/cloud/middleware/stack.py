"""Composes the middleware of a cloud: one function around each method of the provider.

    batching ▶ budget ▶ fence ▶ metrics ▶ deadline ▶ errors and answer ▶ provider

- A batched call costs the budget one call, so batching is outside the budget.
- The fence is checked after all waiting, immediately before a write leaves.
- Waiting for the budget does not count as duration of the call; the time until a deadline does.
- Errors and answers are checked next to the provider, so everything else can trust them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import cache, partial
from random import Random

from pileus.cloud.abilities import Batches, Deadlines
from pileus.cloud.errors import CloudError, Throttled, Unauthorized, Unavailable, Unsupported
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.answers import Guard
from pileus.cloud.middleware.batching import batched
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.deadline import Overdue
from pileus.cloud.middleware.faults import Rule, faulty
from pileus.cloud.middleware.methods import (
    METHODS,
    AnyFunction,
    Call,
    Kind,
    Method,
    rebuilt,
)
from pileus.cloud.permission import permitted_by
from pileus.dataclass import dataclass, replace
from pileus.fence import Fence
from pileus.telemetry.instruments import Counter, Histogram
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics
from pileus.telemetry.passes import calling

log = Log(__name__)

OUTAGE = 60.0
"""Seconds for which all calls to a cloud have to fail before that is logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The settings of a stack, and what several stacks on one cloud share."""

    budget: Budget | None = None
    """Shared by several stacks on one cloud; None: a new one with the limits that the
    provider declares (`Cloud.abilities`)."""
    deadlines: Deadlines | None = None
    """None: those that the provider declares."""
    overdue: Overdue = field(default_factory=Overdue)
    batches: Batches | None = None
    """None: those that the provider declares."""
    faults: tuple[Rule, ...] = ()
    seed: int = 0
    """The seed of the faults."""


@asynccontextmanager
async def stacked(
    cloud: Cloud,
    *,
    metrics: Metrics,
    fence: Fence,
    equipment: Equipment,
    methods: Sequence[Method] = METHODS,
) -> AsyncGenerator[Cloud]:
    """The provider's cloud as controllers use it, while the block lasts."""
    chance = Random(equipment.seed)  # noqa: S311 -- of test faults, no secret
    inner = faulty(cloud, equipment.faults, chance, methods) if equipment.faults else cloud
    outer = composed(inner, metrics=metrics, fence=fence, equipment=equipment, methods=methods)
    async with batched(outer, equipment.batches or cloud.abilities.batches, methods) as it:
        yield it


def composed(
    cloud: Cloud,
    *,
    metrics: Metrics,
    fence: Fence,
    equipment: Equipment,
    methods: Sequence[Method] = METHODS,
) -> Cloud:
    """Returns the cloud with everything but batching around its methods.

    Raises, from its methods: `CloudError` and nothing else, also if the provider cancels itself or
    exits; `Fenced`, without a call, for a write without a recent lease. Cancellation by the caller
    and Ctrl-C pass.
    """
    stack = _Stack(
        provider=cloud.name,
        budget=equipment.budget or Budget(cloud.abilities.limits, metrics),
        fence=fence,
        measures=_Measures(cloud.name, metrics),
        overdue=equipment.overdue,
        deadlines=equipment.deadlines or cloud.abilities.deadlines,
        guard=Guard(cloud.name, metrics),
    )
    if cloud.health is not None:
        equipment.overdue.include(cloud.health, partial(stack.guard.health, cloud.health))
    owns = cloud.owns
    return replace(
        rebuilt(cloud, stack.around, methods),
        owns=None if owns is None else partial(stack.guard.owns, owns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    provider: str
    budget: Budget
    fence: Fence
    measures: "_Measures"
    overdue: Overdue
    deadlines: Deadlines
    guard: Guard

    def around(self, method: Method, function: AnyFunction) -> AnyFunction:
        return (self._pure if method.kind is Kind.PURE else self._awaited)(method, function)

    def _awaited(self, method: Method, function: AnyFunction) -> AnyFunction:
        """The whole stack in one function, so that a traceback shows one frame of it."""

        async def call(*arguments: object, **named: object) -> object:
            asked = method.asked(arguments, named)
            made = Call(self.provider, method, method.items(asked), method.priority(asked))
            async with (
                self.budget.turn(made) as refusals,
                self._fenced(made),
                self.measures.measured(made),
                self.overdue.limited(made, self.deadlines),
            ):
                with self.guard.errors(method.name):
                    answer = await function(*arguments, **named)
                    answer = self.guard.checked(method.name, method.check, asked, answer)
                self.budget.hear(made, answer, refusals)
                return answer

        return call

    def _pure(self, method: Method, function: AnyFunction) -> AnyFunction:
        def call(*arguments: object, **named: object) -> object:
            with self.guard.errors(method.name):
                answer = function(*arguments, **named)
                asked = method.asked(arguments, named)
                return self.guard.checked(method.name, method.check, asked, answer)

        return call

    @asynccontextmanager
    async def _fenced(self, call: Call) -> AsyncGenerator[None]:
        """Raises `Fenced` for a write without a recent lease.

        A provider that makes several requests for one call checks again, by `check_permission`.
        """
        if not call.method.writes:
            yield
            return
        self.fence.check()
        with permitted_by(self.fence.check):
            yield


class Outage:
    """Since when a cloud cannot be used: for a metric and the log.

    It fails no health check: a restart does not help, and the other work of the process goes on.
    """

    def __init__(self, provider: str, metrics: Metrics) -> None:
        self._provider = provider
        self._since: float | None = None
        self._now: Callable[[], float] = float
        self._is_logged = False
        metrics.cloud_failing.labels(provider).set_function(self.seconds)

    def seconds(self) -> float:
        """Returns the seconds since the first failure after the last answer; 0 without failure."""
        since = self._since
        return 0.0 if since is None else max(0.0, self._now() - since)

    def answered(self) -> None:
        if self._is_logged:
            log.info(
                "Calls to the cloud succeed again",
                provider=self._provider,
                seconds=round(self.seconds()),
            )
        self._since, self._is_logged = None, False

    def failed(self, error: CloudError) -> None:
        """An error that is about one request is an answer."""
        if not isinstance(error, Unavailable | Throttled | Unauthorized):
            self.answered()
            return
        self._now = asyncio.get_running_loop().time
        self._since = self._now() if self._since is None else self._since
        if self.seconds() >= OUTAGE and not self._is_logged:
            self._is_logged = True
            log.warning(
                "All calls to the cloud fail",
                provider=self._provider,
                seconds=round(self.seconds()),
                err=error,
            )


class _Measures:
    """Counts and times calls by how they ended: success, the name of an error, or cancelled."""

    def __init__(self, provider: str, metrics: Metrics) -> None:
        self._outage = Outage(provider, metrics)
        # Cached: finding an instrument by its labels costs more than using it.
        self._instruments = cache(partial(_instruments, metrics, provider))

    @asynccontextmanager
    async def measured(self, call: Call) -> AsyncGenerator[None]:
        now = asyncio.get_running_loop().time
        began = now()
        result = "success"
        try:
            with calling(call.name, call.items, is_write=call.method.writes):
                yield
            self._outage.answered()
        except CloudError as error:
            result = type(error).__name__
            self._outage.failed(error)
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        except BaseException:
            result = "crash"
            raise
        finally:
            method = call.method
            found = self._instruments(method.capability, method.attribute, result)
            found.calls.inc()
            found.items.inc(call.items)
            found.duration.observe(now() - began)


@dataclass(frozen=True, slots=True)
class _Instruments:
    """What is measured of the calls of one method that end in one way."""

    calls: Counter
    items: Counter
    duration: Histogram


def _instruments(
    metrics: Metrics, provider: str, capability: str, method: str, result: str
) -> _Instruments:
    place = (provider, capability, method)
    return _Instruments(
        calls=metrics.cloud_calls.labels(*place, result),
        items=metrics.cloud_call_items.labels(*place),
        duration=metrics.cloud_call_duration.labels(*place),
    )


def read_only(cloud: Cloud, *, but: frozenset[str] = frozenset()) -> Cloud:
    """Returns the cloud without writes: each raises `Unsupported` and never reaches the provider.

    `but` names writes that stay allowed, such as `balancers.apply`. The provider's own controllers
    are left out, because their writes do not pass through here.
    """

    def make(method: Method, function: AnyFunction) -> AnyFunction:
        if not method.writes or method.name in but:
            return function

        async def refuse(*_: object, **__: object) -> object:
            raise Unsupported(
                f"{method.name} was not sent: this process has read-only access to the cloud. "
                "That it was tried is a bug in Pileus: please report it"
            )

        return refuse

    return replace(rebuilt(cloud, make), controllers=())
