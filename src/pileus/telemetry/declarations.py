"""The declared metrics as values: for the reference page, the dashboard and the alerts."""

from typing import cast

from prometheus_client.metrics import MetricWrapperBase

from pileus.dataclass import dataclass
from pileus.telemetry.metrics import COUNTERS_WITHOUT_TOTAL


@dataclass(frozen=True, slots=True)
class Declaration:
    """One metric: the name under which it is served, its type, labels and help text."""

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


def declarations(holder: object) -> dict[str, Declaration]:
    """Returns the metrics that are attributes of an object, by the name of the attribute."""
    return {
        attribute: _declaration(each)
        for attribute, each in vars(holder).items()
        if isinstance(each, MetricWrapperBase)
    }


def _declaration(metric: MetricWrapperBase) -> Declaration:
    (family,) = metric.describe()
    bare = family.type != "counter" or family.name in COUNTERS_WITHOUT_TOTAL
    return Declaration(
        name=family.name if bare else f"{family.name}_total",
        kind=family.type,
        # The library publishes label names only with the first sample.
        labels=cast("tuple[str, ...]", vars(metric)["_labelnames"]),
        text=family.documentation,
    )
