"""The zone in which this process runs, by the metadata of its machine.

Nova offers the metadata in two places, asked in the order of `search-order` in `[Metadata]`:

- `configDrive`: a small disk with the label `config-2`. It is read where it is mounted, else from
  the block device itself, which needs no privilege to mount but the right to read the device.
- `metadataService`: HTTP on a link-local address, without any proxy.

Only a process on a server of OpenStack has them. Files are read in a thread.
"""

import asyncio
import json
import struct
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

import msgspec

from pileus.cloud.errors import CloudError, Misconfigured, Unavailable, Unsupported
from pileus.cloud.http import HttpSettings, http_client
from pileus.cloud.model import Zone
from pileus.cloud.threads import in_thread
from pileus.dataclass import dataclass
from pileus.providers.openstack.addresses import label_value
from pileus.providers.openstack.config import Metadata

CONFIG_DRIVE, METADATA_SERVICE = "configDrive", "metadataService"
PATH = ("openstack", "latest", "meta_data.json")
CONNECT_TIMEOUT = 5.0
"""Seconds. Outside of OpenStack no host has the address of the metadata service."""
LONGEST = 20.0
"""Seconds for one source, also if `request-timeout` is longer or 0: both of them have to end within
the deadline of a call."""
LARGEST = 2**20
"""Bytes of the metadata, at most."""


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    uuid: str
    availability_zone: str


@dataclass(frozen=True, slots=True)
class ConfigDrive:
    """Where the disk is found."""

    devices: tuple[Path, ...] = (
        Path("/dev/disk/by-label/config-2"),
        Path("/dev/disk/by-label/CONFIG-2"),
    )
    mounts: Path = Path("/proc/self/mounts")

    def read(self) -> bytes:
        """Returns the metadata. Raises OSError if there is no such disk or it cannot be read."""
        device = next((each.resolve() for each in self.devices if each.exists()), None)
        if device is None:
            raise FileNotFoundError("no disk has the label config-2")
        for line in self.mounts.read_text().splitlines():
            source, place, *_ = line.split()
            if source.startswith("/") and Path(source).resolve() == device:
                return Path(place.replace("\\040", " "), *PATH).read_bytes()
        with device.open("rb") as image:
            return _read_from_iso(image)


@dataclass(frozen=True, slots=True)
class OpenStackZones:
    region: str
    metadata: Metadata = field(default_factory=Metadata)
    service_url: str = "http://169.254.169.254"
    drive: ConfigDrive = field(default_factory=ConfigDrive)

    async def current(self) -> Zone:
        """Raises `Unsupported` if no source has the metadata: this is not a server of OpenStack."""
        timeout = min(self.metadata.request_timeout or LONGEST, LONGEST)
        problems: list[str] = []
        for name in map(str.strip, self.metadata.search_order.split(",")):
            try:
                async with asyncio.timeout(timeout):
                    found = _parsed(await self._content(name, timeout))
            except TimeoutError:
                problems.append(f"{name}: no answer within {timeout:g} s")
            except (CloudError, OSError) as error:
                problems.append(f"{name}: {error}")
            else:
                return Zone(label_value(found.availability_zone), self.region)
        raise Unsupported(
            "the zone of this process is not known, because it does not seem to run on a server "
            f"of OpenStack. {'; '.join(problems)}"
        )

    async def _content(self, source: str, timeout: float) -> bytes:
        if source == CONFIG_DRIVE:
            return await in_thread(self.drive.read)
        if source != METADATA_SERVICE:
            raise Misconfigured(
                f"[Metadata] search-order: known are {CONFIG_DRIVE} and {METADATA_SERVICE}"
            )
        settings = HttpSettings(
            base_url=self.service_url,
            timeout=timeout,
            connect_timeout=min(CONNECT_TIMEOUT, timeout),
            connections=1,
            max_body=LARGEST,
        )
        async with http_client(settings) as http:
            return (await http.request("GET", f"/{'/'.join(PATH)}")).body


def _parsed(content: bytes) -> ServerMetadata:
    try:
        return msgspec.convert(json.loads(content), ServerMetadata)
    except (ValueError, msgspec.ValidationError) as error:
        raise Unavailable(f"invalid metadata: {error}") from error


# -- ISO 9660 ----------------------------------------------------------------------------------

SECTOR = 2048
_DESCRIPTOR = 16 * SECTOR
"""Where the primary volume descriptor is."""
_ROOT = 156
"""Where the record of the root directory is in it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or directory: where it begins, and its bytes."""

    name: str
    sector: int
    size: int


def _read_from_iso(image: BinaryIO) -> bytes:
    """Returns the metadata on an image as Nova creates it. Raises OSError if it has none."""
    descriptor = _read(image, _DESCRIPTOR, SECTOR)
    if descriptor[:6] != b"\x01CD001":
        raise OSError("the disk with the label config-2 is no ISO 9660 image: mount it")
    place = _entry(descriptor[_ROOT:])
    for name in PATH:
        content = _read(image, place.sector * SECTOR, place.size)
        found = next((each for each in _entries(content) if each.name == name), None)
        if found is None:
            raise FileNotFoundError(f"the disk with the label config-2 has no {'/'.join(PATH)}")
        place = found
    return _read(image, place.sector * SECTOR, place.size)


def _read(image: BinaryIO, start: int, size: int) -> bytes:
    if size > LARGEST:
        raise OSError(f"the disk with the label config-2 is damaged: {size} bytes at {start}")
    image.seek(start)
    content = image.read(size)
    if len(content) < size:
        raise OSError(f"the disk with the label config-2 ends at {start + len(content)}")
    return content


def _entries(directory: bytes) -> Iterator[_Entry]:
    """Yields the records of a directory. No record crosses the end of a sector."""
    place = 0
    while place < len(directory):
        length = directory[place]
        if not length:
            place = (place // SECTOR + 1) * SECTOR
            continue
        yield _entry(directory[place : place + length])
        place += length


def _entry(record: bytes) -> _Entry:
    try:
        sector, _, size = struct.unpack_from("<III", record, 2)
        name = record[33 : 33 + record[32]]
    except (struct.error, IndexError) as error:
        raise OSError("the disk with the label config-2 is damaged") from error
    text = name.decode("ascii", "replace").partition(";")[0].rstrip(".").lower()
    return _Entry(text, sector, size)
