"""The calls on a node: devices and mounts. They need no credentials of the cloud.

Every call is idempotent. A device is formatted only if it is empty.
"""

from pathlib import Path

from pileus.flexvolume.calls import DONE, UNSUPPORTED, Answer, Call, Options
from pileus.volumes import devices, mounts
from pileus.volumes.commands import HostError
from pileus.volumes.parameters import FILESYSTEMS, read_filesystem

DEVICE_SECONDS = 60.0
"""How long to wait until the kernel shows the device of an attached volume."""


async def wait_for_attach(call: Call) -> Answer:
    device = await _device(call.options, call.arguments["DEVICE"], DEVICE_SECONDS)
    return Answer(fields={"device": str(device)})


async def mount_device(call: Call) -> Answer:
    """Mount the volume at the directory that all pods of this node share."""
    options = call.options
    device = await _device(options, call.arguments["DEVICE"], DEVICE_SECONDS)
    await _mount(device, call.directory, options)
    return DONE


async def mount(call: Call) -> Answer:
    """Mount the volume for one pod, from the directory that `mountdevice` mounted it at.

    That directory has the name of the PersistentVolume. If the volume is not mounted there, the
    call is not supported, and kubelet mounts the directory itself: a pod that uses the name of a
    PersistentVolume with the ID of another volume gets no other disk of this node.
    """
    options = call.options
    device = devices.find_device(options.volume)
    found = mounts.mounts_of_device(device) if device is not None else ()
    shared = next((one for one in found if _is_shared(one, options)), None)
    if shared is None:
        return UNSUPPORTED
    await mounts.bind(Path(shared.target), call.directory, read_only=options.read_only)
    return DONE


def _is_shared(mount: mounts.Mount, options: Options) -> bool:
    return mount.root == "/" and Path(mount.target).name == options.name


async def unmount(call: Call) -> Answer:
    """Unmount the directory, and remove it if it is empty. A missing one succeeds."""
    await mounts.unmount(call.directory)
    return DONE


async def expand_filesystem(call: Call) -> Answer:
    """Grow the filesystem to the size of its device."""
    options = call.options
    device = await _device(options, call.arguments["DEVICE"], 0)
    if not devices.is_block_device(device):
        return DONE
    if options.read_only:
        raise HostError(f"volume {options.volume} is read-only: its filesystem is not grown")
    mounted = mounts.mount_at(call.directory)
    if mounted is not None and not mounts.is_of_device(mounted, device):
        raise HostError(f"{call.directory} is a mount of {mounted.source}, not of {device}")
    if mounted is not None:
        await devices.grow_mounted(device, call.directory, mounted.filesystem)
    else:
        await devices.grow_unmounted(device, await devices.content(device))
    return DONE


async def _mount(device: Path, target: Path, options: Options) -> None:
    """Mount the volume; an empty device is formatted first, and any other keeps its content."""
    if not devices.is_block_device(device):
        await mounts.bind(device, target, read_only=options.read_only)
        return
    found = await devices.content(device)
    takes_existing = not options.filesystem and found in FILESYSTEMS
    filesystem = found if takes_existing else read_filesystem(options.filesystem)
    if not options.read_only:
        await devices.make_filesystem(device, filesystem)
    access = ("ro",) if options.read_only else ()
    await mounts.mount_device(device, target, filesystem, access)


async def _device(options: Options, hint: str, seconds: float) -> Path:
    return await devices.wait_for_device(options.volume, hint, seconds=seconds)
