"""What a simulated manager tells of its queues, read where its metrics would be."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import cast

from prometheus_client import Gauge

from pileus.telemetry.metrics import Metrics


@dataclass(slots=True)
class Reading:
    """In place of a gauge with one label: only what the gauge would ask for is kept."""

    _functions: dict[str, Callable[[], float]] = field(
        default_factory=dict[str, Callable[[], float]]
    )

    def labels(self, label: str) -> "_Labelled":
        return _Labelled(label, self._functions)

    def now(self) -> Mapping[str, int]:
        return {label: int(function()) for label, function in self._functions.items()}


@dataclass(frozen=True, slots=True)
class _Labelled:
    label: str
    functions: dict[str, Callable[[], float]]

    def set_function(self, function: Callable[[], float]) -> None:
        self.functions[self.label] = function


@dataclass(frozen=True, slots=True)
class Queues:
    """How many keys wait in each queue of a manager, and how many it remembers."""

    waiting: Reading = field(default_factory=Reading)
    keys: Reading = field(default_factory=Reading)
    remembered: Reading = field(default_factory=Reading)
    """By map of per-object state: how many objects it has entries for."""

    def read_from(self, metrics: Metrics) -> Metrics:
        """The same instruments, but that these can be read for one manager alone."""
        own = copy(metrics)
        own.queue_depth = cast("Gauge", self.waiting)
        own.queue_keys = cast("Gauge", self.keys)
        own.remembered_objects = cast("Gauge", self.remembered)
        return own
