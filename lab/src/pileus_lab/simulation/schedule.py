"""From a seed to what happens when. Pure: the same seed and scenario give the same schedule."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from pileus_lab.simulation.kinds import DeedKind, FaultKind, Place
from pileus_lab.simulation.scenario import UNAIDED, Scenario
from pileus_lab.simulation.setup import SETUPS, TAKE_OVER, TWO_CLOUDS, VOLUME_NODES, VOLUMES, Setup


def stream(seed: int, *names: object) -> Random:
    """The same seed and names give the same numbers, on any machine."""
    return Random("/".join(map(str, (seed, *names))))  # noqa: S311 -- a simulation, no secret


K = TypeVar("K")
T = TypeVar("T")

APART = {*UNAIDED, TAKE_OVER, TWO_CLOUDS, VOLUMES, VOLUME_NODES}
NAMES = tuple(one.name for one in SETUPS if one.name not in APART)
QUIET = (60.0, 60.0, 60.0, 330.0)
"""The last is longer than the usual time between two refreshes; one in four is enough."""
STREAMING = 0.6
"""Fraction of API servers that stream lists."""
IDENTIFYING = 0.3
"""Fraction of worlds whose kubelets report provider IDs."""
BOTH_FAMILIES = 0.4
"""Fraction of worlds whose machines have addresses of both families."""
CHOICES = 1 << 16
"""Upper bound of a deed's choice."""
OVERLOOKING = 60.0
"""Minimum seconds between two lists that `Weather.overlook` empties. Guards read twice."""
LONGEST_LIE = 20.0
"""Maximum seconds of false answers of a cloud. No guard could tell longer ones from the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something is done."""

    number: int
    at: float
    kind: DeedKind
    choice: int
    """Which of the existing objects is chosen."""
    seconds: float

    def one_of(self, among: Sequence[T]) -> T | None:
        """The chosen object; None if there is none."""
        return among[self.choice % len(among)] if among else None

    def __str__(self) -> str:
        return f"#{self.number} {self.at:8.3f} {self.kind} ({self.choice}, {self.seconds:.1f} s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """For a while, some calls fail."""

    number: int
    at: float
    until: float
    kind: FaultKind
    rate: float
    seconds: float
    """Delay, staleness or Retry-After in seconds."""

    def __str__(self) -> str:
        often = f"{self.rate:.0%} of calls until {self.until:.1f}"
        return f"#{self.number} {self.at:8.3f} {self.kind} ({often}, {self.seconds:.1f} s)"


Item = Deed | Spell


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    seed: int
    scenario: str
    setup: Setup
    replicas: int
    machines: int
    """How many there are at the start."""
    services: int
    items: tuple[Item, ...]
    seconds: float
    """Seconds in which events happen."""
    streams_lists: bool
    """Whether the API server is new enough to stream lists."""
    page_size: int
    """Maximum number of objects in a page of a list; 0: as many as requested."""
    quiet_seconds: float
    """Seconds in which nothing may be written once everything matches."""
    patience: float = 1500.0
    """Seconds until everything must match the desired state, once there are no more faults."""
    kubelets_identify: bool = False
    """Whether kubelets report the provider IDs of their machines."""
    machines_have_both: bool = False
    """Whether machines have addresses of both families."""

    def only(self, numbers: Collection[int]) -> "Schedule":
        """The same world, but only these items happen."""
        return replace(self, items=tuple(one for one in self.items if one.number in numbers))


def draw(seed: int, scenario: Scenario) -> Schedule:
    chance = stream(seed, "schedule", scenario.name)
    drawn: list[Item] = []
    if scenario.deeds:
        drawn += [_deed(chance, scenario) for _ in range(_count(chance, scenario.deeds_most))]
    if scenario.faults:
        spells = [_spell(chance, scenario) for _ in range(_count(chance, scenario.faults_most))]
        drawn += _one_lie(spells)
    ordered = sorted(drawn, key=lambda item: item.at)
    later = stream(seed, "second edition", scenario.name)
    is_later = scenario.edition > 1
    return Schedule(
        seed=seed,
        scenario=scenario.name,
        setup=chance.choice([one for one in SETUPS if one.name in (scenario.setups or NAMES)]),
        replicas=chance.choice(scenario.replicas),
        machines=chance.randint(1, 6),
        services=chance.randint(0, 3),
        items=tuple(replace(item, number=number) for number, item in enumerate(ordered, 1)),
        seconds=scenario.seconds,
        streams_lists=chance.random() < STREAMING,
        page_size=chance.choice((0, 1, 3)),
        quiet_seconds=chance.choice(QUIET),
        patience=scenario.patience,
        kubelets_identify=is_later and later.random() < IDENTIFYING,
        machines_have_both=is_later and later.random() < BOTH_FAMILIES,
    )


def _count(chance: Random, most: int) -> int:
    return chance.randint(most // 4, most)


def _one_lie(spells: Sequence[Spell]) -> list[Spell]:
    """The guards take two false answers with a time between them for two independent reads."""
    lies = [one for one in spells if one.kind is FaultKind.CLOUD_EMPTY]
    return [one for one in spells if one not in lies[1:]]


def _deed(chance: Random, scenario: Scenario) -> Deed:
    return Deed(
        number=0,
        at=round(chance.uniform(0, scenario.seconds), 3),
        kind=_weighted(chance, scenario.deeds),
        choice=chance.randrange(CHOICES),
        seconds=round(chance.choice((1, 5, 20, 60)) * chance.uniform(0.5, 1.5), 3),
    )


def _spell(chance: Random, scenario: Scenario) -> Spell:
    kind = _weighted(chance, scenario.faults)
    at = round(chance.uniform(0, scenario.seconds * 0.9), 3)
    length = chance.choice((2, 10, 40, 120)) * chance.uniform(0.5, 1.5)
    if kind is FaultKind.CLOUD_EMPTY:
        length = min(length, LONGEST_LIE)
    return Spell(
        number=0,
        at=at,
        until=round(min(at + length, scenario.seconds), 3),
        kind=kind,
        rate=chance.choice((0.05, 0.3, 0.7, 1.0)),
        seconds=round(chance.choice((0.2, 2, 8)) * chance.uniform(0.5, 1.5), 3),
    )


def _weighted(chance: Random, weights: Mapping[K, int]) -> K:
    names: Sequence[K] = tuple(weights)
    return chance.choices(names, weights=[weights[name] for name in names])[0]


@dataclass(frozen=True, slots=True)
class Strike:
    kind: FaultKind
    seconds: float


class Weather:
    """The fault periods of a schedule. Each draws from its own random stream."""

    def __init__(self, seed: int, items: Sequence[Item], now: Callable[[], float]) -> None:
        self._now = now
        spells = [one for one in items if isinstance(one, Spell)]
        self._spells: dict[Place, list[tuple[Spell, Random]]] = {
            place: [
                (one, stream(seed, "spell", one.number))
                for one in spells
                if one.kind.place is place
            ]
            for place in Place
        }
        self.struck: Counter[tuple[FaultKind, str]] = Counter()
        """How often each fault occurred, by caller."""
        self._overlooked = -OVERLOOKING
        self._until_overlooked: dict[str, int] = {}

    def overlook(self, who: str, number: int) -> None:
        """The list that `who` reads next, after so many others, is empty, once."""
        if self._now() - self._overlooked >= OVERLOOKING:
            self._overlooked = self._now()
            self._until_overlooked[who] = number

    def end(self) -> None:
        """Everything is read as it is, as far as it is not the time of a spell."""
        self._until_overlooked.clear()

    def _overlooks(self, who: str) -> bool:
        left = self._until_overlooked.pop(who, None)
        if left:
            self._until_overlooked[who] = left - 1
        return left == 0

    def strike(
        self, place: Place, who: str, *, may: Callable[[FaultKind], bool] = lambda _: True
    ) -> Strike | None:
        """Returns the fault of a call that `who` makes now, of those that `may` occur."""
        now = self._now()
        if who in self._until_overlooked and may(FaultKind.CLOUD_EMPTY) and self._overlooks(who):
            self.struck[FaultKind.CLOUD_EMPTY, who] += 1
            return Strike(FaultKind.CLOUD_EMPTY, 0.0)
        for spell, chance in self._spells[place]:
            if not (spell.at <= now < spell.until) or not may(spell.kind):
                continue
            if chance.random() < spell.rate:
                self.struck[spell.kind, who] += 1
                return Strike(spell.kind, spell.seconds)
        return None
