"""Checks of requests, and conversions between messages of the specification and the contract."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from grpclib.const import Status

from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    ZONE_LABEL,
    FromSnapshot,
    FromVolume,
    Snapshot,
    SnapshotId,
    SnapshotState,
    Source,
    Volume,
    VolumeId,
)
from pileus.csi.errors import CsiError, invalid
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.parameters import GIB, read_filesystem, whole_gib

T = TypeVar("T", Volume, Snapshot)
Modes = csi.VolumeCapability.AccessMode
MODES = frozenset({
    Modes.SINGLE_NODE_WRITER,
    Modes.SINGLE_NODE_READER_ONLY,
    Modes.SINGLE_NODE_SINGLE_WRITER,
    Modes.SINGLE_NODE_MULTI_WRITER,
})
"""Access modes of the driver. A volume is attached to one node at a time."""
READ_ONLY_MODES = frozenset({Modes.SINGLE_NODE_READER_ONLY})
LONGEST = 128
"""Bytes that a text in a request may have, by the specification."""
PAGE_PREFIX = "after:"


def required(**fields: str) -> None:
    """Raises INVALID_ARGUMENT if one of the fields is empty."""
    for name, value in fields.items():
        if not value:
            raise invalid(f"{name} is missing in the request")


def named(name: str) -> str:
    """Returns a name that the request suggests. Raises INVALID_ARGUMENT."""
    required(name=name)
    if len(name.encode()) > LONGEST:
        raise invalid(f"name is longer than {LONGEST} bytes")
    if not name.isprintable():
        raise invalid("name has characters that cannot be printed")
    return name


# -- capabilities ------------------------------------------------------------------------------


def check_capabilities(capabilities: Sequence[csi.VolumeCapability]) -> None:
    """Raises INVALID_ARGUMENT if there is none, or one that the driver does not have."""
    if not capabilities:
        raise invalid("volume_capabilities is missing in the request")
    for each in capabilities:
        if problem := unsupported(each):
            raise invalid(problem)


def check_capability(capability: csi.VolumeCapability, *, is_set: bool) -> None:
    """Raises INVALID_ARGUMENT if it is missing, or the driver does not have it."""
    if not is_set:
        raise invalid("volume_capability is missing in the request")
    if problem := unsupported(capability):
        raise invalid(problem)


def unsupported(capability: csi.VolumeCapability) -> str:
    """Returns why the driver cannot offer the capability; empty: it can."""
    if capability.WhichOneof("access_type") is None:
        return "a volume capability has neither block nor mount"
    mode = capability.access_mode.mode
    if mode not in MODES:
        return (
            f"access mode {Modes.Mode.Name(mode)} is not supported: a volume can be attached to "
            "one node at a time. Use ReadWriteOnce or ReadWriteOncePod"
        )
    if capability.HasField("mount"):
        read_filesystem(capability.mount.fs_type)
    return ""


# -- sizes and places --------------------------------------------------------------------------


def size_of(wanted: csi.CapacityRange, least: int = 1) -> int:
    """Returns the size in GiB. Raises INVALID_ARGUMENT, or OUT_OF_RANGE if the limit is less."""
    required_bytes, limit = wanted.required_bytes, wanted.limit_bytes
    if required_bytes < 0 or limit < 0:
        raise invalid("capacity_range is negative")
    if limit and required_bytes > limit:
        raise invalid(f"capacity_range requires {required_bytes} bytes, above its limit {limit}")
    size = max(whole_gib(required_bytes), least)
    check_limit(size, wanted)
    return size


def check_limit(size_gib: int, wanted: csi.CapacityRange) -> None:
    """Raises OUT_OF_RANGE if a volume of this size is above the limit of the request."""
    if wanted.limit_bytes and size_gib * GIB > wanted.limit_bytes:
        raise CsiError(
            Status.OUT_OF_RANGE,
            f"the volume would have {size_gib} GiB, above the limit of {wanted.limit_bytes} "
            "bytes: volumes are whole GiB",
        )


def topologies(wanted: csi.TopologyRequirement, zone: str = "") -> tuple[Mapping[str, str], ...]:
    """Returns the acceptable places, preferred ones first; empty: any.

    Raises RESOURCE_EXHAUSTED if the zone of the StorageClass is not among them.
    """
    places: list[Mapping[str, str]] = []
    for each in (*wanted.preferred, *wanted.requisite):
        segments = dict(each.segments)
        if segments and segments not in places:
            places.append(segments)
    if not zone:
        return tuple(places)
    if not places:
        return ({ZONE_LABEL: zone},)
    fitting = tuple(each for each in places if each.get(ZONE_LABEL, zone) == zone)
    if not fitting:
        raise CsiError(
            Status.RESOURCE_EXHAUSTED,
            f'the parameter zone is "{zone}", but the topology of the request does not allow it',
        )
    return tuple({**each, ZONE_LABEL: zone} for each in fitting)


def source_of(content: csi.VolumeContentSource) -> Source | None:
    """Returns what the volume is to contain. Raises INVALID_ARGUMENT if its ID is missing."""
    match content.WhichOneof("type"):
        case "snapshot":
            required(snapshot_id=content.snapshot.snapshot_id)
            return FromSnapshot(SnapshotId(content.snapshot.snapshot_id))
        case "volume":
            required(volume_id=content.volume.volume_id)
            return FromVolume(VolumeId(content.volume.volume_id))
        case _:
            return None


# -- answers -----------------------------------------------------------------------------------


def volume_message(volume: Volume, source: Source | None = None) -> csi.Volume:
    message = csi.Volume(volume_id=volume.id, capacity_bytes=volume.size_gib * GIB)
    if volume.topology:
        message.accessible_topology.add(segments=dict(volume.topology))
    match source or volume.source:
        case FromSnapshot(id_):
            message.content_source.snapshot.snapshot_id = id_
        case FromVolume(id_):
            message.content_source.volume.volume_id = id_
        case None:
            pass
    return message


def published_nodes(volume: Volume) -> Iterable[InstanceId]:
    return (each.instance for each in volume.attachments)


def snapshot_message(snapshot: Snapshot) -> csi.Snapshot:
    created = Timestamp()
    created.FromMilliseconds(int(snapshot.created_at * 1000))
    return csi.Snapshot(
        snapshot_id=snapshot.id,
        source_volume_id=snapshot.volume,
        size_bytes=snapshot.size_gib * GIB,
        creation_time=created,
        ready_to_use=snapshot.state is SnapshotState.READY,
    )


def page(items: Iterable[T], max_entries: int, token: str) -> tuple[Sequence[T], str]:
    """Returns one page of the items by their IDs, and the token of the next page, or "".

    Raises INVALID_ARGUMENT, or ABORTED if the token is not one of this driver.
    """
    if max_entries < 0:
        raise invalid("max_entries is negative")
    if token and not token.startswith(PAGE_PREFIX):
        raise CsiError(Status.ABORTED, f'starting_token "{token}" is unknown: list from the start')
    after = token.removeprefix(PAGE_PREFIX)
    rest = sorted((item for item in items if item.id > after), key=lambda item: item.id)
    shown = rest[:max_entries] if max_entries else rest
    return shown, f"{PAGE_PREFIX}{shown[-1].id}" if len(shown) < len(rest) else ""
