"""What may only look cannot write, whatever asks it to."""

import pytest

from pileus.kube.client import Client
from pileus.kube.errors import ReadOnly
from pileus.kube.transport import (
    Permits,
    Request,
    Restricted,
    all_requests,
    reads,
    reads_and_events,
)
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Answer, ScriptedTransport

EVENTS = "/api/v1/namespaces/default/events"


@pytest.mark.parametrize(
    ("method", "path", "permitting"),
    [
        ("GET", "/api/v1/nodes", (reads, reads_and_events)),
        ("HEAD", "/healthz", (reads, reads_and_events)),
        ("POST", EVENTS, (reads_and_events,)),
        ("PATCH", f"{EVENTS}/web.17", (reads_and_events,)),
        ("DELETE", f"{EVENTS}/web.17", ()),
        ("DELETE", EVENTS, ()),
        ("PUT", f"{EVENTS}/web.17", ()),
        ("POST", "/api/v1/nodes", ()),
        ("PATCH", "/api/v1/nodes/n1", ()),
        ("PATCH", "/api/v1/namespaces/default/services/events", ()),
        ("PATCH", "/api/v1/namespaces/events", ()),
        ("POST", "/api/v1/namespaces/default/events/web.17/status", ()),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", ()),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/node-controller/token", ()),
    ],
)
def test_what_is_permitted(method: str, path: str, permitting: tuple[Permits, ...]) -> None:
    request = Request(method=method, path=path)

    assert all_requests(request)
    for permits in (reads, reads_and_events):
        assert permits(request) is (permits in permitting)


async def test_a_write_is_not_sent_and_says_why() -> None:
    wire = ScriptedTransport(lambda _: Answer(200, b"ok"))
    client = Client(Restricted(wire, reads), user_agent="test", metrics=Metrics(MetricRegistry()))

    assert await client.raw("GET", "/healthz") == b"ok"
    with pytest.raises(ReadOnly, match="DELETE /api/v1/nodes/n1: not sent"):
        await client.raw("DELETE", "/api/v1/nodes/n1")

    assert [request.method for request in wire.requests] == ["GET"]
