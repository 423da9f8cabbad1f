"""The node service: volumes on this machine.

Nothing is kept in memory or on disk: what is staged and published is read from the mounts of the
kernel, so that a restart in the middle of a request loses nothing.

    attached device ──stage──▶ filesystem at the staging path ──publish──▶ bind mount for the pod
                    └────────────── publish (block) ──────────────────────▶ device file for the pod
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpclib.const import Status

from pileus.csi.errors import CsiError
from pileus.csi.health import MISSING, unhealthy
from pileus.csi.requests import READ_ONLY_MODES, Modes, check_capability, required
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes import devices, mounts
from pileus.volumes.busy import InProgress
from pileus.volumes.mounts import Mount
from pileus.volumes.parameters import DEVICE, FILESYSTEMS, check_secrets, read_filesystem

Rpc = csi.NodeServiceCapability.RPC
CAPABILITIES = (
    Rpc.STAGE_UNSTAGE_VOLUME,
    Rpc.GET_VOLUME_STATS,
    Rpc.EXPAND_VOLUME,
    Rpc.SINGLE_NODE_MULTI_WRITER,
    Rpc.GET_VOLUME_HEALTH,
)
EXTRA_OPTIONS = {"xfs": ("nouuid",)}
"""A clone or a restored snapshot has the UUID of its source, which XFS refuses otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What this node is in the cloud."""

    id: str
    """ID of its instance."""
    topology: Mapping[str, str]
    """Zone and region; empty: unknown, and volumes of any zone are accepted."""
    max_volumes: int = 0
    """How many volumes can be attached to it; 0: not known."""


@dataclass(frozen=True, slots=True)
class Node:
    facts: Callable[[], Awaitable[NodeFacts]]
    """Returns what the node is. Raises CloudError while that is not known."""
    busy: InProgress = field(default_factory=InProgress)

    async def node_get_capabilities(
        self, _: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        answer = csi.NodeGetCapabilitiesResponse()
        for capability in CAPABILITIES:
            answer.capabilities.add(rpc=Rpc(type=capability))
        return answer

    async def node_get_info(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        facts = await self.facts()
        answer = csi.NodeGetInfoResponse(node_id=facts.id, max_volumes_per_node=facts.max_volumes)
        if facts.topology:
            answer.accessible_topology.segments.update(facts.topology)
        return answer

    # -- staging ------------------------------------------------------------------------------

    async def node_stage_volume(
        self, request: csi.NodeStageVolumeRequest
    ) -> csi.NodeStageVolumeResponse:
        required(volume_id=request.volume_id, staging_target_path=request.staging_target_path)
        check_capability(request.volume_capability, is_set=request.HasField("volume_capability"))
        check_secrets(request.secrets)
        with self.busy.only(request.volume_id):
            hint = request.publish_context.get(DEVICE, "")
            device = await devices.wait_for_device(request.volume_id, hint)
            await _stage(device, Path(request.staging_target_path), request.volume_capability)
        return csi.NodeStageVolumeResponse()

    async def node_unstage_volume(
        self, request: csi.NodeUnstageVolumeRequest
    ) -> csi.NodeUnstageVolumeResponse:
        required(volume_id=request.volume_id, staging_target_path=request.staging_target_path)
        with self.busy.only(request.volume_id):
            await mounts.unmount(Path(request.staging_target_path), remove=False)
        return csi.NodeUnstageVolumeResponse()

    # -- publishing ---------------------------------------------------------------------------

    async def node_publish_volume(
        self, request: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        required(volume_id=request.volume_id, target_path=request.target_path)
        check_capability(request.volume_capability, is_set=request.HasField("volume_capability"))
        check_secrets(request.secrets)
        with self.busy.only(request.volume_id):
            await _publish(request)
        return csi.NodePublishVolumeResponse()

    async def node_unpublish_volume(
        self, request: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        required(volume_id=request.volume_id, target_path=request.target_path)
        with self.busy.only(request.volume_id):
            await mounts.unmount(Path(request.target_path))
        return csi.NodeUnpublishVolumeResponse()

    # -- state --------------------------------------------------------------------------------

    async def node_get_volume_stats(
        self, request: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        required(volume_id=request.volume_id, volume_path=request.volume_path)
        path = Path(request.volume_path)
        _found(request.volume_id, path)
        return await asyncio.to_thread(_usage, path)

    async def node_expand_volume(
        self, request: csi.NodeExpandVolumeRequest
    ) -> csi.NodeExpandVolumeResponse:
        required(volume_id=request.volume_id, volume_path=request.volume_path)
        check_secrets(request.secrets)
        path = Path(request.volume_path)
        with self.busy.only(request.volume_id):
            size = await _expand(request.volume_id, path, request.capacity_range.required_bytes)
        return csi.NodeExpandVolumeResponse(capacity_bytes=size)

    async def node_get_volume_health(
        self, request: csi.NodeGetVolumeHealthRequest
    ) -> csi.NodeGetVolumeHealthResponse:
        required(volume_id=request.volume_id)
        health = csi.VolumeHealth(volume_id=request.volume_id)
        path = request.volume_publish_path
        problem = await asyncio.to_thread(_problem, Path(path)) if path else ""
        if problem:
            health = unhealthy(request.volume_id, MISSING, problem)
        return csi.NodeGetVolumeHealthResponse(volume_health=health)


# -- staging -----------------------------------------------------------------------------------


async def _stage(device: Path, staging: Path, capability: csi.VolumeCapability) -> None:
    is_directory = not devices.is_block_device(device)
    if capability.HasField("block"):
        if is_directory:
            raise CsiError(
                Status.FAILED_PRECONDITION,
                f"the volume is a directory ({device}), which has no block device: use "
                "volumeMode Filesystem",
            )
        return
    read_only = _is_for_readers(capability)
    if is_directory:
        await mounts.bind(device, staging, read_only=read_only)
        return
    existing = mounts.mount_at(staging)
    if existing is None:
        await _mount(device, staging, capability.mount, read_only=read_only)
        return
    wanted = capability.mount.fs_type
    if not mounts.is_of_device(existing, device) or wanted not in {"", existing.filesystem}:
        raise mounts.WrongMount(
            f"{staging} is already a mount of {existing.source} ({existing.filesystem})"
        )
    mounts.check_access(existing, staging, read_only=read_only)


def _is_for_readers(capability: csi.VolumeCapability) -> bool:
    """Whether nothing may write to the filesystem: by the access mode, or the mount option `ro`."""
    options = {one for each in capability.mount.mount_flags for one in each.split(",")}
    return capability.access_mode.mode in READ_ONLY_MODES or "ro" in options


async def _mount(
    device: Path, staging: Path, wanted: csi.VolumeCapability.MountVolume, *, read_only: bool
) -> None:
    """Mount the device, formatted if it is empty, with its filesystem as large as the device."""
    found = await devices.content(device)
    takes_existing = not wanted.fs_type and found in FILESYSTEMS
    filesystem = found if takes_existing else read_filesystem(wanted.fs_type)
    if not read_only:
        await devices.make_filesystem(device, filesystem)
        await devices.grow_unmounted(device, filesystem)
    options = [*wanted.mount_flags, *EXTRA_OPTIONS.get(filesystem, ())]
    if read_only:
        options.append("ro")
    await mounts.mount_device(device, staging, filesystem, options)
    if not read_only:
        await devices.grow_mounted(device, staging, filesystem)


# -- publishing --------------------------------------------------------------------------------


async def _publish(request: csi.NodePublishVolumeRequest) -> None:
    capability, target = request.volume_capability, Path(request.target_path)
    read_only = request.readonly or _is_for_readers(capability)
    if capability.HasField("block"):
        hint = request.publish_context.get(DEVICE, "")
        device = await devices.wait_for_device(request.volume_id, hint)
        _check_alone(request, _block_users(device))
        await mounts.bind(device, target, read_only=read_only)
        return
    staging = Path(request.staging_target_path)
    staged = mounts.mount_at(staging) if request.staging_target_path else None
    if staged is None:
        raise CsiError(
            Status.FAILED_PRECONDITION,
            f'volume {request.volume_id} is not staged at "{request.staging_target_path}"',
        )
    _check_staged(request, staging, staged)
    users = {one.target for one in mounts.all_mounts() if _is_same(one, staged)}
    _check_alone(request, users - {staged.target})
    await mounts.bind(staging, target, read_only=read_only)


def _check_staged(request: csi.NodePublishVolumeRequest, staging: Path, staged: Mount) -> None:
    """Raises if the mount at the staging path is not of this volume.

    A pod would write to the disk of another volume, or to one that was detached.
    """
    device = devices.find_device(request.volume_id, request.publish_context.get(DEVICE, ""))
    if device is None:
        raise CsiError(
            Status.FAILED_PRECONDITION,
            f"volume {request.volume_id} is not attached to this node: its disk is missing",
        )
    is_own = mounts.is_of_device(staged, device) or mounts.is_same_file(staging, device)
    if not is_own:
        raise mounts.WrongMount(f"{staging} is a mount of {staged.source}, not of {device}")


def _is_same(mount: Mount, other: Mount) -> bool:
    return (mount.number, mount.root) == (other.number, other.root)


def _block_users(device: Path) -> set[str]:
    """Returns where this device file is mounted."""
    return {
        one.target
        for one in mounts.all_mounts()
        if one.root.lstrip("/") == device.name and mounts.is_device_file(Path(one.target), device)
    }


def _check_alone(request: csi.NodePublishVolumeRequest, users: set[str]) -> None:
    """Raises FAILED_PRECONDITION if a second pod asks for a volume of a single writer."""
    others = users - {os.path.realpath(request.target_path)}
    if others and request.volume_capability.access_mode.mode == Modes.SINGLE_NODE_SINGLE_WRITER:
        raise CsiError(
            Status.FAILED_PRECONDITION,
            f"volume {request.volume_id} has a single writer and is already published at "
            f"{', '.join(sorted(others))}",
        )


# -- state -------------------------------------------------------------------------------------


def _found(volume: str, path: Path) -> Mount:
    """Returns the mount of the volume at this path. Raises NOT_FOUND."""
    mount = mounts.mount_at(path)
    device = devices.find_device(volume)
    is_other = (
        mount is not None
        and device is not None
        and not mounts.is_of_device(mount, device)
        and not mounts.is_device_file(path, device)
    )
    if mount is None or is_other:
        raise CsiError(Status.NOT_FOUND, f"volume {volume} is not published at {path}")
    return mount


def _usage(path: Path) -> csi.NodeGetVolumeStatsResponse:
    answer = csi.NodeGetVolumeStatsResponse()
    unit = csi.VolumeUsage
    if devices.is_block_device(path):
        answer.usage.add(total=devices.device_size(path), unit=unit.BYTES)
        return answer
    found = os.statvfs(path)
    block = found.f_frsize
    answer.usage.add(
        total=found.f_blocks * block,
        available=found.f_bavail * block,
        used=(found.f_blocks - found.f_bfree) * block,
        unit=unit.BYTES,
    )
    answer.usage.add(
        total=found.f_files,
        available=found.f_favail,
        used=found.f_files - found.f_ffree,
        unit=unit.INODES,
    )
    return answer


async def _expand(volume: str, path: Path, wanted: int) -> int:
    """Grow the filesystem at the path to the size of its device. Returns that size."""
    mount = _found(volume, path)
    if devices.is_block_device(path):
        device = path
    elif mount.root == "/" and mount.filesystem in FILESYSTEMS:
        device = devices.numbered(*mount.number)
    else:
        return wanted  # a directory of the cloud, which has no filesystem of its own
    size = devices.rescanned_size(device, wanted)
    if size < wanted:
        raise CsiError(
            Status.UNAVAILABLE, f"{device} has {size} bytes and not {wanted} yet: try again"
        )
    if device != path:
        if all(each.is_read_only for each in mounts.mounts_of_device(device)):
            raise CsiError(
                Status.FAILED_PRECONDITION,
                f"volume {volume} is mounted read-only: its filesystem is not grown",
            )
        await devices.grow_mounted(device, path, mount.filesystem)
    return size


def _problem(path: Path) -> str:
    """Returns why a published volume cannot be used; empty: it can."""
    if mounts.mount_at(path) is None:
        return f"nothing is mounted at {path}"
    try:
        if devices.is_block_device(path):
            devices.device_size(path)
        else:
            os.listdir(path)
    except (OSError, devices.HostError) as error:
        return f"{path} cannot be read: {error}"
    return ""
