"""`/metrics`: a registry in the Prometheus text format or in OpenMetrics."""

from collections.abc import Iterator

from pileus.http.messages import Request, Response
from pileus.server import responses
from pileus.server.router import Handler, Routes
from pileus.telemetry.instruments import Family, MetricRegistry, Reading, Sample, number

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"
OPEN_METRICS_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
_TOTAL = "_total"


def metrics_routes(registry: MetricRegistry) -> Routes:
    return Routes({"/metrics": exposing(registry)})


def exposing(registry: MetricRegistry) -> Handler:
    """Returns a handler that serves the registry in the format that the client accepts."""

    async def handle(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return responses.not_allowed("GET", "HEAD")
        if _insists_on_open_metrics(request.headers.get("Accept", "")):
            body, kind = open_metrics_text(registry), OPEN_METRICS_TYPE
        else:
            body, kind = prometheus_text(registry), TEXT
        headers = {"Content-Type": kind, **responses.NO_SNIFFING}
        return Response(body=body, headers=headers, compresses=True)

    return handle


def _insists_on_open_metrics(accept: str) -> bool:
    """Returns whether the client accepts OpenMetrics and not the text format.

    Prometheus prefers OpenMetrics, but accepts both. It gets text, as from the Go framework: in
    OpenMetrics some counters have other names, and bounds of histograms another spelling.
    """
    accepted = {each.partition(";")[0].strip() for each in accept.split(",")}
    return OPEN_METRICS in accepted and not accepted & {"text/plain", "text/*", "*/*"}


def prometheus_text(registry: MetricRegistry) -> bytes:
    """Returns all metrics by name, in the text format 0.0.4."""
    lines: list[str] = []
    for family, samples in _as_go_shows(registry):
        lines.append(f"# HELP {family.name} {_escaped_line(family.text)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(_sample(each.name, each) for each in samples)
    return "".join(f"{line}\n" for line in lines).encode()


def open_metrics_text(registry: MetricRegistry) -> bytes:
    """Returns all metrics by name, in OpenMetrics 1.0, in which all counters end in `_total`."""
    lines: list[str] = []
    for family, samples in _as_go_shows(registry):
        name = _base_name(family)
        ending = _TOTAL if family.kind == "counter" else ""
        lines.append(f"# HELP {name} {_escaped(family.text)}")
        lines.append(f"# TYPE {name} {family.kind}")
        lines.extend(
            _open_sample(each.name.removesuffix(ending) + ending, each) for each in samples
        )
    return "".join(f"{line}\n" for line in (*lines, "# EOF")).encode()


def _as_go_shows(registry: MetricRegistry) -> Iterator[Reading]:
    """Returns metrics sorted by name, those of several clouds together; without empty ones."""
    found: dict[str, tuple[Family, list[Sample]]] = {}
    for family, samples in registry.read():
        found.setdefault(_base_name(family), (family, []))[1].extend(samples)
    for _, (family, samples) in sorted(found.items()):
        if samples:
            yield Reading(family, samples)


def _base_name(family: Family) -> str:
    return family.name.removesuffix(_TOTAL) if family.kind == "counter" else family.name


def _open_sample(name: str, sample: Sample) -> str:
    """In OpenMetrics, numbers that are not counted one by one have a fraction: 1.0."""
    labels = sample.labels
    if "le" in labels:
        labels = {**labels, "le": _with_fraction(labels["le"])}
    plain, _, value = _sample(name, sample._replace(labels=labels)).rpartition(" ")
    return f"{plain} {_with_fraction(value)}"


def _with_fraction(text: str) -> str:
    return f"{text}.0" if text.removeprefix("-").isdigit() else text


def _sample(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sorted(sample.labels.items()))
    shown = f"{{{labels}}}" if labels else ""
    return f"{name}{shown} {number(sample.value)}"


def _escaped_line(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escaped(text: str) -> str:
    return _escaped_line(text).replace('"', r"\"")
