"""Cinder's volumes, snapshots and attachments, and their lists.

    cinder = Cinder(client)
    volumes = await cinder.volumes({"pileus.dev/cluster": "…"})
    volume = await cinder.volume("<volume id>")

Every list is complete or raises `CloudError`. Cinder ignores filters that its administrator has not
enabled, and refuses them in newer microversions, so that a filtered list may have more than what
was asked for. Callers select again.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote

import msgspec

from pileus.cloud.errors import NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Client, Service, decoded, field_of

T = TypeVar("T")

ATTACHMENTS = "3.27"
"""The first microversion with attachments (Cinder 10, Ocata, 2017)."""
EXTEND_ATTACHED = "3.42"
"""The first microversion that extends attached volumes (Cinder 11, Pike, 2017)."""


def _no_metadata() -> dict[str, str]:
    return {}


class CinderAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as a volume has it. Those that are not complete yet are missing there."""

    server_id: str | None = None
    host_name: str | None = None
    """Of a volume that is attached to a host instead of a server."""
    device: str | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as Cinder lists it, from the moment that Nova asks for it."""

    id: str
    volume_id: str
    instance: str | None = None


class CinderVolume(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: str
    size: int
    """GiB. Still the old size while it is extended."""
    name: str | None = None
    availability_zone: str | None = None
    volume_type: str | None = None
    snapshot_id: str | None = None
    source_volid: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=_no_metadata)
    attachments: tuple[CinderAttachment, ...] = ()
    created_at: str = ""


class CinderSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: str
    size: int
    volume_id: str
    metadata: dict[str, str] | None = None
    created_at: str = ""

    @property
    def created_seconds(self) -> float:
        """Returns seconds since the epoch; 0 if Cinder does not say."""
        if not self.created_at:
            return 0.0
        return datetime.fromisoformat(self.created_at).replace(tzinfo=UTC).timestamp()


class ZoneState(msgspec.Struct, frozen=True, kw_only=True):
    available: bool = True


class CinderZone(msgspec.Struct, frozen=True, kw_only=True):
    name: str = msgspec.field(name="zoneName")
    state: ZoneState = msgspec.field(default_factory=ZoneState, name="zoneState")


class CinderUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the project may have, and has. Snapshots count too. -1: there is no limit."""

    max_total_volumes: int = -1
    max_total_volume_gigabytes: int = -1
    total_volumes_used: int = 0
    total_gigabytes_used: int = 0


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    absolute: CinderUsage


@dataclass(frozen=True, slots=True)
class Cinder:
    """Typed requests to Cinder. A write may be refused with a `CloudError`; none is repeated."""

    client: Client

    async def volumes(self, metadata: Mapping[str, str] | None = None) -> tuple[CinderVolume, ...]:
        """Returns volumes of the project, at least those with this metadata; None: all."""
        return await self._list("volumes", CinderVolume, metadata)

    async def volume(self, volume_id: str) -> CinderVolume:
        """Raises `NotFound` if there is no such volume."""
        path = f"/volumes/{quote(volume_id, safe='')}"
        return await self.client.get(Service.BLOCK_STORAGE, path, "volume", CinderVolume)

    async def snapshots(
        self, metadata: Mapping[str, str] | None = None
    ) -> tuple[CinderSnapshot, ...]:
        """Returns snapshots of the project, at least those with this metadata; None: all."""
        return await self._list("snapshots", CinderSnapshot, metadata)

    async def snapshot(self, snapshot_id: str) -> CinderSnapshot:
        """Raises `NotFound` if there is no such snapshot."""
        path = f"/snapshots/{quote(snapshot_id, safe='')}"
        return await self.client.get(Service.BLOCK_STORAGE, path, "snapshot", CinderSnapshot)

    async def reservations(self) -> tuple[Reservation, ...]:
        """Returns the attachments of all volumes of the project."""
        return await self.client.all_pages(
            Service.BLOCK_STORAGE,
            "/attachments",
            "attachments",
            Reservation,
            microversion=ATTACHMENTS,
        )

    async def zones(self) -> tuple[str, ...]:
        """Returns the availability zones in which volumes can be created now."""
        path = "/os-availability-zone"
        answer = await self.client.send("GET", Service.BLOCK_STORAGE, path)
        found = field_of(answer, "availabilityZoneInfo", path)
        return tuple(
            one.name for one in decoded(found, list[CinderZone], path) if one.state.available
        )

    async def usage(self) -> CinderUsage:
        """Returns the quota of the project and its use."""
        limits = await self.client.get(Service.BLOCK_STORAGE, "/limits", "limits", _Limits)
        return limits.absolute

    async def create_volume(self, body: Mapping[str, object]) -> CinderVolume:
        return await self._create("volumes", "volume", body, CinderVolume)

    async def create_snapshot(self, body: Mapping[str, object]) -> CinderSnapshot:
        return await self._create("snapshots", "snapshot", body, CinderSnapshot)

    async def delete(self, collection: str, id_: str) -> None:
        """Start to delete a volume or snapshot. Succeeds if there is none."""
        path = f"/{collection}/{quote(id_, safe='')}"
        with suppress(NotFound):
            await self.client.send("DELETE", Service.BLOCK_STORAGE, path)

    async def delete_attachment(self, attachment_id: str) -> None:
        """Delete an attachment. Succeeds if there is none.

        Raises `Conflict` if a server uses it: Cinder asks Nova.
        """
        path = f"/attachments/{quote(attachment_id, safe='')}"
        with suppress(NotFound):
            await self.client.send("DELETE", Service.BLOCK_STORAGE, path, microversion=ATTACHMENTS)

    async def extend(self, volume_id: str, size_gib: int, *, is_attached: bool) -> None:
        """Start to extend a volume."""
        await self.client.send(
            "POST",
            Service.BLOCK_STORAGE,
            f"/volumes/{quote(volume_id, safe='')}/action",
            {"os-extend": {"new_size": size_gib}},
            microversion=EXTEND_ATTACHED if is_attached else "",
        )

    async def _list(
        self, name: str, kind: type[T], metadata: Mapping[str, str] | None
    ) -> tuple[T, ...]:
        # Cinder reads the filter as a literal of Python.
        query = [("metadata", repr(dict(metadata)))] if metadata else []
        path = f"/{name}/detail"
        return await self.client.all_pages(Service.BLOCK_STORAGE, path, name, kind, query=query)

    async def _create(self, name: str, key: str, body: Mapping[str, object], kind: type[T]) -> T:
        answer = await self.client.send("POST", Service.BLOCK_STORAGE, f"/{name}", {key: body})
        return decoded(field_of(answer, key, f"/{name}"), kind, f"/{name}")
