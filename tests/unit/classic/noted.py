"""A cluster whose Services are noted, and processes that come and go."""

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from pileus.classic.adapter import as_cloud
from pileus.classic.calls import Calls
from pileus.cloud.balancer import Owner
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import Service, ServiceStatus
from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Answer, Scripted, ScriptedTransport
from tests.unit.classic.fakes import (
    OWNER,
    STATUS,
    Access,
    Keeping,
    Provider,
    Recorder,
    View,
    kube_node,
    kube_service,
    wish,
)

NOTE = "pileus.dev/ensured"


@dataclass
class Cluster:
    """An API server with one Service, which the informers show at once unless they lag."""

    view: View = field(
        default_factory=lambda: View(
            {name: kube_node(name) for name in ("n1", "n2", "n3")}, {OWNER.uid: kube_service()}
        )
    )
    lags: bool = False
    says: Scripted | None = None
    patches: list[str | None] = field(default_factory=list)
    stored: Service = field(default_factory=kube_service)

    def answer(self, request: Request) -> Scripted:
        assert request.path == "/api/v1/namespaces/shop/services/web/status"
        body: Any = msgspec.json.decode(request.body or b"")
        assert body["metadata"]["uid"] == OWNER.uid
        self.patches.append(body["metadata"]["annotations"][NOTE])
        if self.says is not None:
            return self.says
        self.note(self.patches[-1])
        return Answer(200, self.stored)

    def note(self, text: str | None) -> None:
        metadata = self.stored.metadata
        others = {k: v for k, v in (metadata.annotations or {}).items() if k != NOTE}
        self.put(annotations=others | ({NOTE: text} if text else {}))

    def put(self, port: int = 0, **metadata: Any) -> None:
        version = str(int(self.stored.metadata.resource_version or 0) + 1)
        service = kube_service(port=port) if port else self.stored
        after = changed(self.stored.metadata, resource_version=version, **metadata)
        self.stored = changed(service, metadata=after, status=ServiceStatus(load_balancer=STATUS))
        if not self.lags:
            self.view.known_services[OWNER.uid] = self.stored

    @property
    def is_noted(self) -> bool:
        return NOTE in (self.stored.metadata.annotations or {})

    @asynccontextmanager
    async def process(self, *, name: str = "blue", fence: Any = None, **answers: Any):
        """A manager from its start to its end; nothing of it stays but the note."""
        provider = Provider(Recorder(answers))
        cloud = as_cloud(provider, Calls(), cluster_name=name)
        transport = ScriptedTransport(self.answer)
        client = Client(
            transport, user_agent="test", metrics=Metrics(MetricRegistry()), fence=fence
        )
        assert cloud.leading
        assert cloud.balancers
        async with cloud.leading(Access(self.view, client)):
            provider.record.calls.clear()
            yield Keeping(cloud.balancers, self.keep), provider.record

    def keep(self, owner: Owner, record: str) -> None:
        """The core's write of the status, with the note in it."""
        assert owner == OWNER
        if self.says is None:
            self.note(record)


async def settle(balancers: Any, wanted: Any, *, deep: bool = False) -> Any:
    seen = (await balancers.observe([wanted], deep=deep))[wanted.owner]
    for change in balancers.changes(wanted, seen):
        seen = await balancers.apply(change, seen)
    assert balancers.changes(wanted, seen) == ()
    return seen


async def ensured() -> Cluster:
    """A cluster whose Service was ensured with one member by a process that has ended."""
    cluster = Cluster()
    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"))
        assert record.names == ["ensure"]
    cluster.patches.clear()
    return cluster
