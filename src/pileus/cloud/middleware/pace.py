"""At which pace a cloud may be called: faster while it answers quickly, slower when it refuses.

declared ──quick answers──▶ triples every second, up to `Limits.growth` times the declared pace
    │ a call is throttled
    ▼
  half ──quick answers──▶ grows by a tenth of the declared pace every second
"""

from collections.abc import Hashable
from dataclasses import field
from typing import Self

from pileus.cloud.abilities import Limits
from pileus.dataclass import dataclass, replace

LEAST = 0.1
"""Share of the declared pace that is always left: a cloud that wants less asks for pauses."""
STEP = 2.0
"""Calls per second that one quick answer adds, as long as the cloud has refused none."""
STEP_AT_ONCE = 0.5
"""Calls at once that it adds."""
CAREFUL = 0.1
"""Share of the declared limits that is added per second after a refusal."""
SLOW = 2.0
"""An answer that takes so many times as long as the quickest of its kind is slow."""
NOTICEABLE = 0.05
"""Seconds by which a slow answer is slower at least: less is chance."""
FORGETS = 1.01
"""The quickest answer counts so much longer after each answer: the cloud may have changed."""
MOST_KINDS = 200
"""Kinds of calls whose quickest answer is remembered."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Calls per second, and calls under way at the same time, that a cloud may get now."""

    limits: Limits
    per_second: float
    at_once: float
    refusals: int = 0
    """Cuts so far. A call that left before the last cut is no reason for another one."""

    @classmethod
    def declared(cls, limits: Limits) -> Self:
        return cls(limits, limits.per_second, limits.at_once)

    @property
    def burst(self) -> int:
        """A cloud that has refused calls gets no more at once than it may get in a second."""
        if not self.refusals:
            return self.limits.burst
        return max(1, min(self.limits.burst, int(self.per_second)))

    def faster(self) -> Self:
        """Returns the pace after a quick answer to a call that had to wait for its turn."""
        limits = self.limits
        share = CAREFUL * limits.per_second / self.per_second
        rate, width = (share, share) if self.refusals else (STEP, STEP_AT_ONCE)
        return replace(
            self,
            per_second=min(
                self.per_second + rate, max(self.per_second, limits.per_second * limits.growth)
            ),
            at_once=min(self.at_once + width, max(self.at_once, limits.at_once * limits.growth)),
        )

    def slower(self, *, refusals: int) -> Self:
        """Returns the pace after a call was refused that left after so many refusals."""
        if refusals < self.refusals:
            return self
        return replace(
            self,
            per_second=max(self.per_second / 2, LEAST * self.limits.per_second),
            at_once=max(self.at_once / 2, 1.0),
            refusals=self.refusals + 1,
        )


@dataclass(slots=True)
class Quickness:
    """Knows how long answers usually take when the cloud is not busy."""

    _quickest: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def is_quick(self, kind: Hashable, seconds: float) -> bool:
        """Whether an answer of this kind took no longer than usual. Remembers how long it took."""
        quickest = self._quickest.get(kind, seconds)
        if kind in self._quickest or len(self._quickest) < MOST_KINDS:
            self._quickest[kind] = min(seconds, quickest * FORGETS)
        return seconds <= max(quickest * SLOW, quickest + NOTICEABLE)
