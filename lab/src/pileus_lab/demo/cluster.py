"""The cluster through the API, with a user's credentials, and the Service of the scenario."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import aiohttp

from pileus.app.background import background
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.errors import AlreadyExists, NotFound
from pileus.kube.http import HttpTransport
from pileus.kube.informer import Informer
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import (
    EVENTS,
    NODES,
    SERVICES,
    Event,
    Node,
    Service,
    ServicePort,
    ServiceSpec,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.store import NamespacedName
from pileus.telemetry.metrics import new_metrics
from pileus_lab.demo.facts import address_of_service, is_tainted, node_changes, service_changes
from pileus_lab.demo.state import Board

LEASE = "cloud-controller-manager"


class Cluster:
    """Nodes, Services and events, and which nodes registered with the taint."""

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
        """Events, the oldest first."""
        return tuple(sorted(self._events.store.list(), key=_when))

    async def leader(self) -> str:
        """The holder of the manager's lease; empty: none."""
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
        self._report(None, new)

    def updated(self, old: Node, new: Node) -> None:
        self._report(old, new)

    def deleted(self, old: Node) -> None:
        self._report(old, None)

    def _report(self, old: Node | None, new: Node | None) -> None:
        for effect, text in node_changes(old, new):
            self._board.note("cluster", effect, text)


class _Services:
    def __init__(self, board: Board) -> None:
        self._board = board

    def added(self, new: Service, /) -> None:
        self._report(None, new)

    def updated(self, old: Service, new: Service, /) -> None:
        self._report(old, new)

    def deleted(self, old: Service, /) -> None:
        self._report(old, None)

    def _report(self, old: Service | None, new: Service | None) -> None:
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
    """Follows the cluster while the block lasts."""
    async with api_client(kubeconfig, "pileus-demo") as client:
        cluster = Cluster(client, random, board)
        async with background(cluster.run()):
            yield cluster


NAME, NAMESPACE = "shop", "default"
PATIENCE = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True, slots=True)
class Ports:
    front: int
    """Port of the balancer."""
    node: int
    """Port of its members."""


class Shop:
    """A Service named shop, of type LoadBalancer."""

    def __init__(self, cluster: Cluster, ports: Ports) -> None:
        self._cluster = cluster
        self._ports = ports
        self.answers: Counter[str] = Counter()
        """Requests so far, by the instance that answered."""

    async def open(self) -> None:
        """Creates the Service as `kubectl create` does; an existing one stays."""
        port = ServicePort(name="http", port=self._ports.front, node_port=self._ports.node)
        body = Service(
            metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
            spec=ServiceSpec(type="LoadBalancer", ports=(port,)),
        )
        with suppress(AlreadyExists):
            await self._cluster.client.create(SERVICES, body, namespace=NAMESPACE)

    async def close(self) -> None:
        """Deletes the Service as `kubectl delete` does; deleting a missing one succeeds."""
        with suppress(NotFound):
            await self._cluster.client.delete(SERVICES, NAME, namespace=NAMESPACE)

    def service(self) -> Service | None:
        return self._cluster.service(NAMESPACE, NAME)

    def url(self) -> str:
        """The address in the Service's status; empty: none."""
        service = self.service()
        address = address_of_service(service) if service else ""
        return f"http://{address}:{self._ports.front}/" if address else ""

    async def visit(self, times: int) -> Counter[str]:
        """Requests the page that many times on new connections.

        Returns the instances that answered.
        """
        url = self.url()
        if not url:
            return Counter({"the Service has no address": times})
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
            told = Counter([await _ask(session, url) for _ in range(times)])
        self.answers += told
        return told


async def _ask(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, OSError) as error:
        return f"no answer ({type(error).__name__})"
    return text.partition("\n")[0]


async def is_listening(address: str, port: int) -> bool:
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(address, port)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
