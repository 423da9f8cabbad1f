"""The story's Service, through the API like a user's, and who visits it."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from pileus.kube.errors import AlreadyExists, NotFound
from pileus.kube.model.core_v1 import SERVICES, Service, ServicePort, ServiceSpec
from pileus.kube.model.meta import ObjectMeta
from pileus_lab.demo.cluster import Cluster
from pileus_lab.demo.facts import address_of_service

NAME, NAMESPACE = "shop", "default"
PATIENCE = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True, slots=True)
class Ports:
    front: int
    """Where the balancer listens."""
    node: int
    """Where its members do."""


class Shop:
    """A Service named shop, of type LoadBalancer."""

    def __init__(self, cluster: Cluster, ports: Ports) -> None:
        self._cluster = cluster
        self._ports = ports
        self.answers: Counter[str] = Counter()
        """Visits so far, by the instance that answered."""

    async def open(self) -> None:
        """As `kubectl create` does; what is there already stays."""
        port = ServicePort(name="http", port=self._ports.front, node_port=self._ports.node)
        body = Service(
            metadata=ObjectMeta(name=NAME, namespace=NAMESPACE),
            spec=ServiceSpec(type="LoadBalancer", ports=(port,)),
        )
        with suppress(AlreadyExists):
            await self._cluster.client.create(SERVICES, body, namespace=NAMESPACE)

    async def close(self) -> None:
        """As `kubectl delete` does; what is gone is deleted."""
        with suppress(NotFound):
            await self._cluster.client.delete(SERVICES, NAME, namespace=NAMESPACE)

    def service(self) -> Service | None:
        return self._cluster.service(NAMESPACE, NAME)

    def url(self) -> str:
        """Where the Service says that it is to be visited; nothing, if it does not say."""
        service = self.service()
        address = address_of_service(service) if service else ""
        return f"http://{address}:{self._ports.front}/" if address else ""

    async def visit(self, times: int) -> Counter[str]:
        """Ask for the page that often, each time anew; who answered, or what went wrong."""
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
