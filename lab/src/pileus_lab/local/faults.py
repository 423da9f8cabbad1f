"""Which faults strike a call, and what they do to it. Pure but for chance."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import TypeVar, cast

from msgspec.structs import replace as changed

from pileus.cloud import errors
from pileus.cloud.errors import CloudError, Throttled
from pileus_lab.local.model.records import Fault, FaultKind, Page

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Strike:
    """What befalls one call."""

    faults: tuple[Fault, ...] = ()

    @property
    def delay(self) -> float:
        return sum(fault.seconds for fault in self._of(FaultKind.LATENCY))

    @property
    def staleness(self) -> float:
        return max((fault.seconds for fault in self._of(FaultKind.STALE)), default=0.0)

    def refuse(self) -> None:
        """Raise what the caller gets instead of the call's effect."""
        for fault in self._of(FaultKind.THROTTLE):
            raise Throttled(f"too many requests ({fault.id})", retry_after=fault.seconds)
        for fault in self._of(FaultKind.ERROR):
            raise error_of(fault)

    def lose(self) -> None:
        """Raise what the caller gets instead of the call's answer."""
        for fault in self._of(FaultKind.LOST):
            raise error_of(fault)

    def thin(self, answer: A, chance: Random) -> A:
        """The answer, without some of its items; it says so itself."""
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
    return error(f"a fault of the local cloud ({fault.id}); `pileus local fault list` shows it")


def strike(
    faults: Mapping[str, Fault], operation: str, chance: Random
) -> tuple[Mapping[str, Fault], Strike]:
    """The faults that are left afterwards, and what befalls the call."""
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
