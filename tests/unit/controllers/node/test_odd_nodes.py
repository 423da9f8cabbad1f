"""Nodes that should not exist: each is left alone or worked on, and harms no other."""

import asyncio
import copy
from collections.abc import Callable, Iterator

import pytest

from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Answer, Scripted, Silence, event, listing
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.node.api_server import ApiServer
from tests.unit.controllers.node.harness import FakeInstances
from tests.unit.controllers.node.objects import Document, document, instance
from tests.unit.controllers.node.test_controller import Site, running

A_WHILE = 600
HUGE = 30_000_000


class OddApiServer(ApiServer):
    """Shows one more node than it has, as it is, in lists and as a watch event."""

    def __init__(self, documents: list[Document], odd: object, *, watched: bool) -> None:
        super().__init__(documents)
        self.odd, self.watched = odd, watched
        self.requests: list[str] = []
        self.bodies: list[bytes] = []

    def respond(self, request: Request) -> Scripted:
        self.requests.append(f"{request.method} {request.path}")
        self.bodies.append(request.body or b"")
        return super().respond(request)

    def _list(self) -> Scripted:
        items: list[object] = list(self.documents.values())
        shown = items if self.watched else [items[0], self.odd, *items[1:]]
        return Answer(200, listing(shown, version=str(self.version)))

    def _watch(self) -> Iterator[object]:
        if self.watched:
            yield Silence(1)
            yield event("ADDED", self.odd)
            yield event("MODIFIED", self.odd)
        yield from super()._watch()


def without(*path: str) -> Document:
    odd = copy.deepcopy(document("odd"))
    inner: dict[str, object] = odd
    for step in path[:-1]:
        inner = inner[step]  # type: ignore[assignment]
    del inner[path[-1]]
    return odd


def having(change: Callable[[dict[str, dict[str, object]]], object]) -> Document:
    odd = copy.deepcopy(document("odd"))
    change(odd)  # type: ignore[arg-type]
    return odd


ODD = {
    "no metadata": without("metadata"),
    "no name": without("metadata", "name"),
    "no uid": without("metadata", "uid"),
    "no version": without("metadata", "resourceVersion"),
    "no creation time": without("metadata", "creationTimestamp"),
    "no spec": without("spec"),
    "no status": without("status"),
    "metadata alone": {"metadata": {"name": "odd"}},
    "null parts": {**document("odd"), "spec": None, "status": None},
    "null labels": having(lambda odd: odd["metadata"].update(labels=None, annotations=None)),
    "null times": having(lambda odd: odd["metadata"].update(creationTimestamp=None)),
    "null time of a taint": having(
        lambda odd: odd["spec"].update(taints=[{"key": "a", "effect": "b", "timeAdded": None}])
    ),
    "null lists": having(lambda odd: odd["status"].update(addresses=None, conditions=None)),
    "unknown fields": having(lambda odd: odd.update(novel={"deep": [1, {"er": None}]})),
    "a time that is none": having(lambda odd: odd["metadata"].update(creationTimestamp="soon")),
    "a number for a name": having(lambda odd: odd["metadata"].update(name=7)),
    "a list for spec": {**document("odd"), "spec": []},
    "text for an object": "node",
    "null for an object": None,
}


def site(odd: object, *, watched: bool) -> tuple[Site, OddApiServer]:
    server = OddApiServer([document("a"), document("b")], odd, watched=watched)
    answers = {name: instance(name) for name in ("a", "b", "odd")}
    metrics = Metrics(MetricRegistry())
    return Site(server, FakeInstances(answers), FakeEvents(), metrics), server


@pytest.mark.parametrize("watched", [False, True], ids=["listed", "watched"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
async def test_an_odd_node_harms_no_other_and_causes_no_busy_loop(odd, watched):
    at, server = site(odd, watched=watched)

    async with running(at):
        await asyncio.sleep(A_WHILE)
        server.put(document("late"))
        at.cloud.answers["late"] = instance("late")
        await asyncio.sleep(60)

    for name in ("a", "b", "late"):
        assert server.patches.count(f"{name}/") == 1
    assert len(server.requests) < 30, "in eleven minutes, with two requests for each node"


UNREADABLE = ("a time that is none", "a number for a name", "a list for spec", "text for an object")


@pytest.mark.parametrize("watched", [False, True], ids=["listed", "watched"])
@pytest.mark.parametrize("name", UNREADABLE)
async def test_what_cannot_be_read_is_told_once(name, watched, caplog):
    at, _ = site(ODD[name], watched=watched)

    async with running(at):
        await asyncio.sleep(A_WHILE)

    told = [record for record in caplog.records if "does not decode" in record.message]
    assert len(told) == 1, "however often it comes"


@pytest.mark.parametrize("watched", [False, True], ids=["listed", "watched"])
async def test_a_node_of_thirty_megabytes_is_a_node(watched):
    at, server = site(document("a"), watched=True)
    huge = document("odd", annotations={"blob": "x" * HUGE})
    if not watched:
        server.put(huge)

    async with running(at):
        await asyncio.sleep(10)
        if watched:
            server.put(huge)
        await asyncio.sleep(A_WHILE)

    assert server.patches.count("odd/") == 1
    assert max(map(len, server.bodies)) < 10_000, "nothing of it is sent back"
