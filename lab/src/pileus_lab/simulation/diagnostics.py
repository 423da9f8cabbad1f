"""What managers report: log lines, metrics, queues, configuration."""

import logging
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Self, cast

import msgspec

from pileus.app.configz import configz
from pileus.runtime.queue import WorkQueue
from pileus.server.metrics import prometheus_text
from pileus.settings.config import Config
from pileus.telemetry.instruments import Gauge, Labelled, declarations
from pileus.telemetry.klog import TextFormat
from pileus.telemetry.log import level_of
from pileus.telemetry.metrics import Metrics, new_metrics
from pileus_lab.simulation.setup import SECRET

EVERY = 40
"""One of this many seeds is checked for secrets, because formatting everything is slow."""
VERBOSITY = 4


class Sayings:
    """The diagnostics of all managers of one world."""

    def __init__(self, seed: int, config: Config) -> None:
        self._config = config
        self.is_heard = seed % EVERY == 1
        self.metrics = new_metrics() if self.is_heard else _unread_metrics()
        self._ear = _Ear()
        self._tracebacks = _Tracebacks()

    @contextmanager
    def listening(self) -> Generator[None]:
        """Captures log lines while the block lasts; writes nothing.

        Most seeds are checked only for unexpected exceptions.
        """
        logger = logging.getLogger("pileus")
        level, propagates = logger.level, logger.propagate
        if self.is_heard:
            logger.addHandler(self._ear)
        logger.addHandler(self._tracebacks)
        logger.propagate = False
        logger.setLevel(level_of(VERBOSITY) if self.is_heard else logging.ERROR)
        try:
            yield
        finally:
            logger.removeHandler(self._ear)
            logger.removeHandler(self._tracebacks)
            logger.propagate = propagates
            logger.setLevel(level)

    def unexpected(self) -> Iterator[str]:
        """Exceptions that a manager caught, logged with a traceback, and survived."""
        yield from self._tracebacks.told

    def leaks(self) -> Iterator[str]:
        """Where a secret was found."""
        if not self.is_heard:
            return
        for line in self._ear.telling:
            yield f"the log: {line}"
        secret = SECRET.encode()
        if secret in prometheus_text(self.metrics.registry):
            yield "/metrics"
        if secret in msgspec.json.encode(configz(self._config)):
            yield "/configz"


class _Ear(logging.Handler):
    """Formats every line as a manager would, and keeps those with a secret."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(TextFormat())
        self.telling: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if SECRET in line:
            self.telling.append(line)


PROVIDERS_OWN = "pileus.classic.calls"
"""The logger of exceptions in ported providers, which are ordinary errors there."""


class _Tracebacks(logging.Handler):
    """Keeps the lines with an exception: each is a bug, even if it is isolated."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == PROVIDERS_OWN:
            return
        if record.exc_info and record.exc_info[1] is not None:
            self.told.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class _Unread:
    """Replaces any instrument; measures nothing."""

    def labels(self, *_: str) -> Self:
        return self

    def nothing(self, *_: object) -> None: ...

    inc = set = observe = remove = set_function = nothing


@cache
def _unread_metrics() -> Metrics:
    """For seeds that are not checked for secrets, because creating instruments is slow."""
    metrics = new_metrics()
    for name in declarations(metrics):
        setattr(metrics, name, _Unread())
    return metrics


@dataclass(slots=True)
class Reading:
    """Replaces a gauge with one label; keeps only its callbacks."""

    _functions: dict[str, Callable[[], float]] = field(
        default_factory=dict[str, Callable[[], float]]
    )

    def labels(self, label: str) -> "_Labelled":
        return _Labelled(label, self._functions)

    def now(self) -> Mapping[str, int]:
        return {label: int(function()) for label, function in self._functions.items()}

    def keys(self) -> Mapping[str, frozenset[object]]:
        """The keys in the queues that report their number here."""
        owners = {
            label: getattr(function, "__self__", None)
            for label, function in self._functions.items()
        }
        return {
            label: frozenset(cast("WorkQueue[Hashable]", queue).known())
            for label, queue in owners.items()
            if isinstance(queue, WorkQueue)
        }


@dataclass(frozen=True, slots=True)
class _Labelled:
    label: str
    functions: dict[str, Callable[[], float]]

    def set_function(self, function: Callable[[], float]) -> None:
        self.functions[self.label] = function


@dataclass(frozen=True, slots=True)
class Queues:
    """How many keys wait in each queue of a manager, and how many objects it remembers."""

    waiting: Reading = field(default_factory=Reading)
    keys: Reading = field(default_factory=Reading)
    remembered: Reading = field(default_factory=Reading)
    """Number of objects in each map of per-object state."""

    def read_from(self, metrics: Metrics) -> Metrics:
        """Returns the same instruments, but these can be read for one manager alone."""
        own = copy(metrics)
        own.queue_depth = cast("Labelled[Gauge]", self.waiting)
        own.queue_keys = cast("Labelled[Gauge]", self.keys)
        own.remembered_objects = cast("Labelled[Gauge]", self.remembered)

        def for_cloud(name: str) -> Metrics:
            del name  # the names of queues have it
            return own

        vars(own)["for_cloud"] = for_cloud
        vars(own)["_parts"] = {}  # otherwise `_unread_metrics` keeps the controllers of every seed
        return own
