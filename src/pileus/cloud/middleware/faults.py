"""Injects faults into a cloud by rule, for tests and demonstrations. One seed, one sequence."""

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase  # noqa: TID251 -- patterns of the operator's flag
from random import Random
from typing import assert_never, cast

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.methods import METHODS, AnyFunction, Kind, Method, rebuilt
from pileus.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Fail:
    """The call has no effect and raises the error."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The call has its effect and raises the error."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class Delay:
    """The call begins later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Omit:
    """Each item of a bulk answer is missing with this probability."""

    share: float


Fault = Fail | LoseAnswer | Delay | Omit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    where: str
    """A pattern for `capability.method`: `instances.find`, `balancers.*`, `*`."""
    fault: Fault
    rate: float = 1.0
    """The probability of the fault at each call."""
    times: int | None = None
    """How often the fault may occur; None: no limit."""


class Faults:
    def __init__(self, rules: Sequence[Rule], chance: Random) -> None:
        self._chance = chance
        self._rules = [(rule, rule.times) for rule in rules]

    def around(self, method: Method, function: AnyFunction) -> AnyFunction:
        if method.kind is Kind.PURE:
            return function

        async def call(*arguments: object, **named: object) -> object:
            faults = self._due(method.name)
            lost = await _before(faults)
            answer = await function(*arguments, **named)
            if lost is not None:
                raise lost.with_traceback(None)
            for fault in faults:
                answer = self._without(answer, fault.share) if isinstance(fault, Omit) else answer
            return answer

        return call

    def _due(self, name: str) -> list[Fault]:
        due: list[Fault] = []
        for index, (rule, left) in enumerate(self._rules):
            if left == 0 or not fnmatchcase(name, rule.where):
                continue
            if self._chance.random() < rule.rate:
                self._rules[index] = (rule, None if left is None else left - 1)
                due.append(rule.fault)
        return due

    def _without(self, answer: object, share: float) -> object:
        if not isinstance(answer, Mapping):
            return answer
        items = cast("Mapping[object, object]", answer).items()
        return {key: value for key, value in items if self._chance.random() >= share}


async def _before(faults: Sequence[Fault]) -> CloudError | None:
    """Apply what happens before the call. Returns the error that replaces its answer, if any."""
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
    return lost


def faulty(
    cloud: Cloud, rules: Sequence[Rule], chance: Random, methods: Sequence[Method] = METHODS
) -> Cloud:
    return rebuilt(cloud, Faults(rules, chance).around, methods)
