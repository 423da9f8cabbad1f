"""`/metrics`: the instruments of a registry, in Prometheus' text format or in OpenMetrics."""

from collections.abc import Iterable, Iterator
from typing import cast

import msgspec
from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Metric,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST as OPEN_METRICS_TYPE,
)
from prometheus_client.openmetrics.exposition import (
    generate_latest as open_metrics,  # pyright: ignore[reportUnknownVariableType] -- no types
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import (
    floatToGoString,  # pyright: ignore[reportUnknownVariableType] -- its argument has no type
)

from pileus.server import answer
from pileus.server.build import Build
from pileus.server.router import Handler, Routes
from pileus.telemetry.metrics import COUNTERS_WITHOUT_TOTAL

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"
_TYPES = {"unknown": "untyped"}


def add_process_metrics(registry: CollectorRegistry, build: Build) -> None:
    """Add what concerns the process as such: build, CPU, memory, files, garbage collection."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    labels = msgspec.structs.asdict(build)
    told = Gauge(
        "kubernetes_build_info",
        "[ALPHA] Always 1; the labels say which build this is",
        sorted(labels),
        registry=registry,
    )
    told.labels(**labels).set(1)


def metrics_routes(registry: CollectorRegistry) -> Routes:
    return Routes({"/metrics": exposing(registry)})


def exposing(registry: CollectorRegistry) -> Handler:
    """Return a handler that shows the registry in the form that the client prefers."""

    async def handle(request: web.BaseRequest) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            return answer.not_allowed("GET", "HEAD")
        if OPEN_METRICS in request.headers.get("Accept", ""):
            body, kind = open_metrics_text(registry), OPEN_METRICS_TYPE
        else:
            body, kind = prometheus_text(registry), TEXT
        response = web.Response(body=body, headers={"Content-Type": kind, **answer.NO_SNIFFING})
        response.enable_compression()
        return response

    return handle


class _AsGoShows(Collector):
    """A registry by name, without `_created` series and without families that have no sample."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in sorted(self._registry.collect(), key=lambda metric: metric.name):
            kept = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            created = f"{metric.name}_created"
            kept.samples = [sample for sample in metric.samples if sample.name != created]
            if kept.samples:
                yield kept


def open_metrics_text(registry: CollectorRegistry) -> bytes:
    return cast("bytes", open_metrics(_AsGoShows(registry)))


def prometheus_text(registry: CollectorRegistry) -> bytes:
    """All metrics by name, in format 0.0.4.

    Written here because the library's own text appends `_total` to every counter's name, and two
    counters of Kubernetes have none.
    """
    lines: list[str] = []
    for metric in _AsGoShows(registry).collect():
        bare = metric.name in COUNTERS_WITHOUT_TOTAL
        name = metric.name if metric.type != "counter" or bare else f"{metric.name}_total"
        text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {_TYPES.get(metric.type, metric.type)}")
        lines.extend(_lines(metric.samples, name if bare else None))
    return "".join(f"{line}\n" for line in lines).encode()


def _lines(samples: Iterable[Sample], name: str | None) -> Iterator[str]:
    for sample in samples:
        labels = ",".join(
            f'{key}="{_escaped(sample.labels[key])}"' for key in sorted(sample.labels)
        )
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name or sample.name}{shown} {floatToGoString(sample.value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
