"""Traces of passes, as a collector receives them."""

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from pileus.app.errors import CommandFailed
from pileus.cloud.errors import Unavailable
from pileus.runtime.reconcile import DONE, Result
from pileus.telemetry.journal import Line, Subject
from pileus.telemetry.journal_settings import JournalSettings
from pileus.telemetry.journal_sinks import SinkUnavailable, journal_sinks
from pileus.telemetry.passes import (
    calling,
    observed,
    passing,
    planned,
    recording,
    requested,
    wrote,
)
from pileus.testing.virtual_time import LoopClock
from tests.unit.app.test_manager import manager

NODE = Subject(kind="Node", name="web-1")


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        server = self.server
        assert isinstance(server, Collector)
        server.paths.append(self.path)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                server.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Nothing: a test prints no requests."""


@contextmanager
def collector() -> Generator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def value(span: Span, key: str) -> object:
    for each in span.attributes:
        if each.key == key:
            kind = each.value.WhichOneof("value")
            if kind == "array_value":
                return [one.string_value for one in each.value.array_value.values]
            return getattr(each.value, kind or "string_value")
    return None


async def one_pass(*, fails: bool = False) -> Result:
    import asyncio

    with passing("cloud-node-controller") as this:
        observed(NODE, "instance i-1")
        with calling("instances.find", 3, is_write=False):
            await asyncio.sleep(0.5)
            requested("GET /servers", 200, 0.4, "req-7")
        planned([(NODE, Line(place="cluster", action="update", summary="addresses"))])
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.25)
        wrote("PATCH /api/v1/nodes/web-1", began, 200, "", "audit-1")
        if fails:
            this.failed(Unavailable("the cloud is down"), 5.0)
        else:
            this.done()
    return DONE


async def test_a_pass_is_one_trace_with_observe_plan_calls_and_writes() -> None:
    with collector() as server:
        async with journal_sinks(JournalSettings(otlp_endpoint=server.url)) as sinks:
            with recording(LoopClock(), *sinks):
                await one_pass()

    assert set(server.paths) == {"/v1/traces"}
    by_name = {span.name: span for span in server.spans}
    root = by_name["pass cloud-node-controller"]
    assert len({span.trace_id for span in server.spans}) == 1
    assert not root.parent_span_id
    observe, call = by_name["observe"], by_name["instances.find"]
    assert observe.parent_span_id == root.span_id
    assert call.parent_span_id == observe.span_id
    assert value(call, "pileus.request_ids") == ["req-7"]
    assert value(call, "pileus.items") == 3
    assert by_name["plan"].parent_span_id == root.span_id
    assert value(by_name["plan"], "pileus.plan") == ["Node web-1: update cluster: addresses"]
    write = by_name["PATCH /api/v1/nodes/web-1"]
    assert value(write, "pileus.audit_id") == "audit-1"
    assert call.end_time_unix_nano - call.start_time_unix_nano == pytest.approx(5e8, abs=2e6)
    assert root.end_time_unix_nano - root.start_time_unix_nano == pytest.approx(7.5e8, abs=2e6)


async def test_a_failed_pass_is_an_error_and_every_pass_has_its_own_trace() -> None:
    with collector() as server:
        async with journal_sinks(JournalSettings(otlp_endpoint=f"{server.url}/")) as sinks:
            with recording(LoopClock(), *sinks):
                await one_pass()
                await one_pass(fails=True)

    roots = [span for span in server.spans if not span.parent_span_id]
    assert len({span.trace_id for span in roots}) == 2
    assert [span.status.message for span in roots] == ["", "the cloud is down"]


async def test_a_quiet_pass_is_traced_too() -> None:
    with collector() as server:
        async with journal_sinks(JournalSettings(otlp_endpoint=server.url)) as sinks:
            with recording(LoopClock(), *sinks), passing("service") as this:
                observed(NODE, "nothing to do")
                this.done()

    assert [span.name for span in server.spans if not span.parent_span_id] == ["pass service"]


async def test_a_missing_extra_is_named_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "pileus.telemetry.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SinkUnavailable, match=r"pip install '\.\[otlp\]'"):
        async with journal_sinks(JournalSettings(otlp_endpoint="http://127.0.0.1:9")):
            raise AssertionError("must not start")
    with pytest.raises(CommandFailed, match="--otlp-endpoint"):
        await manager("--otlp-endpoint=http://127.0.0.1:9").run()
