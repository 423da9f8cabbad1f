"""OpenTelemetry traces of passes (`--otlp-endpoint`): one trace per pass, sent over HTTP.

    pass ─┬─ observe ── calls to the cloud before the first plan, with request IDs
          ├─ plan, once for each plan of the pass, with its lines
          ├─ calls to the cloud
          └─ writes to the API server

Needs the extra `pileus[otlp]`; this module is imported only if the flag is set.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from pileus.telemetry.journal import Call, Entry, Write
from pileus.telemetry.passes import Pass
from pileus.version import PILEUS, PROGRAM

PATH = "/v1/traces"
TIMEOUT = 5.0
"""Seconds for one export, and for the last one at the end."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Values = Mapping[str, str | int | float | bool | Sequence[str]]


class Traces:
    """A sink of passes. Spans are sent by a thread of the SDK, in batches."""

    def __init__(self, endpoint: str) -> None:
        url = endpoint if endpoint.rstrip("/").endswith(PATH) else endpoint.rstrip("/") + PATH
        named = {"service.name": PROGRAM, "service.version": PILEUS}
        self._provider = TracerProvider(resource=Resource.create(named))
        exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("pileus", PILEUS)

    def __call__(self, this: Pass, entries: Sequence[Entry]) -> None:
        """Send one pass, quiet ones included."""
        told = entries or this.entries(this.ended_at)
        moments = _Moments(this)
        is_failed = this.result == "failed"
        values: dict[str, str | int | float | bool | Sequence[str]] = {
            "pileus.controller": this.controller,
            "pileus.objects": [entry.object.title for entry in told],
            "pileus.observed": [entry.observed for entry in told if entry.observed],
            "pileus.result": this.result,
        }
        if this.next_in is not None:
            values["pileus.next_in"] = this.next_in
        root = self._span(f"pass {this.controller}", moments.at(0.0), None, values)
        self._children(root, moments, this, told)
        if is_failed:
            root.set_status(Status(StatusCode.ERROR, this.message))
        root.end(moments.at(this.ended - this.began))

    def shut_down(self) -> None:
        """Send what is left. Blocks for a few seconds at most."""
        self._provider.shutdown()

    def _children(
        self, root: Span, moments: "_Moments", this: Pass, entries: Sequence[Entry]
    ) -> None:
        first = (this.plans[0] if this.plans else this.ended) - this.began
        observe = self._span("observe", moments.at(0.0), root, {})
        calls = entries[0].calls if entries else ()
        for call in calls:
            self._call(call, moments, observe if call.started < first else root)
        observe.end(moments.at(first))
        lines = [*_lines(entries)]
        for planned in this.plans:
            at = moments.at(planned - this.began)
            self._span("plan", at, root, {"pileus.plan": lines}).end(at)
        for write in (write for entry in entries for write in entry.writes):
            self._write(write, moments, root)

    def _call(self, call: Call, moments: "_Moments", parent: Span) -> None:
        ids = [each.id for each in call.requests if each.id]
        values: dict[str, str | int | float | bool | Sequence[str]] = {
            "pileus.items": call.items,
            "pileus.result": call.result,
            "pileus.requests": [f"{each.request} {each.status}" for each in call.requests],
            "pileus.request_ids": ids,
        }
        span = self._span(call.method, moments.at(call.started), parent, values, SpanKind.CLIENT)
        if call.has_failed:
            span.set_status(Status(StatusCode.ERROR, call.message))
        span.end(moments.at(call.started + call.seconds))

    def _write(self, write: Write, moments: "_Moments", parent: Span) -> None:
        values = {"http.response.status_code": write.status, "pileus.audit_id": write.id}
        span = self._span(write.request, moments.at(write.started), parent, values, SpanKind.CLIENT)
        if write.has_failed:
            span.set_status(Status(StatusCode.ERROR, write.message))
        span.end(moments.at(write.started + write.seconds))

    def _span(
        self,
        name: str,
        start: int,
        parent: Span | None,
        values: Values,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        context = set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(
            name, context=context, kind=kind, attributes=dict(values), start_time=start
        )


class _Moments:
    """Turns seconds since the beginning of a pass into nanoseconds since 1970."""

    def __init__(self, this: Pass) -> None:
        ended = (this.ended_at - _EPOCH).total_seconds()
        self._began = ended - (this.ended - this.began)

    def at(self, seconds: float) -> int:
        return int((self._began + seconds) * 1e9)


def _lines(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        for line in entry.plan:
            what = line.reason or f"{line.action} {line.place}"
            yield f"{entry.object.title}: {what}: {line.summary}"


@asynccontextmanager
async def traces(endpoint: str) -> AsyncGenerator[Traces]:
    """A sink while the block lasts; what is left is sent at its end."""
    sink = Traces(endpoint)
    try:
        yield sink
    finally:
        await asyncio.to_thread(sink.shut_down)
