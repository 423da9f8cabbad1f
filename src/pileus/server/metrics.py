"""`/metrics`: a registry in the Prometheus text format or in OpenMetrics."""

from collections.abc import Iterable, Iterator
from typing import cast

import msgspec
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

from pileus.http.messages import Request, Response
from pileus.server import responses
from pileus.server.build import Build
from pileus.server.router import Handler, Routes
from pileus.telemetry.metrics import COUNTERS_WITHOUT_TOTAL

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"
_TYPES = {"unknown": "untyped"}


def add_process_metrics(registry: CollectorRegistry, build: Build) -> None:
    """Add metrics of the process: build, CPU, memory, files, garbage collection."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    labels = msgspec.structs.asdict(build)
    info = Gauge(
        "kubernetes_build_info",
        "[ALPHA] Always 1; the labels say which build this is",
        sorted(labels),
        registry=registry,
    )
    info.labels(**labels).set(1)


def metrics_routes(registry: CollectorRegistry) -> Routes:
    return Routes({"/metrics": exposing(registry)})


def exposing(registry: CollectorRegistry) -> Handler:
    """Returns a handler that serves the registry in the format that the client accepts."""

    async def handle(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return responses.not_allowed("GET", "HEAD")
        if OPEN_METRICS in request.headers.get("Accept", ""):
            body, kind = open_metrics_text(registry), OPEN_METRICS_TYPE
        else:
            body, kind = prometheus_text(registry), TEXT
        headers = {"Content-Type": kind, **responses.NO_SNIFFING}
        return Response(body=body, headers=headers, compresses=True)

    return handle


class _AsGoShows(Collector):
    """A registry sorted by name, without `_created` series and families without samples."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for metric in sorted(self._registry.collect(), key=lambda metric: metric.name):
            fresh = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            family = families.setdefault(metric.name, fresh)  # several clouds have the same ones
            created = f"{metric.name}_created"
            family.samples += [sample for sample in metric.samples if sample.name != created]
        yield from (family for family in families.values() if family.samples)


def open_metrics_text(registry: CollectorRegistry) -> bytes:
    return cast("bytes", open_metrics(_AsGoShows(registry)))


def prometheus_text(registry: CollectorRegistry) -> bytes:
    """Returns all metrics by name, in format 0.0.4.

    The library's own text appends `_total` to every counter's name, and two counters of Kubernetes
    do not have it.
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
