"""Whatever happens on a server, and to the connection: in the end the store is its mirror."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.client import Client
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES
from pileus.kube.store import key_of
from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import (
    Answer,
    Cut,
    Lost,
    Scripted,
    ScriptedTransport,
    Silence,
    Stream,
    event,
    listing,
    refused,
    status,
)
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.unit.kube.harness import Recorder, end_of_list, node

FAULTS = ["", "", "lost", "cut", "dead", "expired", "garbage", "unavailable", "brief"]


@dataclass
class Server:
    """Objects with a history that can be listed in pages, watched, and forgotten."""

    faults: Iterator[str]
    streams: bool
    version: int = 1
    compacted: int = 0
    objects: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])
    events: list[tuple[int, dict[str, object]]] = field(
        default_factory=list[tuple[int, dict[str, object]]]
    )

    def perform(self, operation: str, name: str) -> None:
        self.version += 1
        version = str(self.version)
        match operation:
            case "put":
                known = name in self.objects
                self.objects[name] = node(name, version, uid=f"{name}-{self._births(name)}")
                kind = "MODIFIED" if known else "ADDED"
                self.events.append((self.version, event(kind, self.objects[name])))
            case "delete" if name in self.objects:
                gone = {**self.objects.pop(name)}
                gone["metadata"] = {"name": name, "resourceVersion": version}
                self.events.append((self.version, event("DELETED", gone)))
            case "forget":
                self.compacted = self.version
            case _:
                pass

    def versions(self) -> dict[str, str]:
        return {name: _metadata(item)["resourceVersion"] for name, item in self.objects.items()}

    def respond(self, request: Request) -> Scripted:
        fault = next(self.faults, "")
        match fault:
            case "lost":
                return Lost()
            case "unavailable":
                return refused(503, "ServiceUnavailable")
            case _ if "watch" not in request.query:
                return self._page(request.query.get("continue", "0/0"))
            case _ if "sendInitialEvents" not in request.query:
                return self._resumed(int(request.query["resourceVersion"]), fault)
            case _ if self.streams:
                return Stream(self._streamed(fault))
            case _:
                return refused(422, "Invalid", "sendInitialEvents: Forbidden")

    def _births(self, name: str) -> int:
        added = [e for _, e in self.events if e["type"] == "DELETED"]
        return sum(1 for e in added if _name(e["object"]) == name)

    def _page(self, token: str) -> Scripted:
        version, start = (int(part) for part in token.split("/"))
        if not start:
            version = self.version
        elif version < self.compacted:
            return refused(410, "Expired")
        items = sorted(self._at(version).items())
        page = [item for _, item in items[start : start + 2]]
        more = f"{version}/{start + 2}" if start + 2 < len(items) else ""
        return Answer(200, listing(page, version=str(version), more=more), delay=0.7)

    def _at(self, version: int) -> dict[str, dict[str, object]]:
        state: dict[str, dict[str, object]] = {}
        for at, happened in self.events:
            item = happened["object"]
            assert isinstance(item, dict)
            if at <= version and happened["type"] == "DELETED":
                state.pop(_name(item), None)
            elif at <= version:
                state[_name(item)] = item
        return state

    def _resumed(self, version: int, fault: str) -> Scripted:
        if version >= self.compacted:
            return Stream(self._live(version, fault))
        if self.version % 2:
            return refused(410, "Expired")
        return Stream([event("ERROR", status(410, "Expired"))])

    def _streamed(self, fault: str) -> Iterator[object]:
        version = self.version
        for name in sorted(self.objects):
            yield event("ADDED", self.objects[name])
            if fault == "cut":
                yield Cut()
        yield end_of_list(str(version))
        yield from self._live(version, fault)

    def _live(self, version: int, fault: str) -> Iterator[object]:
        for _ in range(1 if fault == "brief" else 30):
            for at, happened in tuple(self.events):
                if at > version:
                    yield happened
            version = self.version
            yield event("BOOKMARK", node("", str(version)))
            yield {
                "cut": Cut(),
                "dead": Silence(),
                "expired": event("ERROR", status(410, "Expired")),
                "garbage": b"<html>\n",
            }.get(fault, Silence(10))


def _metadata(item: object) -> dict[str, str]:
    assert isinstance(item, dict)
    return item["metadata"]


def _name(item: object) -> str:
    return _metadata(item)["name"]


operations = st.tuples(
    st.floats(0, 40),
    st.sampled_from(["put", "put", "put", "delete", "delete", "forget"]),
    st.sampled_from("abcde"),
)


@given(
    history=st.lists(operations, max_size=25),
    faults=st.lists(st.sampled_from(FAULTS), max_size=8),
    streams=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_store_becomes_what_the_server_has(
    history: list[tuple[float, str, str]], faults: list[str], streams: bool, seed: int
):
    async def live() -> None:
        server = Server(iter(faults), streams)
        transport = ScriptedTransport(server.respond)
        client = Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))
        options = InformerOptions(resync=50)
        informer = Informer(client, NODES, random=Random(seed), options=options)
        recorder = Recorder()
        informer.subscribe(recorder)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            for delay, operation, name in history:
                server.perform(operation, name)
                await asyncio.sleep(delay)
            await asyncio.sleep(1200)  # beyond all faults
            task.cancel()

        mirrored = {key_of(item): item for item in informer.store.list()}
        versions = {key.name: item.metadata.resource_version for key, item in mirrored.items()}
        assert versions == server.versions()
        assert recorder.replay == mirrored

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(live())
