"""Makes a cloud misbehave by rule, for tests and demonstrations. The same seed, the same faults."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import TypeVar, assert_never, cast

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fail:
    """Nothing happens, and the call says so."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The call has its effect, but the caller hears an error."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class Delay:
    """The call begins later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Omit:
    """A part of a bulk answer is missing: each item with this probability."""

    share: float


Fault = Fail | LoseAnswer | Delay | Omit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    where: str
    """A pattern for `capability.method`: `instances.find`, `balancers.*`, `*`."""
    fault: Fault
    rate: float = 1.0
    """How probable it is at each call."""
    times: int | None = None
    """How often it may strike; None: without end."""


class Faults:
    def __init__(self, rules: Sequence[Rule], chance: Random) -> None:
        self._chance = chance
        self._rules = [(rule, rule.times) for rule in rules]

    async def __call__(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        faults = self._striking(call)
        lost: CloudError | None = None
        for fault in faults:
            match fault:
                case Delay(seconds):
                    await asyncio.sleep(seconds)
                case Fail(error):
                    raise error.with_traceback(None)
                case LoseAnswer(error):
                    lost = error
                case Omit():
                    pass
                case _:
                    assert_never(fault)
        answer = await proceed()
        if lost is not None:
            raise lost.with_traceback(None)
        for fault in faults:
            answer = self._without(answer, fault.share) if isinstance(fault, Omit) else answer
        return answer

    def _striking(self, call: Call) -> list[Fault]:
        striking: list[Fault] = []
        for index, (rule, left) in enumerate(self._rules):
            if left == 0 or not fnmatchcase(call.name, rule.where):
                continue
            if self._chance.random() < rule.rate:
                self._rules[index] = (rule, None if left is None else left - 1)
                striking.append(rule.fault)
        return striking

    def _without(self, answer: T, share: float) -> T:
        if not isinstance(answer, Mapping):
            return answer
        items = cast("Mapping[object, object]", answer).items()
        return cast("T", {k: v for k, v in items if self._chance.random() >= share})


def faulty(cloud: Cloud, rules: Sequence[Rule], chance: Random) -> Cloud:
    return wrap(cloud, Faults(rules, chance))
