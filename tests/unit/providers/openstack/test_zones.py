"""The zone of this process: the config drive and the metadata service."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pileus.cloud.errors import Unsupported
from pileus.cloud.model import Zone
from pileus.providers.openstack.config import Metadata
from pileus.providers.openstack.zones import SECTOR, ConfigDrive, OpenStackZones
from tests.unit.kube.https_server import serving

pytestmark = pytest.mark.real_time

METADATA = json.dumps({
    "uuid": "5e508da5-b615-4e22-8a9c-dc843a9274cf",
    "availability_zone": "zone (a)",
    "name": "n1",
}).encode()
NOWHERE = "http://127.0.0.1:1"


def record(name: bytes, sector: int, size: int) -> bytes:
    both = struct.pack("<I", sector) + struct.pack(">I", sector)
    both += struct.pack("<I", size) + struct.pack(">I", size)
    body = bytes([0]) + both + bytes(14) + bytes([len(name)]) + name
    body += bytes(len(body) % 2 == 0)
    return bytes([len(body) + 1]) + body


def iso(content: bytes = METADATA, latest: bytes = b"latest") -> bytes:
    """An ISO 9660 image as genisoimage writes it for Nova: root, openstack, latest, one file."""
    dots = record(b"\x00", 0, 0) + record(b"\x01", 0, 0)
    root = dots + record(b"ec2", 40, SECTOR) + record(b"openstack", 21, 2 * SECTOR)
    # The directory has two sectors, and its last entry is in the second one.
    first = b"".join(record(b"2012-08-1%d" % number, 50, SECTOR) for number in range(9))
    openstack = (dots + first).ljust(SECTOR, b"\0") + record(latest, 23, SECTOR)
    files = dots + record(b"meta_data.json;1", 24, len(content))
    descriptor = (b"\x01CD001".ljust(156, b"\0") + record(b"\x00", 20, SECTOR)).ljust(SECTOR, b"\0")
    sectors = (descriptor, bytes(3 * SECTOR), root, openstack.ljust(2 * SECTOR, b"\0"), files)
    padded = [each.ljust(-(-len(each) // SECTOR) * SECTOR, b"\0") for each in sectors]
    return bytes(16 * SECTOR) + b"".join(padded) + content


def drive(tmp_path: Path, image: bytes | None = None, mounts: str = "") -> ConfigDrive:
    device, table = tmp_path / "config-2", tmp_path / "mounts"
    if image is not None:
        device.write_bytes(image)
    table.write_text(f"tmpfs / tmpfs rw 0 0\n{mounts}")
    return ConfigDrive((tmp_path / "missing", device), table)


def zones(drive: ConfigDrive, url: str = NOWHERE, **metadata: Any) -> OpenStackZones:
    return OpenStackZones("RegionOne", Metadata(**metadata), url, drive)


async def answer(_: web.Request) -> web.Response:
    return web.Response(body=METADATA.replace(b"zone (a)", b"az2"))


async def test_the_zone_is_read_from_the_disk_itself(tmp_path: Path) -> None:
    assert await zones(drive(tmp_path, iso())).current() == Zone("zone-a", "RegionOne")


async def test_the_zone_is_read_where_the_disk_is_mounted(tmp_path: Path) -> None:
    place = tmp_path / "a mount" / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_bytes(METADATA)
    mount = f"{tmp_path}/config-2 {tmp_path}/a\\040mount iso9660 ro 0 0"
    assert (await zones(drive(tmp_path, b"vfat", mount)).current()).name == "zone-a"


async def test_the_search_order_decides_and_the_other_source_is_tried(tmp_path: Path) -> None:
    async with serving(answer, None) as served:
        here = drive(tmp_path, iso())
        order = "metadataService,configDrive"
        assert (await zones(here, served.url).current()).name == "zone-a"
        assert (await zones(here, served.url, search_order=order).current()).name == "az2"
        (tmp_path / "config-2").unlink()
        assert (await zones(here, served.url).current()).name == "az2"
        with pytest.raises(Unsupported, match="configDrive"):
            await zones(here, served.url, search_order="configDrive").current()
    assert {request.path for request in served.requests} == {"/openstack/latest/meta_data.json"}


async def test_outside_of_openstack_the_error_names_both_sources(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="does not seem to run on a server") as raised:
        await zones(drive(tmp_path)).current()
    assert "configDrive: no disk has the label config-2" in str(raised.value)
    assert "metadataService: " in str(raised.value)


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"vfat" * SECTOR * 16,
        iso()[: 21 * SECTOR],
        iso(latest=b"other"),
        iso(content=b"{}"),
        iso(content=b"no json"),
        iso()[: 20 * SECTOR] + b"\x05" * 4 * SECTOR,
    ],
)
async def test_a_damaged_disk_is_an_error_and_not_a_zone(tmp_path: Path, image: bytes) -> None:
    with pytest.raises(Unsupported, match="configDrive: "):
        await zones(drive(tmp_path, image), search_order="configDrive").current()


async def test_files_are_read_in_a_thread_and_a_disk_that_hangs_is_given_up(
    tmp_path: Path,
) -> None:
    """A FIFO without a writer blocks its reader, as a disk on a lost host does."""
    place = tmp_path / "mounts"
    os.mkfifo(place)
    (tmp_path / "config-2").write_bytes(iso())
    hanging = ConfigDrive((tmp_path / "config-2",), place)
    try:
        with pytest.raises(Unsupported, match="no answer within"):
            await zones(hanging, search_order="configDrive", request_timeout=0.05).current()
    finally:
        with place.open("w"):  # the thread ends
            pass
