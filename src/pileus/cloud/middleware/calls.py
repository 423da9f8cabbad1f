"""One way to stand around every call to a provider, whatever the capability.

Most middleware cares only that a call is made, how it ends and whether it writes. It is a function
`around(call, proceed)`; `wrap` puts it around each method of each capability that a cloud has.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from pileus.cloud.balancer import Balancers, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import (
    Cloud,
    Clusters,
    Instances,
    Routes,
    SshKeys,
    Volumes,
    Zones,
)
from pileus.cloud.model import (
    Failure,
    Found,
    InstanceId,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Volume,
    VolumeId,
    VolumeSpec,
    Zone,
)

T = TypeVar("T")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a provider, as middleware sees it."""

    provider: str
    capability: str
    method: str
    writes: bool = False
    items: int = 1
    """How many nodes, wishes or routes it carries."""

    @property
    def name(self) -> str:
        return f"{self.capability}.{self.method}"


class Around(Protocol):
    async def __call__(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        """Make the call by awaiting `proceed()`, at most once; answer what it answers."""
        ...


def wrap(cloud: Cloud, around: Around) -> Cloud:
    """The same cloud, with `around` standing around each of its calls (`changes` is none)."""
    made = _Caller(cloud.name, around)
    return replace(
        cloud,
        instances=_if(cloud.instances, lambda inner: _Instances(inner, made)),
        balancers=_if(cloud.balancers, lambda inner: _Balancers(inner, made)),
        routes=_if(cloud.routes, lambda inner: _Routes(inner, made)),
        volumes=_if(cloud.volumes, lambda inner: _Volumes(inner, made)),
        clusters=_if(cloud.clusters, lambda inner: _Clusters(inner, made)),
        ssh_keys=_if(cloud.ssh_keys, lambda inner: _SshKeys(inner, made)),
        zones=_if(cloud.zones, lambda inner: _Zones(inner, made)),
    )


def _if(inner: T | None, wrapper: Callable[[T], W]) -> W | None:
    return None if inner is None else wrapper(inner)


@dataclass(frozen=True, slots=True)
class _Caller:
    provider: str
    around: Around

    async def read(self, name: str, proceed: Callable[[], Awaitable[T]], *, items: int = 1) -> T:
        return await self._make(name, proceed, writes=False, items=items)

    async def write(self, name: str, proceed: Callable[[], Awaitable[T]], *, items: int = 1) -> T:
        return await self._make(name, proceed, writes=True, items=items)

    async def _make(
        self, name: str, proceed: Callable[[], Awaitable[T]], *, writes: bool, items: int
    ) -> T:
        capability, _, method = name.partition(".")
        call = Call(self.provider, capability, method, writes=writes, items=items)
        return await self.around(call, proceed)


@dataclass(frozen=True, slots=True)
class _Instances:
    inner: Instances
    made: _Caller

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        return await self.made.read(
            "instances.find", lambda: self.inner.find(nodes, fresh=fresh), items=len(nodes)
        )


@dataclass(frozen=True, slots=True)
class _Balancers:
    inner: Balancers[Any, Any]
    made: _Caller

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self.made.read("balancers.owners", lambda: self.inner.owners(cluster))

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self.made.read(
            "balancers.observe", lambda: self.inner.observe(wishes, deep=deep), items=len(wishes)
        )

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return self.inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        return await self.made.write("balancers.apply", lambda: self.inner.apply(change, seen))

    def lock_key(self, wish: Wish) -> str:
        return self.inner.lock_key(wish)


@dataclass(frozen=True, slots=True)
class _Routes:
    inner: Routes
    made: _Caller

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return await self.made.read("routes.list_routes", lambda: self.inner.list_routes(cluster))

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return await self.made.write(
            "routes.create", lambda: self.inner.create(cluster, routes), items=len(routes)
        )

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return await self.made.write(
            "routes.delete", lambda: self.inner.delete(cluster, routes), items=len(routes)
        )


@dataclass(frozen=True, slots=True)
class _Volumes:
    inner: Volumes
    made: _Caller

    async def list_volumes(
        self, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        return await self.made.read("volumes.list_volumes", lambda: self.inner.list_volumes(ids))

    async def create(self, spec: VolumeSpec) -> Volume:
        return await self.made.write("volumes.create", lambda: self.inner.create(spec))

    async def delete(self, volume: VolumeId) -> None:
        await self.made.write("volumes.delete", lambda: self.inner.delete(volume))

    async def attach(self, volume: VolumeId, instance: InstanceId) -> Volume:
        return await self.made.write("volumes.attach", lambda: self.inner.attach(volume, instance))

    async def detach(self, volume: VolumeId, instance: InstanceId) -> None:
        await self.made.write("volumes.detach", lambda: self.inner.detach(volume, instance))

    async def resize(self, volume: VolumeId, size_gib: int) -> Volume:
        return await self.made.write("volumes.resize", lambda: self.inner.resize(volume, size_gib))


@dataclass(frozen=True, slots=True)
class _Clusters:
    inner: Clusters
    made: _Caller

    async def list_clusters(self) -> Sequence[str]:
        return await self.made.read("clusters.list_clusters", self.inner.list_clusters)

    async def master(self, cluster: str) -> str:
        return await self.made.read("clusters.master", lambda: self.inner.master(cluster))


@dataclass(frozen=True, slots=True)
class _SshKeys:
    inner: SshKeys
    made: _Caller

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        return await self.made.read(
            "ssh_keys.list_keys", lambda: self.inner.list_keys(cluster, nodes), items=len(nodes)
        )

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        return await self.made.write(
            "ssh_keys.add", lambda: self.inner.add(cluster, keys, nodes), items=len(nodes)
        )

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        return await self.made.write(
            "ssh_keys.remove", lambda: self.inner.remove(cluster, keys, nodes), items=len(nodes)
        )


@dataclass(frozen=True, slots=True)
class _Zones:
    inner: Zones
    made: _Caller

    async def current(self) -> Zone:
        return await self.made.read("zones.current", self.inner.current)
