"""The informers that all controllers share: one per kind, created on first use, run together."""

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import starmap
from random import Random
from typing import Any, Final, Protocol, cast

from pileus.dataclass import dataclass
from pileus.kube.client import EVERYTHING, Client, Selector
from pileus.kube.errors import CredentialsError, Forbidden, KubeError, Unauthorized
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.meta import Resource, T
from pileus.kube.store import Index
from pileus.runtime.memory import ForgetsDeleted
from pileus.runtime.supervision import Supervised

BY_UID: Final = "uid"
UID_INDEX: Mapping[str, Index[Any]] = {BY_UID: lambda each: (each.metadata.uid,)}
"""Finds an object of which only the UID is known, such as a Service by a tag in the cloud."""
DEAD = 300.0
"""Seconds without contact and without a known reason after which the process is unhealthy."""
SILENT = 120.0
"""Seconds without contact after which the process does not count as ready."""


class Watched(Protocol):
    """The part of an informer that health checks read."""

    failure: KubeError | None

    @property
    def has_synced(self) -> bool: ...
    def age(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Blindness:
    """Which kind cannot be listed, and whether waiting cannot help."""

    text: str
    is_lasting: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Which objects of a kind an informer follows; without fields all of them."""

    namespace: str = ""
    selector: Selector = EVERYTHING
    client: Client | None = None
    """Reads with this client's identity instead of the manager's."""


ALL = Part()


def freeze() -> None:
    """Exclude what exists now from garbage collection: caches live as long as the process.

    Without a collection before it, which finds about 300 objects among 60,000 in 30 ms.
    """
    gc.freeze()


class Informers:
    """One informer per kind (and part of it), requested before or while `run` runs.

    Every informer that was requested is in the health checks.
    """

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
        self._made: dict[str, Informer[Any]] = {}
        self._requested = asyncio.Event()

    def of(
        self,
        resource: Resource[T],
        indexes: Mapping[str, Index[T]] | None = None,
        part: Part = ALL,
    ) -> Informer[T]:
        """Returns the informer of a kind; always the same one for the same kind and part.

        `indexes` are added to those that were requested before.
        """
        name = _name(resource, part)
        informer = cast("Informer[T] | None", self._made.get(name))
        if informer is None:
            options = replace(self._options, namespace=part.namespace, selector=part.selector)
            informer = Informer(
                part.client or self._client, resource, random=self._random, options=options
            )
            informer.subscribe(ForgetsDeleted())
            self._made[name] = informer
            self._requested.set()
        informer.add_indexes(indexes or {})
        return informer

    async def run(self) -> None:
        """Run every informer that was or will be requested, until cancelled."""
        running: set[str] = set()
        metrics = self._client.metrics
        async with asyncio.TaskGroup() as group:
            while True:
                self._requested.clear()
                new = {name: each for name, each in self._made.items() if name not in running}
                running |= new.keys()
                for informer in new.values():
                    name = f"informer-{informer.resource.plural}"
                    following = Supervised(name, informer.run, self._random, metrics)
                    group.create_task(following.run(), name=name)
                    group.create_task(self._when_synced(informer))
                await self._requested.wait()

    def ill(self) -> str | None:
        """Returns what justifies a restart, or None."""
        return next(filter(None, starmap(illness, self._all())), None)

    def not_ready(self) -> str | None:
        """Returns why the process is not ready, or None."""
        return next(filter(None, starmap(unreadiness, self._all())), None)

    def blindness(self) -> Blindness | None:
        """Returns which kind could not be listed yet and why, if the API server said why."""
        for name, informer in self._all():
            if informer.failure is not None and not informer.has_synced:
                lasting = isinstance(informer.failure, Forbidden | Unauthorized | CredentialsError)
                return Blindness(f"{name} cannot be read: {informer.failure}", is_lasting=lasting)
        return None

    def _all(self) -> tuple[tuple[str, Informer[Any]], ...]:
        """A copy: health checks read it from another thread."""
        return tuple(self._made.items())

    async def _when_synced(self, informer: Informer[Any]) -> None:
        await informer.wait_synced()
        self._synced()


def _name(resource: Resource[Any], part: Part) -> str:
    """The name in logs and health checks: `nodes`, `configmaps kube-system/metadata.name=keys`."""
    where = "/".join(filter(None, (part.namespace, part.selector.fields, part.selector.labels)))
    return f"{resource.plural} {where}" if where else resource.plural


def illness(name: str, informer: Watched) -> str | None:
    """Returns a message for liveness: a watch was silent for minutes without a known failure.

    An API server that is down is no reason for a restart: a restart would not fix it.
    """
    if informer.failure is not None or informer.age() <= DEAD:
        return None
    return f"watch of {name}: no byte for {informer.age():.0f} s"


def unreadiness(name: str, informer: Watched) -> str | None:
    """Returns a message for readiness: the kind is not listed yet, or its watch is silent."""
    if not informer.has_synced:
        return f"{name} are not listed yet: {informer.failure or 'under way'}"
    if informer.age() > SILENT:
        return (
            f"watch of {name}: silent for {informer.age():.0f} s: {informer.failure or 'no byte'}"
        )
    return None
