"""Counters, gauges and histograms, and a registry that reads all of them.

As in Prometheus' client library, which they replace: it imports web servers that the manager does
not use, and costs 4 MiB. An instrument may be read from any thread, and is changed from one only.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from pileus.dataclass import dataclass

Labels: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """A declared metric: the name under which it is served, its type, labels and help text."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    def series(self) -> dict[str, frozenset[str]]:
        """Returns the names of the time series of this metric, each with its labels."""
        labels = frozenset(self.labels)
        if self.kind != "histogram":
            return {self.name: labels}
        buckets = {f"{self.name}_bucket": labels | {"le"}}
        return buckets | {f"{self.name}_{each}": labels for each in ("sum", "count")}


class Sample(NamedTuple):
    """One value of a time series."""

    name: str
    labels: Labels
    value: float


class Reading(NamedTuple):
    """A metric with its values now."""

    family: Family
    samples: Sequence[Sample]


class _Readable(Protocol):
    """Any instrument."""

    @property
    def family(self) -> Family: ...
    def samples(self, labels: Labels) -> Iterator[Sample]: ...


class Counter:
    """A number that only grows."""

    __slots__ = ("_value", "family")

    def __init__(self, family: Family) -> None:
        self.family = family
        self._value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add to the number. Raises ValueError if `amount` is negative."""
        if amount < 0:
            raise ValueError(f"{self.family.name}: a counter cannot decrease by {-amount:g}")
        self._value += amount

    def samples(self, labels: Labels) -> Iterator[Sample]:
        yield Sample(self.family.name, labels, self._value)


class Gauge:
    """A number that grows and shrinks, or is read from a function."""

    __slots__ = ("_function", "_value", "family")

    def __init__(self, family: Family) -> None:
        self.family = family
        self._value = 0.0
        self._function: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self._value = float(value)

    def inc(self, amount: float = 1) -> None:
        self._value += amount

    def set_function(self, function: Callable[[], float]) -> None:
        """Let the gauge report what the function returns when the metrics are read."""
        self._function = function

    def samples(self, labels: Labels) -> Iterator[Sample]:
        value = self._value if self._function is None else float(self._function())
        yield Sample(self.family.name, labels, value)


class Histogram:
    """How many observed values are at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "_sum", "family")

    def __init__(self, family: Family, bounds: tuple[float, ...]) -> None:
        """`bounds` are sorted; the last is infinite."""
        self.family = family
        self._bounds = bounds
        self._counts = [0] * len(bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._sum += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def samples(self, labels: Labels) -> Iterator[Sample]:
        name, total = self.family.name, 0
        for bound, total in zip(self._bounds, accumulate(self._counts), strict=True):
            within = {**labels, "le": number(bound)}
            yield Sample(f"{name}_bucket", within, float(total))
        yield Sample(f"{name}_count", labels, float(total))
        yield Sample(f"{name}_sum", labels, self._sum)


T = TypeVar("T", Counter, Gauge, Histogram)


class Labelled(Generic[T]):
    """Instruments of one metric, one for each combination of values of its labels."""

    __slots__ = ("_create", "_members", "family")

    def __init__(self, family: Family, create: Callable[[], T]) -> None:
        self.family = family
        self._create = create
        self._members: dict[tuple[str, ...], T] = {}

    def labels(self, *values: str) -> T:
        """Returns the instrument with these values, in the order in which labels were declared.

        Raises ValueError if there are more or fewer values than labels.
        """
        found = self._members.get(values)
        if found is not None:
            return found
        if len(values) != len(self.family.labels):
            raise ValueError(f"{self.family.name} has the labels {self.family.labels}: {values}")
        return self._members.setdefault(values, self._create())

    def remove(self, *values: str) -> None:
        """Forget the instrument with these values, if there is one."""
        self._members.pop(values, None)

    def clear(self) -> None:
        """Forget all values."""
        self._members.clear()

    def samples(self, labels: Labels) -> Iterator[Sample]:
        names = self.family.labels
        for values, member in tuple(self._members.items()):
            yield from member.samples({**labels, **dict(zip(names, values, strict=True))})


Instrument = TypeVar("Instrument", bound=_Readable)
_EXPONENT_FROM = 1e6
"""Larger numbers are formatted with an exponent."""


class MetricRegistry:
    """All instruments of a process. Creates them, each under a name of its own."""

    def __init__(self) -> None:
        self._instruments: dict[str, _Readable] = {}
        self._sources: list[Callable[[], Iterable[Reading]]] = []

    @overload
    def counter(self, name: str, text: str) -> Counter: ...
    @overload
    def counter(self, name: str, text: str, labels: Sequence[str]) -> Labelled[Counter]: ...
    def counter(
        self, name: str, text: str, labels: Sequence[str] = ()
    ) -> Counter | Labelled[Counter]:
        family = Family(name, "counter", tuple(labels), text)
        return self._added(Labelled(family, lambda: Counter(family)) if labels else Counter(family))

    @overload
    def gauge(self, name: str, text: str) -> Gauge: ...
    @overload
    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Labelled[Gauge]: ...
    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge | Labelled[Gauge]:
        family = Family(name, "gauge", tuple(labels), text)
        return self._added(Labelled(family, lambda: Gauge(family)) if labels else Gauge(family))

    @overload
    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Histogram: ...
    @overload
    def histogram(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str]
    ) -> Labelled[Histogram]: ...
    def histogram(
        self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> Histogram | Labelled[Histogram]:
        """`bounds` are sorted and finite; a last one without a limit is added."""
        family = Family(name, "histogram", tuple(labels), text)
        all_bounds = (*map(float, bounds), inf)
        if labels:
            return self._added(Labelled(family, lambda: Histogram(family, all_bounds)))
        return self._added(Histogram(family, all_bounds))

    def add_source(self, source: Callable[[], Iterable[Reading]]) -> None:
        """Add metrics that are read from elsewhere whenever this registry is read."""
        self._sources.append(source)

    def read(self) -> Iterator[Reading]:
        """Returns all metrics in the order in which they were added."""
        for one in tuple(self._instruments.values()):
            yield Reading(one.family, tuple(one.samples({})))
        for source in self._sources:
            yield from source()

    def families(self) -> tuple[Family, ...]:
        """Returns the metrics that are declared, also those without samples."""
        return tuple(one.family for one in self._instruments.values())

    def value(self, name: str, labels: Labels | None = None) -> float | None:
        """Returns the value of a time series; None if it has none."""
        samples = (each for reading in self.read() for each in reading.samples)
        wanted = (name, labels or {})
        return next((one.value for one in samples if (one.name, one.labels) == wanted), None)

    def _added(self, instrument: Instrument) -> Instrument:
        name = instrument.family.name
        if self._instruments.setdefault(name, instrument) is not instrument:
            raise ValueError(f"two metrics have the name {name}")
        return instrument


def number(value: float) -> str:
    """Returns a number as Go formats it: 1, 0.005, 1e-05, and an exponent from a million on."""
    if value in {inf, -inf}:
        return "+Inf" if value > 0 else "-Inf"
    if not value:
        return "0"
    text = repr(float(value)).removesuffix(".0")
    if abs(value) < _EXPONENT_FROM or "e" in text:
        return text
    if text == "nan":
        return "NaN"
    whole, _, fraction = text.removeprefix("-").partition(".")
    digits = f"{whole}{fraction}".rstrip("0")
    mantissa = f"{digits[0]}.{digits[1:]}".rstrip(".")
    return f"{'-' if value < 0 else ''}{mantissa}e+{len(whole) - 1:02d}"


def declarations(holder: object) -> dict[str, Family]:
    """Returns the metrics that are attributes of an object, by the name of the attribute."""
    return {
        attribute: each.family
        for attribute, each in vars(holder).items()
        if isinstance(each, Counter | Gauge | Histogram | Labelled)
    }
