"""A cluster's nodes, a cloud and an event sink in memory, with the semantics that matter."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from pileus.cloud.model import Found, NodeName, NodeRef
from pileus.controllers.node.patches import Write, patch_of
from pileus.controllers.node.reconciler import NodeReconciler, NodeRefresher, Tools
from pileus.controllers.node.settings import NodeSettings
from pileus.kube.errors import ApiError, Conflict, NotFound, Status
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import NodeReplaced, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import provider_id_of
from pileus.objects.ownership import owner_by
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.node.objects import Document, merged, patched, typed


class FakeNodes:
    """The nodes of a cluster. `stale` freezes the local view, as a slow watch does."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = {_name(each): each for each in documents}
        self.writes: list[tuple[str, Write]] = []
        self.reads = 0
        self.stale: dict[str, Document] = {}
        self.before_write: list[Callable[[str, Write], None]] = []
        """Each is called before one write, in order: may raise, or change the documents."""
        self.write_takes = 0.0

    def node(self, name: str) -> Node | None:
        found = self.stale.get(name) or self.documents.get(name)
        return None if found is None else typed(found)

    def nodes(self) -> tuple[Node, ...]:
        return tuple(typed(each) for each in (self.documents | self.stale).values())

    def of_machine(self, provider_id: str) -> Sequence[Node]:
        return [each for each in self.nodes() if provider_id_of(each) == provider_id]

    async def read(self, name: str) -> Node:
        self.reads += 1
        await asyncio.sleep(0)
        if name not in self.documents:
            raise api_error(NotFound, 404)
        return typed(self.documents[name])

    async def write(self, node: Node, write: Write) -> Node:
        name = node.metadata.name
        await asyncio.sleep(self.write_takes)
        if self.before_write:
            self.before_write.pop(0)(name, write)
        if name not in self.documents:
            raise api_error(NotFound, 404)
        before = self.documents[name]
        after = patched(before, *patch_of(node, write))
        if _meta(after, "uid") != _meta(before, "uid"):
            raise NodeReplaced(name)
        if _meta(after, "resourceVersion") != _meta(before, "resourceVersion"):
            raise api_error(Conflict, 409)
        self.replace(after)
        self.writes.append((name, write))
        return typed(self.documents[name])

    def replace(self, document: Document) -> None:
        """Store a new version of a node, as another writer would."""
        version = str(int(_meta(document, "resourceVersion")) + 1)
        metadata = {**_metadata(document), "resourceVersion": version}
        self.documents[_name(document)] = {**document, "metadata": metadata}

    def change(self, name: str, **parts: Mapping[str, object]) -> None:
        """Have someone else change the parts of a node that are named."""
        before = self.documents[name]
        self.replace(merged(before, dict(parts), strategic=False))


def _metadata(document: Document) -> dict[str, str]:
    return document["metadata"]  # type: ignore[return-value]


def _meta(document: Document, field: str) -> str:
    return _metadata(document)[field]


def _name(document: Document) -> str:
    return _meta(document, "name")


def api_error(kind: type[ApiError], status: int, message: str = "") -> ApiError:
    return kind("PATCH /api/v1/nodes/x", status, Status(message=message))


class FakeInstances:
    """A cloud. An answer that is an exception is raised; what is not listed is unknown."""

    def __init__(self, answers: Mapping[str, object], *, takes: float = 0.01) -> None:
        self.answers = dict(answers)
        self.calls: list[tuple[str, ...]] = []
        self.times: list[float] = []
        """When each call was made."""
        self.takes = takes
        self.whole: object = None
        """What every call ends with instead: an exception, or any value at all."""

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        assert not fresh, "metadata is asked for: a ported provider would not be asked for it else"
        self.calls.append(tuple(ref.name for ref in nodes))
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes)
        if isinstance(self.whole, Exception):
            raise self.whole
        if self.whole is not None:
            return self.whole  # type: ignore[return-value]
        return {ref.name: self.answers[ref.name] for ref in nodes if ref.name in self.answers}  # type: ignore[return-value]


class World:
    """The controller's two halves with fakes around them."""

    def __init__(
        self,
        documents: Sequence[Document],
        answers: Mapping[str, object],
        *,
        sync_labels: bool = False,
    ) -> None:
        self.nodes = FakeNodes(documents)
        self.cloud = FakeInstances(answers)
        self.events = FakeEvents()
        self.metrics = Metrics(MetricRegistry())
        self.tools = Tools(
            nodes=self.nodes,
            instances=self.cloud,
            whose=owner_by("fake", None),
            writer=NodeWriter(self.nodes, random.Random(1)),
            notices=ObjectEvents(self.events),
            clock=LoopClock(),
            metrics=self.metrics,
        )
        self.reconciler = NodeReconciler(self.tools)
        settings = NodeSettings(sync_labels=sync_labels)
        self.refresher = NodeRefresher(
            self.tools, self.reconciler.performer, settings, random.Random(1)
        )

    def node(self, name: str = "n1") -> Node:
        return typed(self.nodes.documents[name])

    def samples(self, metric: str) -> float:
        return self.metrics.registry.value(metric) or 0.0
