"""The informers that all controllers share: made when first asked for, run together."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from random import Random
from typing import Protocol

from pileus.kube.client import Client
from pileus.kube.errors import CredentialsError, Forbidden, KubeError, Unauthorized
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.runtime.memory import ForgetsDeleted
from pileus.runtime.supervision import Supervised

BY_UID = "uid"
"""The index by which a Service is found whose owner mark is all that is known."""
DEAD = 300.0
"""Seconds without contact, and without a known reason, after which the process is ill."""
SILENT = 120.0
"""Seconds without contact after which the process does not count as ready."""


class Watched(Protocol):
    """What health checks look at."""

    failure: KubeError | None

    @property
    def has_synced(self) -> bool: ...
    def age(self) -> float: ...
    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Blindness:
    """What cannot be seen, and whether it takes someone to mend that."""

    text: str
    is_lasting: bool


def freeze() -> None:
    """What is there now lives long: keep the collector from walking through it each time."""
    gc.collect()
    gc.freeze()


class SharedInformers:
    """One informer per kind. Whoever needs one asks before `run` begins, or any time after."""

    def __init__(
        self,
        client: Client,
        random: Random,
        resync: float,
        synced: Callable[[], None] = freeze,
    ) -> None:
        self._client = client
        self._synced = synced
        self._random = random
        self._options = InformerOptions(resync=resync)
        self._nodes: Informer[Node] | None = None
        self._services: Informer[Service] | None = None
        self._asked = asyncio.Event()

    def nodes(self) -> Informer[Node]:
        if self._nodes is None:
            self._nodes = Informer(self._client, NODES, random=self._random, options=self._options)
            self._nodes.subscribe(ForgetsDeleted())
            self._asked.set()
        return self._nodes

    def services(self) -> Informer[Service]:
        if self._services is None:
            self._services = Informer(
                self._client,
                SERVICES,
                random=self._random,
                indexes={BY_UID: lambda service: (service.metadata.uid,)},
                options=self._options,
            )
            self._services.subscribe(ForgetsDeleted())
            self._asked.set()
        return self._services

    async def run(self) -> None:
        """Run every informer that was or will be asked for, until cancelled."""
        running: set[str] = set()
        metrics = self._client.metrics
        async with asyncio.TaskGroup() as group:
            while True:
                self._asked.clear()
                new = {name: each for name, each in self._made() if name not in running}
                running |= new.keys()
                for name, informer in new.items():
                    following = Supervised(f"informer-{name}", informer.run, self._random, metrics)
                    group.create_task(following.run(), name=f"informer-{name}")
                    group.create_task(self._tell_when_synced(informer))
                await self._asked.wait()

    def ill(self) -> str | None:
        """What is wrong enough for a restart, if anything is."""
        return next(filter(None, starmap(illness, self._made())), None)

    def not_ready(self) -> str | None:
        """What keeps this process from being ready, if anything does."""
        return next(filter(None, starmap(unreadiness, self._made())), None)

    def blindness(self) -> Blindness | None:
        """Why something is not listed yet, if the API server has said why."""
        for name, informer in self._made():
            if informer.failure is not None and not informer.has_synced:
                lasting = isinstance(informer.failure, Forbidden | Unauthorized | CredentialsError)
                return Blindness(f"{name} cannot be read: {informer.failure}", is_lasting=lasting)
        return None

    async def _tell_when_synced(self, informer: Watched) -> None:
        await informer.wait_synced()
        self._synced()

    def _made(self) -> Iterator[tuple[str, Watched]]:
        if self._nodes is not None:
            yield "nodes", self._nodes
        if self._services is not None:
            yield "services", self._services


def illness(name: str, informer: Watched) -> str | None:
    """For liveness: a watch without a byte for minutes, though nothing is known to be wrong.

    While the API server is away restarting would mend nothing, and is no reason to.
    """
    if informer.failure is not None or informer.age() <= DEAD:
        return None
    return f"watch of {name}: no byte for {informer.age():.0f} s"


def unreadiness(name: str, informer: Watched) -> str | None:
    """For readiness: what was not listed yet, or has not been heard of for long."""
    if not informer.has_synced:
        return f"{name} are not listed yet: {informer.failure or 'under way'}"
    if informer.age() > SILENT:
        return (
            f"watch of {name}: silent for {informer.age():.0f} s: {informer.failure or 'no byte'}"
        )
    return None
