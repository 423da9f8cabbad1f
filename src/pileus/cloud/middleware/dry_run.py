"""Says what would be written to the cloud instead of writing it. Reads pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pileus.cloud.balancer import Balancers, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.interface import Cloud, Routes, SshKeys, Volumes
from pileus.cloud.model import (
    Failure,
    InstanceId,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Volume,
    VolumeId,
    VolumeSpec,
)
from pileus.telemetry.log import Log

log = Log(__name__)


def dry_run(cloud: Cloud) -> Cloud:
    """The same cloud, unchangeable: each write becomes a line of the log that says so."""
    return replace(
        cloud,
        balancers=_Balancers(cloud.balancers, cloud.name) if cloud.balancers else None,
        routes=_Routes(cloud.routes, cloud.name) if cloud.routes else None,
        volumes=_Volumes(cloud.volumes, cloud.name) if cloud.volumes else None,
        ssh_keys=_SshKeys(cloud.ssh_keys, cloud.name) if cloud.ssh_keys else None,
    )


def _plan(provider: str, line: str) -> None:
    log.info("Dry run: not done", provider=provider, plan=line)


@dataclass(frozen=True, slots=True)
class _Balancers:
    inner: Balancers[Any, Any]
    provider: str

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self.inner.owners(cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self.inner.observe(wishes, deep=deep)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return self.inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        _plan(self.provider, f"{change.effect} {change.summary}")
        return seen

    def lock_key(self, wish: Wish) -> str:
        return self.inner.lock_key(wish)


@dataclass(frozen=True, slots=True)
class _Routes:
    inner: Routes
    provider: str

    async def list(self, cluster: str) -> Sequence[Route]:
        return await self.inner.list(cluster)

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return self._planned("+", cluster, routes)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return self._planned("-", cluster, routes)

    def _planned(
        self, sign: str, cluster: str, routes: Sequence[Route]
    ) -> Mapping[Route, CloudError]:
        for route in routes:
            _plan(self.provider, f"{sign} route {route.destination} to {route.target} ({cluster})")
        return {}


@dataclass(frozen=True, slots=True)
class _Volumes:
    """A volume that was not made cannot be answered: those methods say `Unsupported`."""

    inner: Volumes
    provider: str

    async def list(self, ids: Sequence[VolumeId] | None = None) -> Mapping[VolumeId, Volume]:
        return await self.inner.list(ids)

    async def create(self, spec: VolumeSpec) -> Volume:
        return self._refuse(f"+ volume of {spec.size_gib} GiB for {spec.mark}")

    async def delete(self, volume: VolumeId) -> None:
        _plan(self.provider, f"- volume {volume}")

    async def attach(self, volume: VolumeId, instance: InstanceId) -> Volume:
        return self._refuse(f"+ volume {volume} at instance {instance}")

    async def detach(self, volume: VolumeId, instance: InstanceId) -> None:
        _plan(self.provider, f"- volume {volume} at instance {instance}")

    async def resize(self, volume: VolumeId, size_gib: int) -> Volume:
        return self._refuse(f"~ volume {volume} to {size_gib} GiB")

    def _refuse(self, line: str) -> Volume:
        _plan(self.provider, line)
        raise Unsupported(f"dry run: {line}")


@dataclass(frozen=True, slots=True)
class _SshKeys:
    inner: SshKeys
    provider: str

    async def list(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        return await self.inner.list(cluster, nodes)

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        return self._planned("+", cluster, keys, nodes)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        return self._planned("-", cluster, keys, nodes)

    def _planned(
        self, sign: str, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for key in keys:
            name = f"SSH key {key.fingerprint} of {key.user}"
            _plan(self.provider, f"{sign} {name} on {len(nodes)} nodes ({cluster})")
        return {}
