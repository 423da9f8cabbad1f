"""The cluster as the audience sees it: through the API, with credentials like a user's."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from pileus.app.beside import beside
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.errors import NotFound
from pileus.kube.http import HttpTransport
from pileus.kube.informer import Informer
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES, Event, Node, Service
from pileus.kube.store import NamespacedName
from pileus.telemetry.metrics import new_metrics
from pileus_lab.demo.board import Board
from pileus_lab.demo.facts import is_tainted, node_changes, service_changes

LEASE = "cloud-controller-manager"


class Cluster:
    """Nodes, Services and events as they are, and which nodes were seen to register tainted."""

    def __init__(self, client: Client, random: Random, board: Board) -> None:
        self.client = client
        self._board = board
        self._nodes = Informer(client, NODES, random=random)
        self._services = Informer(client, SERVICES, random=random)
        self._events = Informer(client, EVENTS, random=random)
        self.came_tainted: set[str] = set()
        """Names of nodes that had the taint when they registered."""
        self._nodes.subscribe(self)
        self._services.subscribe(_Services(board))

    def nodes(self) -> Mapping[str, Node]:
        return {node.metadata.name: node for node in self._nodes.store.list()}

    def node(self, name: str) -> Node | None:
        return self._nodes.store.get(NamespacedName("", name))

    def service(self, namespace: str, name: str) -> Service | None:
        return self._services.store.get(NamespacedName(namespace, name))

    def events(self) -> tuple[Event, ...]:
        """The oldest first."""
        return tuple(sorted(self._events.store.list(), key=_when))

    async def leader(self) -> str:
        """Who holds the manager's lease; nobody: empty."""
        try:
            lease = await self.client.get(LEASES, LEASE, namespace="kube-system")
        except NotFound:
            return ""
        return (lease.spec.holder_identity if lease.spec else None) or ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._services.run())
            group.create_task(self._events.run())

    def added(self, new: Node) -> None:
        if is_tainted(new):
            self.came_tainted.add(new.metadata.name)
        self._tell(None, new)

    def updated(self, old: Node, new: Node) -> None:
        self._tell(old, new)

    def deleted(self, old: Node) -> None:
        self._tell(old, None)

    def _tell(self, old: Node | None, new: Node | None) -> None:
        for effect, text in node_changes(old, new):
            self._board.note("cluster", effect, text)


class _Services:
    def __init__(self, board: Board) -> None:
        self._board = board

    def added(self, new: Service, /) -> None:
        self._tell(None, new)

    def updated(self, old: Service, new: Service, /) -> None:
        self._tell(old, new)

    def deleted(self, old: Service, /) -> None:
        self._tell(old, None)

    def _tell(self, old: Service | None, new: Service | None) -> None:
        for effect, text in service_changes(old, new):
            self._board.note("cluster", effect, text)


def _when(event: Event) -> tuple[datetime, str]:
    at = event.last_timestamp or event.metadata.creation_timestamp
    return (at or datetime.min.replace(tzinfo=UTC), event.metadata.name)


@asynccontextmanager
async def api_client(kubeconfig: Path, user_agent: str) -> AsyncGenerator[Client]:
    access = load_access(str(kubeconfig), "", {})
    metrics = new_metrics()
    async with HttpTransport(access) as transport:
        yield Client(transport, user_agent=user_agent, metrics=metrics)


@asynccontextmanager
async def seen_cluster(kubeconfig: Path, random: Random, board: Board) -> AsyncGenerator[Cluster]:
    """Follow the cluster for as long as the block lasts."""
    async with api_client(kubeconfig, "pileus-demo") as client:
        cluster = Cluster(client, random, board)
        async with beside(cluster.run()):
            yield cluster
