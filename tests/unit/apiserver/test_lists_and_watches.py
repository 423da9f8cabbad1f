"""Pages hold together, and watches tell everything once and in order."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.apiserver.caller import MAPS, NODES, Caller, caller, config_map, node


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_a_list_comes_in_order_and_its_items_name_no_kind():
    call = caller()
    for name in ("b", "c", "a"):
        call.create(NODES, node(name))

    listed = call.get(NODES)

    assert listed["kind"] == "NodeList"
    assert names(listed) == ["a", "b", "c"]
    assert "kind" not in listed["items"][0]


def test_pages_show_one_moment_whatever_happens_meanwhile():
    call = caller()
    for name in ("a", "b", "c", "d"):
        call.create(MAPS, config_map(name, v="old"))

    first = call("GET", MAPS, limit="2").body
    call("DELETE", f"{MAPS}/c")
    call.patch(f"{MAPS}/d", {"data": {"v": "new"}})
    call.create(MAPS, config_map("e"))
    second = call("GET", MAPS, limit="2", **{"continue": first["metadata"]["continue"]}).body

    assert first["metadata"]["remainingItemCount"] == 2
    assert names(first) + names(second) == ["a", "b", "c", "d"]
    assert second["items"][1]["data"] == {"v": "old"}
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


def test_a_page_whose_past_is_forgotten_offers_to_go_on():
    call = caller(history=2)
    for name in ("a", "b", "c"):
        call.create(MAPS, config_map(name))
    token = call("GET", MAPS, limit="1").body["metadata"]["continue"]
    for value in "xyz":
        call.patch(f"{MAPS}/a", {"data": {"v": value}})

    late = call("GET", MAPS, limit="1", **{"continue": token})
    rest = call("GET", MAPS, **{"continue": late.body["metadata"]["continue"]}).body

    assert (late.status, late.body["reason"]) == (410, "Expired")
    assert names(rest) == ["b", "c"]


def test_an_exact_version_can_be_listed_while_it_is_remembered():
    call = caller()
    version = call.create(MAPS, config_map("a"))["metadata"]["resourceVersion"]
    call.create(MAPS, config_map("b"))

    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    then = call("GET", MAPS, **exact).body
    before = call("GET", MAPS, resourceVersion="1", resourceVersionMatch="Exact")

    assert names(then) == ["a"]
    assert (before.status, before.message) == (
        410,
        "The resourceVersion for the provided list is too old.",
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"labelSelector": "x=1"}, ["a"]),
        ({"labelSelector": "x in (1, 2)"}, ["a", "b"]),
        ({"labelSelector": "x notin (1)"}, ["b", "c"]),
        ({"labelSelector": "!x"}, ["c"]),
        ({"labelSelector": "x,x!=2"}, ["a"]),
        ({"labelSelector": "x>1"}, ["b"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b"}, ["a", "c"]),
        ({"fieldSelector": "spec.unschedulable=true"}, ["c"]),
    ],
)
def test_selectors_choose(query: dict[str, str], found: list[str]):
    call = caller()
    call.create(NODES, {"metadata": {"name": "a", "labels": {"x": "1"}}})
    call.create(NODES, {"metadata": {"name": "b", "labels": {"x": "2"}}})
    call.create(NODES, node("c", unschedulable=True))

    assert names(call("GET", NODES, **query).body) == found


class Watch:
    """Reads the events of a watch one by one."""

    def __init__(self, call: Caller, path: str, **query: str) -> None:
        stream = call("GET", path, watch="1", **query).response.stream
        assert stream is not None
        self._stream: AsyncGenerator[bytes] = stream
        self._waiting: list[bytes] = []

    async def next(self) -> tuple[str, Any]:
        while not self._waiting:
            self._waiting = (await anext(self._stream)).splitlines()
        event = json.loads(self._waiting.pop(0))
        return event["type"], event["object"]

    async def rest(self) -> list[tuple[str, Any]]:
        pieces = self._waiting + [line async for p in self._stream for line in p.splitlines()]
        return [(e["type"], e["object"]) for e in map(json.loads, pieces)]

    async def close(self) -> None:
        await self._stream.aclose()


async def test_a_watch_tells_what_follows_a_list():
    call = caller()
    call.create(MAPS, config_map("a"))
    version = call.get(MAPS)["metadata"]["resourceVersion"]
    watch = Watch(call, MAPS, resourceVersion=version, timeoutSeconds="5")

    call.create(MAPS, config_map("b"))
    call.patch(f"{MAPS}/a", {"data": {"x": "y"}})
    call("DELETE", f"{MAPS}/a")
    told = await watch.rest()

    assert [(kind, o["metadata"]["name"]) for kind, o in told] == [
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    versions = [int(o["metadata"]["resourceVersion"]) for _, o in told]
    assert versions == sorted(versions)
    assert told[0][1]["kind"] == "ConfigMap"


async def test_a_watch_wakes_when_something_happens():
    call = caller()
    watch = Watch(call, MAPS, resourceVersion=call.get(MAPS)["metadata"]["resourceVersion"])

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(watch.next())
        await asyncio.sleep(100)
        call.create(MAPS, config_map("late"))
    await watch.close()

    assert waiting.result()[0] == "ADDED"


async def test_a_streaming_list_ends_with_a_bookmark():
    call = caller()
    call.create(NODES, node("a"))
    watch = Watch(
        call,
        NODES,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    )

    first, end = await watch.next(), await watch.next()
    await watch.close()

    assert (first[0], first[1]["metadata"]["name"]) == ("ADDED", "a")
    assert end[0] == "BOOKMARK"
    assert end[1]["kind"] == "Node"
    assert end[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end[1]["metadata"]["resourceVersion"] == call.get(NODES)["metadata"]["resourceVersion"]


async def test_bookmarks_come_every_minute_and_before_the_end():
    call = caller()
    version = call.get(NODES)["metadata"]["resourceVersion"]
    watch = Watch(
        call, NODES, resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="150"
    )
    call.create(MAPS, config_map("elsewhere"))

    told = await watch.rest()

    assert [kind for kind, _ in told] == ["BOOKMARK"] * 3
    current = call.get(NODES)["metadata"]["resourceVersion"]
    assert told[0][1]["metadata"]["resourceVersion"] == current


async def test_a_watch_from_a_forgotten_past_ends_with_410():
    call = caller(history=2)
    for name in ("a", "b", "c", "d"):
        call.create(MAPS, config_map(name))

    told = await Watch(call, MAPS, resourceVersion="1").rest()

    assert len(told) == 1
    assert told[0][0] == "ERROR"
    assert (told[0][1]["code"], told[0][1]["reason"]) == (410, "Expired")
    assert told[0][1]["message"].startswith("too old resource version: 1 (")


async def test_what_leaves_a_selection_is_deleted_for_its_watcher():
    call = caller()
    call.create(NODES, {"metadata": {"name": "a", "labels": {"x": "1"}}})
    version = call.get(NODES)["metadata"]["resourceVersion"]
    query = {"labelSelector": "x=1", "resourceVersion": version, "timeoutSeconds": "1"}
    watch = Watch(call, NODES, **query)

    left = call.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "2"}}})
    call.patch(f"{NODES}/a", {"metadata": {"labels": {"y": "2"}}})
    call.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "1"}}})
    told = await watch.rest()

    assert [kind for kind, _ in told] == ["DELETED", "ADDED"]
    assert told[0][1]["metadata"]["labels"] == {"x": "1"}
    assert told[0][1]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=30)


@given(STEPS, st.integers(0, 30))
def test_a_list_and_its_watch_together_are_the_truth(steps: list[tuple[str, int]], start: int):
    """From any version, what was listed then plus what was told since is what is there now."""
    call = caller()
    seen: dict[str, Any] = {}
    version = ""
    for index, (name, kind) in enumerate(steps):
        if index == min(start, len(steps) - 1):
            listed = call.get(MAPS)
            seen = {i["metadata"]["name"]: i for i in listed["items"]}
            version = listed["metadata"]["resourceVersion"]
        change(call, name, kind, index)

    told = asyncio.run(everything(call, version)) if version else []
    for kind, whole in told:
        value = {k: v for k, v in whole.items() if k not in {"kind", "apiVersion"}}
        if kind == "DELETED":
            del seen[value["metadata"]["name"]]
        else:
            assert (kind == "ADDED") is (value["metadata"]["name"] not in seen)
            seen[value["metadata"]["name"]] = value

    assert [seen[n] for n in sorted(seen)] == (call.get(MAPS)["items"] if version else [])


def change(call: Caller, name: str, kind: int, index: int) -> None:
    if kind == 0:
        call("POST", MAPS, config_map(name))
    elif kind == 1:
        body = {"data": {"v": str(index)}}
        call("PATCH", f"{MAPS}/{name}", body, media="application/merge-patch+json")
    else:
        call("DELETE", f"{MAPS}/{name}")


async def everything(call: Caller, version: str) -> list[tuple[str, Any]]:
    watch = Watch(call, MAPS, resourceVersion=version)
    told: list[tuple[str, Any]] = []
    current = call.get(MAPS)["metadata"]["resourceVersion"]
    while version != current and (
        not told or told[-1][1]["metadata"]["resourceVersion"] != current
    ):
        told.append(await watch.next())
    await watch.close()
    return told
