"""A watch tells every change, whatever the network and the objects are like."""

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from pileus.kube.client import WatchOptions
from pileus.kube.codec import WatchEvent
from pileus.kube.errors import Expired, Unreachable, Unreadable
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES, Node
from pileus.testing.scripted import Cut, Silence, Stream, event, refused, status
from tests.unit.kube.harness import ODD, Kube, node


async def watched(kube: Kube, options: WatchOptions | None = None) -> list[WatchEvent[Node]]:
    async with aclosing(kube.client.watch(NODES, options=options)) as events:
        return [seen async for seen in events]


async def test_a_watch_asks_for_bookmarks_and_an_end():
    kube = Kube(Stream())

    assert await watched(kube, WatchOptions(resource_version="7", duration=321)) == []
    assert kube.sent.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "321",
        "resourceVersion": "7",
    }
    assert kube.sent.timeout is None
    assert kube.sent.idle_timeout == 90.0


async def test_a_streaming_list_is_asked_for_in_kubernetes_words():
    kube = Kube(Stream())

    await watched(kube, WatchOptions(initial_events=True))

    assert kube.sent.query["sendInitialEvents"] == "true"
    assert kube.sent.query["resourceVersionMatch"] == "NotOlderThan"


async def test_events_survive_chunks_that_are_cut_anywhere():
    kinds = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    text = b"".join(msgspec.json.encode(event(k, node(f"ü-{k}"))) + b"\n" for k in kinds)

    for size in (1, 2, 3, 7, 50, len(text)):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        seen = await watched(Kube(Stream(chunks)))
        assert [(e.type, e.object.metadata.name) for e in seen] == [(k, f"ü-{k}") for k in kinds]


async def test_a_line_without_its_end_is_no_event():
    kube = Kube(Stream([event("ADDED", node("a")), b'{"type":"ADDED","object":{}}']))

    assert len(await watched(kube)) == 1


async def test_an_expired_version_is_told_by_status_and_in_the_stream():
    with pytest.raises(Expired):
        await watched(Kube(refused(410, "Expired")))
    with pytest.raises(Expired, match="WATCH /api/v1/nodes"):
        await watched(Kube(Stream([event("ERROR", status(410, "Expired"))])))


async def test_an_error_event_for_a_kind_that_could_hold_anything_is_an_error_too():
    kube = Kube(Stream([event("ERROR", status(410, "Gone"))]))

    with pytest.raises(Expired):
        async with aclosing(kube.client.watch(CONFIG_MAPS)) as events:
            await anext(events)


async def test_an_odd_object_in_a_watch_is_marked_and_counted():
    steps = [event("MODIFIED", ODD), event("DELETED", ODD), event("ADDED", node("a"))]
    kube = Kube(Stream(steps))

    seen = await watched(kube)

    assert [(e.type, e.object.metadata.name) for e in seen] == [
        ("UNREADABLE", "odd"),
        ("DELETED", "odd"),
        ("ADDED", "a"),
    ]
    assert "unschedulable" in seen[0].problem
    assert kube.sample("pileus_unreadable_objects_total", resource="nodes") == 1.0


async def test_an_unknown_type_of_event_is_marked():
    seen = await watched(Kube(Stream([event("PONDERED", node("a"))])))

    assert [(e.type, e.problem) for e in seen] == [
        ("UNREADABLE", "unknown type of event 'PONDERED'")
    ]


@pytest.mark.parametrize("line", [b"<html>\n", b"[]\n", b'{"type":"ADDED"}\n', b"\xff\xfe\n"])
async def test_a_line_that_is_no_event_is_unreadable(line: bytes):
    with pytest.raises(Unreadable, match="WATCH /api/v1/nodes: not an event"):
        await watched(Kube(Stream([line])))


async def test_a_silent_watch_is_dead_after_90_seconds():
    kube = Kube(Stream([event("ADDED", node("a")), Silence()]))
    loop = asyncio.get_running_loop()

    with pytest.raises(Unreachable) as caught:
        await watched(kube)
    assert caught.value.timed_out
    assert loop.time() == pytest.approx(90)


async def test_a_cut_watch_is_counted_once():
    kube = Kube(Stream([event("ADDED", node("a")), Cut()]))

    with pytest.raises(Unreachable):
        await watched(kube)

    counted = {each.labels["code"]: each.value for each in kube.metrics.requests.samples({})}
    assert counted == {"200": 1.0}


async def test_contact_is_told_for_headers_and_for_each_chunk():
    contacts: list[float] = []
    loop = asyncio.get_running_loop()
    options = WatchOptions(on_contact=lambda: contacts.append(loop.time()))
    kube = Kube(Stream([Silence(10), b'{"type":"ADDED"', Silence(5), b',"object":{}}\n']))

    await watched(kube, options)

    assert contacts == pytest.approx([0, 10, 15])


async def test_a_node_of_30_megabytes_is_read():
    big = node("big", annotations={"huge": "x" * 30_000_000})
    text = msgspec.json.encode(event("ADDED", big)) + b"\n"
    chunks = [text[i : i + 65536] for i in range(0, len(text), 65536)]

    seen = await watched(Kube(Stream(chunks)))

    assert [e.object.metadata.name for e in seen] == ["big"]
