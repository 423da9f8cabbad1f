"""What was measured: samples of all runs, ratios between sides with their spread, and growth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median

from tools.bench.bed import Values


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of one part of one run."""

    scenario: str
    part: str
    side: str
    repeat: int
    values: Values


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that did not end well."""

    scenario: str
    side: str
    repeat: int
    why: str
    log: Sequence[str] = ()
    """The end of the manager's log, if it ended by itself."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One side over another in the same measure: the median over the repeats, and the spread."""

    middle: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        spread = (
            f"{self.low:.2f} to {self.high:.2f}, {self.runs} runs" if self.runs > 1 else "1 run"
        )
        return f"{self.middle:.2f}x ({spread})"


@dataclass
class Results:
    """All samples of one benchmark, and what it ran on."""

    about: dict[str, str] = field(default_factory=dict[str, str])
    samples: list[Sample] = field(default_factory=list[Sample])
    failed: list[Failed] = field(default_factory=list[Failed])
    differences: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By scenario: how the end states of Go and Pileus differ; empty if they are equal."""
    left_out: list[str] = field(default_factory=list[str])

    def values(self, part: str, side: str, measure: str) -> list[float]:
        """Returns the values of all repeats."""
        return list(self._by_repeat(part, side, measure).values())

    def _by_repeat(self, part: str, side: str, measure: str) -> dict[int, float]:
        return {
            one.repeat: one.values[measure]
            for one in self.samples
            if (one.part, one.side) == (part, side) and measure in one.values
        }

    def middle(self, part: str, side: str, measure: str) -> float | None:
        found = self.values(part, side, measure)
        return median(found) if found else None

    def ratio(self, part: str, measure: str, over: str, side: str = "pileus") -> Ratio | None:
        """Returns `side` over the other, repeat by repeat. None if either was not measured."""
        ours, others = (self._by_repeat(part, each, measure) for each in (side, over))
        ratios = sorted(one / others[n] for n, one in ours.items() if others.get(n))
        if not ratios:
            return None
        return Ratio(median(ratios), ratios[0], ratios[-1], len(ratios))

    def parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.part for one in self.samples))


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Returns the exponent of growth: 1 is linear. The slope of a line through the logarithms."""
    usable = [(log(size), log(value)) for size, value in points if size > 0 and value > 0]
    if len(usable) < 2:  # noqa: PLR2004 -- a line has two points
        return None
    middle_x = sum(x for x, _ in usable) / len(usable)
    middle_y = sum(y for _, y in usable) / len(usable)
    spread = sum((x - middle_x) ** 2 for x, _ in usable)
    if not spread:
        return None
    return sum((x - middle_x) * (y - middle_y) for x, y in usable) / spread
