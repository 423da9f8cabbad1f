"""Lets the node plugin's own code run on simulated machines.

`pileus.csi.node`, `pileus.volumes.devices` and `pileus.volumes.mounts` reach the kernel through
paths, a few functions of `os`, threads and commands. While a seed runs, these names lead to the
kernel of the machine that the code runs on (`KERNEL`); everything else is the product's.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from pileus.csi import node
from pileus.volumes import devices, mounts
from pileus_lab.simulation.hosts.kernel import BY_ID, KERNEL, Device
from pileus_lab.simulation.kinds import FaultKind

T = TypeVar("T")
SMALLER = {"EDGE": 1 << 16, "SAMPLE": 1 << 12, "SAMPLES": 4, "COPIES": ()}
"""What is read of a device before it is formatted: less than in the product, to be quick."""
BLOCK = "/sys/class/block"
READING = 0.01


class HostFile:
    """An open device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is buffered."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (self._device.disk.size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, length: int = -1) -> bytes:
        self._check(FaultKind.HOST_READ_FAILS)
        size = self._device.disk.size
        found = self._device.disk.read(self._at, size - self._at if length < 0 else length)
        self._at += len(found)
        return found

    def write(self, data: bytes) -> int:
        self._check(FaultKind.HOST_READ_FAILS)
        self._device.disk.write(self._at, data)
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""

    def fileno(self) -> int:
        return 0

    def _check(self, kind: FaultKind) -> None:
        if self._device.is_gone or KERNEL.get().fails(kind, "read"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class HostPath(PurePosixPath):
    """A path on the machine that the code runs on."""

    def stat(self) -> os.stat_result:
        return KERNEL.get().status(str(self))

    def exists(self) -> bool:
        try:
            self.stat()
        except OSError:
            return False
        return True

    def is_dir(self) -> bool:
        if str(self) in {BY_ID, BLOCK}:
            return True
        return self.exists() and KERNEL.get().device_at(str(self)) is None

    def is_symlink(self) -> bool:
        return False

    def is_file(self) -> bool:
        return False

    def iterdir(self) -> Iterator["HostPath"]:
        kernel = KERNEL.get()
        for device in kernel.visible():
            if str(self) == BLOCK:
                yield self / device.name
            elif str(self) == BY_ID and kernel.serial(device) and not device.is_gone:
                yield self / f"virtio-{kernel.serial(device)}"

    def resolve(self) -> "HostPath":
        device = KERNEL.get().device_at(str(self))
        if device is not None:
            return HostPath("/dev") / device.name
        major, _, minor = self.name.partition(":")
        for one in KERNEL.get().visible():
            if (major, minor) == tuple(map(str, one.number)):
                return HostPath("/dev") / one.name
        return self

    def read_bytes(self) -> bytes:
        kernel = KERNEL.get()
        name, __, attribute = str(self)[len(BLOCK) + 1 :].partition("/")
        device = next((one for one in kernel.visible() if one.name == name), None)
        if device is None or attribute != "serial":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return kernel.serial(device).encode()

    def open(self, _: str) -> HostFile:
        device = KERNEL.get().device_at(str(self))
        if device is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return HostFile(device)

    def mkdir(self, **_: object) -> None:
        KERNEL.get().make_folder(str(self))

    def rmdir(self) -> None:
        KERNEL.get().folders.pop(str(self), None)

    def unlink(self, **_: object) -> None:
        self.rmdir()


class _MountInfo:
    def read_text(self, **_: object) -> str:
        return KERNEL.get().mountinfo()


async def _run(*command: str, seconds: float = 0.0) -> str:
    del seconds
    return await KERNEL.get().run(*command)


async def _in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Takes a moment, in which the process may be killed."""
    await asyncio.sleep(READING)
    return function(*arguments)


def _replacements() -> Iterator[tuple[object, str, object]]:
    tasks = SimpleNamespace(
        get_running_loop=asyncio.get_running_loop, sleep=asyncio.sleep, to_thread=_in_thread
    )
    files = SimpleNamespace(realpath=str, samestat=os.path.samestat)
    calls = SimpleNamespace(
        SEEK_END=os.SEEK_END, fsync=int, major=os.major, minor=os.minor, path=files
    )
    for module in (devices, mounts, node):
        yield module, "Path", HostPath
        yield module, "os", calls
    yield devices, "asyncio", tasks
    yield from ((devices, name, value) for name, value in SMALLER.items())
    yield mounts, "MOUNTINFO", _MountInfo()
    for module in (devices, mounts):
        yield module, "run", _run
    yield from _on_this_machine()


def _on_this_machine() -> Iterator[tuple[object, str, object]]:
    """The functions that take the folders of the kernel, with those of the machine."""
    system = devices.System(dev=_path("/dev"), sys=_path("/sys"))
    wait, find, rescanned = devices.wait_for_device, devices.find_device, devices.rescanned_size

    async def wait_for_device(volume: str, hint: str = "") -> Path:
        return await wait(volume, hint, system=system)

    def find_device(volume: str, hint: str = "", _: object = None) -> Path | None:
        return find(volume, hint, system)

    def rescanned_size(device: Path, wanted: int) -> int:
        return rescanned(device, wanted, system)

    yield devices, "wait_for_device", wait_for_device
    yield devices, "find_device", find_device
    yield devices, "numbered", partial(devices.numbered, system=system)
    yield devices, "rescanned_size", rescanned_size


def _path(text: str) -> Any:  # noqa: ANN401 -- stands for a `Path`
    return HostPath(text)


def on_simulated_machines() -> AbstractContextManager[None]:
    """The code of the node plugin runs on simulated machines while the block lasts."""
    return replaced(_replacements())


@contextmanager
def replaced(attributes: Iterable[tuple[object, str, object]]) -> Generator[None]:
    """Objects or modules have other values for these attributes while the block lasts."""
    chosen = list(attributes)
    sound = [(owner, name, getattr(owner, name)) for owner, name, _ in chosen]
    for owner, name, instead in chosen:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, before in sound:
            setattr(owner, name, before)
