"""A client and an informer whose API server is a script, for the tests beside this file."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import msgspec

from pileus.fence import Fence
from pileus.kube.access import Server
from pileus.kube.client import Client
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.store import NamespacedName, key_of
from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Scripted, ScriptedTransport, Silence, Stream, event, in_order


def node(name: str, version: str = "1", **metadata: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": version, **metadata}}


ODD = {"metadata": {"name": "odd", "uid": "u-1"}, "spec": {"unschedulable": "perhaps"}}


class Kube:
    """A client whose server is a script."""

    def __init__(self, *replies: Scripted, fence: Fence | None = None) -> None:
        self.transport = ScriptedTransport(in_order(*replies))
        self.metrics = Metrics(MetricRegistry())
        self.client = Client(
            self.transport,
            user_agent="test/1",
            metrics=self.metrics,
            fence=fence,
            server=Server("api:6443", "who that is"),
        )

    @property
    def sent(self) -> Request:
        return self.transport.requests[-1]

    @property
    def body(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", msgspec.json.decode(self.sent.body or b"{}"))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.value(name, labels)


PLAIN = InformerOptions(streaming=False)
QUIET = Stream([Silence(60), event("BOOKMARK", node("", "9"))] * 1000)


def end_of_list(version: str) -> dict[str, object]:
    marked = node("", version, annotations={"k8s.io/initial-events-end": "true"})
    return event("BOOKMARK", marked)


class Recorder:
    """Notes what it is told, and replays it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.replay: dict[NamespacedName, Node] = {}

    def added(self, new: Node) -> None:
        assert key_of(new) not in self.replay
        self.replay[key_of(new)] = new
        self.told.append(f"+{new.metadata.name}{new.metadata.resource_version}")

    def updated(self, old: Node, new: Node) -> None:
        assert self.replay[key_of(new)] == old
        self.replay[key_of(new)] = new
        self.told.append(f"~{new.metadata.name}{new.metadata.resource_version}")

    def deleted(self, old: Node) -> None:
        assert self.replay.pop(key_of(old)) == old
        self.told.append(f"-{old.metadata.name}")


class Following:
    """An informer on a scripted server, and what its handler was told."""

    def __init__(self, *replies: Scripted, options: InformerOptions = PLAIN) -> None:
        self.kube = Kube(*replies)
        self.informer = Informer(self.kube.client, NODES, random=Random(1), options=options)
        self.recorder = Recorder()
        self.informer.subscribe(self.recorder)

    @property
    def queries(self) -> list[str]:
        """Each request as `list`, `stream` or `watch from VERSION`."""
        return [_named(dict(r.query)) for r in self.kube.transport.requests]

    @asynccontextmanager
    async def running(self, seconds: float = 0.0) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.informer.run())
            await asyncio.sleep(seconds)
            yield
            task.cancel()


def _named(query: dict[str, str]) -> str:
    if "watch" not in query:
        return "list"
    return "stream" if "sendInitialEvents" in query else f"watch {query['resourceVersion']}"
