"""An informer's store is what the server has, and handlers are told all of it."""

import asyncio
from random import Random

import pytest

from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.store import NamespacedName
from pileus.testing.scripted import (
    Answer,
    Scripted,
    Silence,
    Stream,
    event,
    listing,
    refused,
    status,
)
from tests.unit.kube.harness import ODD, PLAIN, QUIET, Following, Kube, Recorder, end_of_list, node


async def test_a_list_fills_the_store_and_a_watch_follows():
    following = Following(
        Answer(200, listing([node("a", "1"), node("b", "2")], version="5")),
        Stream([
            event("MODIFIED", node("a", "6")),
            event("DELETED", node("b", "7")),
            event("ADDED", node("c", "8")),
            Silence(60),
        ]),
        QUIET,
    )
    assert not following.informer.has_synced

    async with following.running():
        await following.informer.wait_synced()
        await asyncio.sleep(1)
        store = following.informer.store
        assert {n.metadata.name for n in store.list()} == {"a", "c"}
        found = store.get(NamespacedName("", "a"))
        assert found
        assert found.metadata.resource_version == "6"

    assert following.recorder.told == ["+a1", "+b2", "~a6", "-b", "+c8"]
    assert following.queries == ["list", "watch 5"]


async def test_an_update_shares_with_the_version_before_what_is_equal():
    def version(number: str, is_ready: str) -> dict[str, object]:
        conditions = [{"type": "Ready", "status": is_ready}]
        return {**node("a", number), "status": {"conditions": conditions}}

    following = Following(
        Answer(200, listing([version("1", "True")], version="5")),
        Stream([
            Silence(10),
            event("MODIFIED", version("6", "True")),
            Silence(10),
            event("MODIFIED", version("7", "False")),
            Silence(60),
        ]),
        QUIET,
    )
    seen = list[Node]()

    async with following.running():
        for _ in range(3):
            await asyncio.sleep(8)
            seen.extend(following.informer.store.list())

    assert [each.metadata.resource_version for each in seen] == ["1", "6", "7"]
    one, two, three = (each.status and each.status.conditions for each in seen)
    assert two is one
    assert [each.status for each in three or ()] == ["False"]


async def test_a_watch_that_ends_goes_on_at_once_from_the_last_version():
    following = Following(
        Answer(200, listing([], version="5")),
        Stream([event("ADDED", node("a", "6")), event("BOOKMARK", node("", "70"))]),
        Stream([Silence(80)]),
        QUIET,
    )

    async with following.running(79):
        assert following.queries == ["list", "watch 5", "watch 70"]
        await asyncio.sleep(2)
        assert following.queries[3:] == ["watch 70"]


async def test_a_watch_lasts_five_to_ten_minutes():
    following = Following(Answer(200, listing([])), *[Stream([Silence(2)])] * 50, QUIET)

    async with following.running(99):
        asked = [int(r.query["timeoutSeconds"]) for r in following.kube.transport.requests[1:]]

    assert all(300 <= seconds <= 600 for seconds in asked)
    assert len(set(asked)) > 10


async def test_a_streaming_list_needs_one_request():
    following = Following(
        Stream([
            event("ADDED", node("a", "1")),
            event("ADDED", node("b", "2")),
            event("MODIFIED", node("a", "3")),
            event("DELETED", node("b", "4")),
            event("BOOKMARK", node("", "4")),
            Silence(5),
            end_of_list("7"),
            event("ADDED", node("c", "8")),
            Silence(10),
        ]),
        QUIET,
        options=InformerOptions(),
    )

    async with following.running(4):
        assert not following.informer.has_synced
        await asyncio.sleep(2)
        assert following.informer.has_synced
        await asyncio.sleep(10)

    assert following.recorder.told == ["+a3", "+c8"]
    assert following.queries == ["stream", "watch 8"]


@pytest.mark.parametrize(
    "no",
    [
        Stream([event("ERROR", status(500, "InternalError", "storage does not support it"))]),
        refused(400, "BadRequest"),
        refused(422, "Invalid", "sendInitialEvents: Forbidden"),
        Stream([event("ADDED", node("a", "1"))]),
        Stream([event("ADDED", node("a", "1")), Silence()]),
    ],
    ids=["in-stream", "400", "422", "no-end", "silent"],
)
async def test_a_server_without_streaming_lists_gets_plain_ones_from_then_on(no: Scripted):
    following = Following(
        no,
        Answer(200, listing([node("a", "1")], version="5")),
        refused(410, "Expired"),
        Answer(200, listing([node("a", "1")], version="6")),
        QUIET,
        options=InformerOptions(),
    )

    async with following.running(100):
        pass

    assert following.queries == ["stream", "list", "watch 5", "list", "watch 6"]
    assert following.recorder.told == ["+a1"]


async def test_an_object_that_stops_to_decode_is_kept_as_it_was_known():
    odd = {**ODD, "metadata": {"name": "a", "resourceVersion": "9"}}
    following = Following(
        Answer(200, listing([node("a", "1"), node("b", "2")], version="5")),
        Stream([event("MODIFIED", odd), event("ERROR", status(410, "Expired"))]),
        Answer(200, listing([odd, node("b", "2")], version="12")),
        Stream([event("DELETED", odd), Silence(60)]),
    )

    async with following.running(1):
        pass

    assert following.recorder.told == ["+a1", "+b2", "-a"]


async def test_an_odd_object_in_a_streaming_relist_is_kept_too():
    odd = {**ODD, "metadata": {"name": "a", "resourceVersion": "9"}}
    following = Following(
        Stream([event("ADDED", node("a", "1")), end_of_list("5"), event("ERROR", status(410))]),
        Stream([event("ADDED", odd), end_of_list("12"), Silence(60)]),
        options=InformerOptions(),
    )

    async with following.running(1):
        assert len(following.informer.store) == 1

    assert following.recorder.told == ["+a1"]


async def test_objects_without_a_name_are_skipped_and_without_a_uid_are_not():
    nameless: dict[str, object] = {"metadata": {"resourceVersion": "7"}}
    following = Following(
        Answer(200, listing([nameless, node("a", "1")], version="5")),
        Stream([event("ADDED", nameless), event("ADDED", node("b", "8")), Silence(60)]),
    )

    async with following.running(1):
        pass

    assert following.recorder.told == ["+a1", "+b8"]


async def test_a_handler_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture):
    class Broken:
        def added(self, _new: Node) -> None:
            raise RuntimeError("bug in the handler")

        def updated(self, _old: Node, _new: Node) -> None:
            raise AssertionError

        def deleted(self, _old: Node) -> None:
            raise AssertionError

    following = Following(
        Answer(200, listing([node("a", "1")], version="5")),
        Stream([event("DELETED", node("a", "6")), Silence(60)]),
    )
    following.informer._handlers.insert(0, Broken())

    async with following.running(1):
        pass

    assert following.recorder.told == ["+a1", "-a"]
    assert "bug in the handler" in caplog.text


async def test_who_subscribes_late_is_told_of_all_that_is_there():
    following = Following(Answer(200, listing([node("a", "1"), node("b", "2")])), QUIET)
    late = Recorder()

    async with following.running(1):
        following.informer.subscribe(late)

    assert late.told == ["+a1", "+b2"]


async def test_a_resync_tells_everything_anew_in_its_period():
    following = Following(
        Answer(200, listing([node("a", "1")])),
        QUIET,
        options=InformerOptions(streaming=False, resync=100),
    )

    async with following.running(99):
        assert following.recorder.told == ["+a1"]
        await asyncio.sleep(102)
        assert following.recorder.told == ["+a1", "~a1"]
        await asyncio.sleep(2000)
        assert 10 <= following.recorder.told.count("~a1") <= 21


async def test_indexes_are_kept():
    kube = Kube(Answer(200, listing([node("a"), node("b")])), QUIET)
    informer = Informer(
        kube.client,
        NODES,
        random=Random(1),
        indexes={"first": lambda n: [n.metadata.name[:1]]},
        options=PLAIN,
    )

    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.wait_synced()
        assert [n.metadata.name for n in informer.store.by_index("first", "b")] == ["b"]
        task.cancel()
