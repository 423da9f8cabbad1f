"""Which runs are made, in which order, and how long they take together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.bench.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of one side."""

    scenario: Scenario
    side: str
    repeat: int

    @property
    def seconds(self) -> float:
        """What it takes, about."""
        return self.scenario.estimate(self.side) * self._share

    def expected(self, taken: Mapping[tuple[str, str], float], slowness: float) -> float:
        """Returns what it takes, if the first run of each scenario and side took so long."""
        first = taken.get((self.scenario.name, self.side))
        return self.seconds * slowness if first is None else first * self._share

    @property
    def _share(self) -> float:
        return self.scenario.repeat_share if self.repeat else 1.0


Round = tuple[Planned, ...]
"""The runs of all sides of a scenario: made together or not at all, so that they form ratios."""


def planned(
    scenarios: Sequence[Scenario], only: Sequence[str] = (), repeats: int = 0
) -> tuple[list[Round], list[Round]]:
    """Returns the rounds that are made, and those that are made as far as there is time for them.

    First comes each scenario once, then repeats. The side that begins changes with each repeat.
    `repeats` is how often each scenario is run, whatever the time; 0: as often as it asks for.
    """
    if repeats:
        return [_round(each, number, only) for number in range(repeats) for each in scenarios], []
    first = [_round(each, 0, only) for each in scenarios]
    most = max((each.repeats for each in scenarios), default=1)
    again = [
        _round(each, number, only)
        for number in range(1, most)
        for each in scenarios
        if number < each.repeats
    ]
    return first, again


def _round(scenario: Scenario, repeat: int, only: Sequence[str]) -> Round:
    sides = [side for side in scenario.sides if not only or side in only]
    turned = sides if repeat % 2 == 0 else reversed(sides)
    return tuple(Planned(scenario, side, repeat) for side in turned)


def seconds_of(rounds: Sequence[Round]) -> float:
    return sum(run.seconds for each in rounds for run in each)


def fitting(rounds: Sequence[Round], seconds: float) -> list[Round]:
    """Returns those of the rounds, in their order, that fit into so much time."""
    found: list[Round] = []
    for each in rounds:
        if seconds_of([*found, each]) <= seconds:
            found.append(each)
    return found
