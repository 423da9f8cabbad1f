"""Each verb sends what Kubernetes expects, and understands what it answers."""

import asyncio
from datetime import UTC, datetime

import pytest

from pileus.fence import Fenced
from pileus.kube.client import Preconditions, Selector
from pileus.kube.errors import (
    Expired,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
    Unreadable,
)
from pileus.kube.model.coordination_v1 import LEASES, Lease, LeaseSpec
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES, SERVICE_ACCOUNTS, ConfigMap, Node
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.patch import JsonPatch, MergePatch, StrategicPatch
from pileus.testing.scripted import (
    Answer,
    Lost,
    listing,
    refused,
    status,
)
from tests.unit.kube.harness import ODD, Kube, node


class Closed:
    def check(self) -> None:
        raise Fenced("not the leader")


async def test_get_returns_the_typed_object():
    kube = Kube(Answer(200, node("worker-1", uid="u-7")))

    found = await kube.client.get(NODES, "worker-1")

    assert isinstance(found, Node)
    assert found.metadata.uid == "u-7"
    assert (kube.sent.method, kube.sent.path) == ("GET", "/api/v1/nodes/worker-1")
    assert kube.sent.headers["Accept"] == "application/json"
    assert kube.sent.headers["User-Agent"] == "test/1"


async def test_get_of_what_is_not_there_is_not_found():
    kube = Kube(refused(404, "NotFound", "no such node"))

    with pytest.raises(NotFound, match=r"GET /api/v1/nodes/worker-1.*no such node"):
        await kube.client.get(NODES, "worker-1")


@pytest.mark.parametrize("body", [b"<html>", b"[]", {"metadata": {"name": 7}}, b"\xff"])
async def test_an_answer_that_is_no_node_is_unreadable(body: object):
    kube = Kube(Answer(200, body))

    with pytest.raises(Unreadable, match="GET /api/v1/nodes/worker-1: not a Node"):
        await kube.client.get(NODES, "worker-1")


@pytest.mark.parametrize("name", ["", "a/b", ".", ".."])
async def test_a_name_that_would_reach_something_else_is_refused(name: str):
    kube = Kube()

    with pytest.raises(ValueError, match="cannot be the name of a Node"):
        await kube.client.delete(NODES, name)
    with pytest.raises(ValueError, match="cannot be the name of a Node"):
        await kube.client.get(NODES, name)


async def test_create_fills_in_kind_and_version():
    kube = Kube(Answer(201, node("x")))

    await kube.client.create(
        CONFIG_MAPS,
        ConfigMap(metadata=ObjectMeta(name="x"), data={"a": "b"}),
        namespace="kube-system",
    )

    assert (kube.sent.method, kube.sent.path) == (
        "POST",
        "/api/v1/namespaces/kube-system/configmaps",
    )
    assert kube.sent.headers["Content-Type"] == "application/json"
    assert kube.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"a": "b"},
    }


async def test_create_below_an_object_sends_the_body_as_it_is():
    kube = Kube(Answer(201, {}))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}

    await kube.client.create(
        SERVICE_ACCOUNTS, body, namespace="kube-system", name="node", subresource="token"
    )

    assert kube.sent.path == "/api/v1/namespaces/kube-system/serviceaccounts/node/token"
    assert kube.body == body


async def test_micro_times_are_written_with_six_digits():
    kube = Kube(Answer(200, {}))
    renewed = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(renew_time=renewed))

    await kube.client.update(LEASES, lease, name="l", namespace="kube-system")

    assert kube.sent.method == "PUT"
    assert kube.body["spec"] == {"renewTime": "2026-01-02T03:04:05.000000Z"}


@pytest.mark.parametrize(
    ("patch", "content_type"),
    [
        (MergePatch({"spec": {"x": 1}}), "application/merge-patch+json"),
        (StrategicPatch({"spec": {"x": 1}}), "application/strategic-merge-patch+json"),
        (JsonPatch([{"op": "remove", "path": "/x"}]), "application/json-patch+json"),
    ],
)
async def test_a_patch_names_its_kind(
    patch: MergePatch | StrategicPatch | JsonPatch, content_type: str
):
    kube = Kube(Answer(200, node("worker-1")))

    await kube.client.patch(NODES, "worker-1", patch, subresource="status")

    assert (kube.sent.method, kube.sent.path) == ("PATCH", "/api/v1/nodes/worker-1/status")
    assert kube.sent.headers["Content-Type"] == content_type
    assert kube.body == patch.body


async def test_delete_carries_its_preconditions():
    kube = Kube(Answer(200, status(200)), Answer(200, status(200)))

    await kube.client.delete(NODES, "worker-1", preconditions=Preconditions(uid="u-7"))

    assert kube.body["preconditions"] == {"uid": "u-7"}

    await kube.client.delete(NODES, "worker-1")

    assert kube.sent.body is None


async def test_raw_gives_the_body_as_it_is():
    kube = Kube(Answer(200, b"ok"))

    assert await kube.client.raw("GET", "/healthz", query={"verbose": ""}) == b"ok"
    assert kube.sent.query == {"verbose": ""}


async def test_a_list_is_fetched_in_pages():
    kube = Kube(
        Answer(200, listing([node("a"), node("b")], version="9", more="next")),
        Answer(200, listing([node("c")], version="9")),
    )

    listed = await kube.client.list(NODES, selector=Selector(labels="x=y", fields="a=b"), limit=2)

    assert [n.metadata.name for n in listed.items] == ["a", "b", "c"]
    assert listed.resource_version == "9"
    first, second = (r.query for r in kube.transport.requests)
    assert first == {"labelSelector": "x=y", "fieldSelector": "a=b", "limit": "2"}
    assert second == {**first, "continue": "next"}


async def test_a_list_that_expires_between_pages_is_fetched_anew_in_one_piece():
    kube = Kube(
        Answer(200, listing([node("a"), node("gone")], more="next")),
        refused(410, "Expired"),
        Answer(200, listing([node("a"), node("c")], version="12")),
    )

    listed = await kube.client.list(NODES, limit=2)

    assert [n.metadata.name for n in listed.items] == ["a", "c"]
    assert listed.resource_version == "12"
    assert kube.sent.query == {}


async def test_a_list_that_expires_twice_is_an_error():
    kube = Kube(refused(410, "Expired"), refused(410, "Expired"))

    with pytest.raises(Expired):
        await kube.client.list(NODES)


async def test_one_odd_object_does_not_spoil_a_list():
    kube = Kube(Answer(200, listing([node("a"), ODD, {"metadata": {"name": 5}}, node("b")])))

    listed = await kube.client.list(NODES)

    assert [n.metadata.name for n in listed.items] == ["a", "b"]
    assert [(n.metadata.name, n.metadata.uid) for n in listed.unreadable] == [
        ("odd", "u-1"),
        ("", ""),
    ]
    assert kube.sample("pileus_unreadable_objects_total", resource="nodes") == 2.0


async def test_null_times_and_null_items_are_tolerated():
    item = {"metadata": {"name": "a", "creationTimestamp": None}, "spec": None, "status": None}
    kube = Kube(Answer(200, listing([item])), Answer(200, {**listing([]), "items": None}))

    assert len((await kube.client.list(NODES)).items) == 1
    assert (await kube.client.list(NODES)).items == ()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"items":[]}', b'{"items":7}', b"[]"])
async def test_a_list_that_is_no_list_is_unreadable(body: bytes):
    kube = Kube(Answer(200, body))

    with pytest.raises(Unreadable, match="GET /api/v1/nodes: not a list of Node"):
        await kube.client.list(NODES)


async def test_patience_is_given_where_the_server_asks_for_it():
    kube = Kube(
        refused(503, "ServiceUnavailable", retry_after=20),
        refused(429, "TooManyRequests", retry_after=7),
        Answer(200, node("a")),
    )
    loop = asyncio.get_running_loop()
    began = loop.time()

    await kube.client.get(NODES, "a")

    assert loop.time() - began == pytest.approx(27)


async def test_patience_has_an_end():
    kube = Kube(*[refused(429, "TooManyRequests", retry_after=1)] * 5)

    with pytest.raises(TooManyRequests):
        await kube.client.get(NODES, "a")
    assert len(kube.transport.requests) == 5


@pytest.mark.parametrize(
    "reply",
    [
        refused(429, "TooManyRequests"),
        refused(429, "TooManyRequests", retry_after=3600),
        refused(503, "ServiceUnavailable"),
    ],
)
async def test_without_a_reasonable_retry_after_there_is_one_try(reply: Answer):
    kube = Kube(reply)

    with pytest.raises((TooManyRequests, ServiceUnavailable)):
        await kube.client.get(NODES, "a")


async def test_a_write_is_repeated_after_429_but_not_after_503():
    kube = Kube(refused(429, "TooManyRequests", retry_after=1), Answer(200, node("a")))
    await kube.client.patch(NODES, "a", MergePatch({}))
    assert len(kube.transport.requests) == 2

    kube = Kube(refused(503, "ServiceUnavailable", retry_after=1))
    with pytest.raises(ServiceUnavailable):
        await kube.client.patch(NODES, "a", MergePatch({}))


async def test_a_lost_answer_is_not_asked_for_again():
    kube = Kube(Lost(may_have_acted=True))

    with pytest.raises(Unreachable) as caught:
        await kube.client.patch(NODES, "a", MergePatch({}))
    assert caught.value.may_have_acted


async def test_a_server_that_does_not_answer_is_given_up():
    kube = Kube(Answer(200, node("a"), delay=3600))

    with pytest.raises(Unreachable) as caught:
        await kube.client.get(NODES, "a")
    assert caught.value.timed_out


async def test_a_closed_fence_lets_reads_pass_and_no_write():
    kube = Kube(Answer(200, node("a")), fence=Closed())

    await kube.client.get(NODES, "a")
    for write in (
        kube.client.create(NODES, {}),
        kube.client.update(NODES, {}, name="a"),
        kube.client.patch(NODES, "a", MergePatch({})),
        kube.client.delete(NODES, "a"),
        kube.client.raw("POST", "/x", body=b"{}"),
    ):
        with pytest.raises(Fenced):
            await write

    assert len(kube.transport.requests) == 1


async def test_a_fence_that_closes_during_a_wait_stops_the_second_try():
    loop = asyncio.get_running_loop()

    class ClosesAfterASecond:
        def check(self) -> None:
            if loop.time() > 1:
                raise Fenced("the lease is old")

    kube = Kube(refused(429, "TooManyRequests", retry_after=5), fence=ClosesAfterASecond())

    with pytest.raises(Fenced):
        await kube.client.delete(NODES, "a")
    assert len(kube.transport.requests) == 1


async def test_the_transport_asks_the_fence_again_right_before_a_write_leaves():
    """Credentials are fetched in between, which may take longer than the lease is good for."""

    class Closing:
        is_closed = False

        def check(self) -> None:
            if self.is_closed:
                raise Fenced("the lease is old")

    fence = Closing()
    kube = Kube(Answer(200, node("a")), fence=fence)
    await kube.client.patch(NODES, "a", MergePatch({}))
    fence.is_closed = True

    assert kube.sent.guard is not None
    with pytest.raises(Fenced):
        kube.sent.guard()


async def test_requests_are_measured():
    kube = Kube(Answer(200, b"12345"), refused(404, "NotFound"), Lost())

    await kube.client.raw("POST", "/x", body=b"123")
    for error in (NotFound, Unreachable):
        with pytest.raises(error):
            await kube.client.get(NODES, "a")

    for code, method in (("200", "POST"), ("404", "GET"), ("<error>", "GET")):
        count = kube.sample("rest_client_requests_total", code=code, method=method, host="api:6443")
        assert count == 1.0
    post = {"verb": "POST", "host": "api:6443"}
    assert kube.sample("rest_client_request_size_bytes_sum", **post) == 3.0
    assert kube.sample("rest_client_response_size_bytes_sum", **post) == 5.0
    assert kube.sample("rest_client_request_duration_seconds_count", **post) == 1.0
    assert kube.sample("rest_client_rate_limiter_duration_seconds_count", **post) == 1.0
