"""The node service on real loop devices, filesystems and mounts."""

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes import devices, mounts
from pileus.volumes.commands import run
from pileus_lab.local.disks import Kind
from pileus_lab.local.model.machines import CreateMachine
from tests.csi.stage import (
    GIB,
    Client,
    LocalStage,
    Modes,
    block,
    created,
    mounted,
)
from tests.loop_devices import ONE_WORKER, needs_loop_devices, release, release_leftovers

pytestmark = [pytest.mark.real_time, needs_loop_devices, ONE_WORKER]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[LocalStage]:
    release_leftovers()
    async with LocalStage(tmp_path).up() as it:
        yield it
    release(tmp_path)


@dataclass
class Pod:
    """The use of one volume at one place, as kubelet asks for it."""

    client: Client
    stage: LocalStage
    volume: str
    capability: Any
    name: str = "pod"
    readonly: bool = False

    @property
    def staging(self) -> Path:
        return self.stage.folder / "staging" / self.volume

    @property
    def target(self) -> Path:
        return self.stage.folder / self.name / "target"

    async def attach(self) -> dict[str, str]:
        answer = await self.client(
            "ControllerPublishVolume",
            volume_id=self.volume,
            node_id=self.stage.machine,
            volume_capability=self.capability,
        )
        return dict(answer.publish_context)

    async def fields(self) -> dict[str, Any]:
        self.staging.mkdir(parents=True, exist_ok=True)
        return {
            "volume_id": self.volume,
            "publish_context": await self.attach(),
            "staging_target_path": str(self.staging),
            "volume_capability": self.capability,
        }

    async def start(self) -> None:
        fields = await self.fields()
        await self.client("NodeStageVolume", **fields)
        await self.publish()

    async def publish(self) -> None:
        await self.client("NodePublishVolume", **await self.published())

    async def published(self) -> dict[str, Any]:
        return {
            **await self.fields(),
            "target_path": str(self.target),
            "readonly": self.readonly,
        }

    async def stop(self) -> None:
        await self.unpublish()
        await self.client(
            "NodeUnstageVolume", volume_id=self.volume, staging_target_path=str(self.staging)
        )
        await self.client(
            "ControllerUnpublishVolume", volume_id=self.volume, node_id=self.stage.machine
        )

    async def unpublish(self) -> None:
        await self.client(
            "NodeUnpublishVolume", volume_id=self.volume, target_path=str(self.target)
        )


async def test_data_survives_the_pod_the_driver_and_the_node(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        for _ in range(2):
            await pod.start()
        (pod.target / "file").write_text("data")
    async with stage.driver() as client:
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        assert (pod.target / "file").read_text() == "data"
        for _ in range(2):
            await pod.stop()
        assert not pod.target.exists()

        stage.machine = (await stage.local.operate(CreateMachine(name="n2", zone="local-1a"))).id
        await pod.start()
        assert (pod.target / "file").read_text() == "data"
        await pod.stop()
        await client("DeleteVolume", volume_id=volume)
    assert not list((stage.folder / "volumes").iterdir())


async def test_a_volume_grows_with_its_filesystem(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        (pod.target / "file").write_text("data")
        before = os.statvfs(pod.target).f_blocks
        await pod.stop()
        await client(
            "ControllerExpandVolume", volume_id=volume, capacity_range={"required_bytes": 2 * GIB}
        )
        await pod.start()

        answer = await client(
            "NodeExpandVolume",
            volume_id=volume,
            volume_path=str(pod.target),
            capacity_range={"required_bytes": 2 * GIB},
        )
        assert answer.capacity_bytes == 2 * GIB
        assert os.statvfs(pod.target).f_blocks > 1.9 * before
        assert (pod.target / "file").read_text() == "data"
        code, message = await client.fails(
            "NodeExpandVolume",
            volume_id=volume,
            volume_path=str(pod.target),
            capacity_range={"required_bytes": 3 * GIB},
        )
        assert (code, "bytes and not" in message) == (Status.UNAVAILABLE, True)
        await pod.stop()


async def test_a_block_volume_is_a_device_and_grows_at_once(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client, volume_capabilities=[block()])).volume_id
        pod = Pod(client, stage, volume, block())
        for _ in range(2):
            await pod.start()
        with pod.target.open("r+b") as device:
            device.write(b"raw data")
        await client(
            "ControllerExpandVolume", volume_id=volume, capacity_range={"required_bytes": 2 * GIB}
        )
        stats = await client("NodeGetVolumeStats", volume_id=volume, volume_path=str(pod.target))
        assert [each.total for each in stats.usage] == [2 * GIB]
        await pod.stop()
        assert not pod.target.exists()

        code, message = await client.fails(
            "NodeStageVolume", **await Pod(client, stage, volume, mounted()).fields()
        )
        assert code is Status.FAILED_PRECONDITION
        assert "has unknown data instead of ext4: it is not formatted" in message
        await pod.start()
        with pod.target.open("rb") as device:
            assert device.read(8) == b"raw data"
        await pod.stop()


async def test_a_volume_can_be_read_only(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        writer = Pod(client, stage, volume, mounted(), "writer")
        reader = Pod(client, stage, volume, mounted(), "reader", readonly=True)
        await writer.start()
        (writer.target / "file").write_text("data")
        await reader.publish()

        assert (reader.target / "file").read_text() == "data"
        with pytest.raises(OSError, match="Read-only"):
            (reader.target / "file").write_text("changed")
        reader.readonly = False
        code, _ = await client.fails("NodePublishVolume", **await reader.published())
        assert code is Status.ALREADY_EXISTS
        await reader.unpublish()
        await writer.stop()


async def test_a_staging_path_with_the_mount_of_another_volume_is_refused(
    stage: LocalStage,
) -> None:
    """A pod would write to the disk of another claim."""
    async with stage.driver() as client:
        one, two = [(await created(client, name)).volume_id for name in ("pvc-1", "pvc-2")]
        pod, other = Pod(client, stage, one, mounted()), Pod(client, stage, two, mounted(), "other")
        await pod.start()
        wrong = {**await other.published(), "staging_target_path": str(pod.staging)}
        staged = {key: wrong[key] for key in await other.fields()}

        for method, fields in (("NodeStageVolume", staged), ("NodePublishVolume", wrong)):
            code, message = await client.fails(method, **fields)
            assert (code, "a mount of /dev/loop" in message) == (Status.ALREADY_EXISTS, True)
        assert mounts.mount_at(other.target) is None
        await pod.stop()


async def test_a_volume_whose_disk_is_missing_is_not_published(stage: LocalStage) -> None:
    """The mount at the staging path was left behind, or is of another volume."""
    async with stage.driver() as client:
        pod = Pod(client, stage, (await created(client)).volume_id, mounted())
        await pod.start()
        second = stage.folder / "second"
        fields = {"volume_id": "vol-not-here", "target_path": str(second), "publish_context": {}}

        code, message = await client.fails("NodePublishVolume", **await pod.published() | fields)

        assert (code, "its disk is missing" in message) == (Status.FAILED_PRECONDITION, True)
        assert mounts.mount_at(second) is None
        await pod.stop()


@pytest.mark.parametrize(
    "readers",
    [
        pytest.param(mounted(Modes.SINGLE_NODE_READER_ONLY), id="access mode"),
        pytest.param(mounted(flags=["ro"]), id="mount option"),
        pytest.param(mounted(flags=["noatime,ro"]), id="mount options"),
    ],
)
async def test_a_volume_for_readers_is_neither_formatted_nor_grown(
    stage: LocalStage, readers: Any
) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, readers)
        fields = await pod.fields()
        disk = Path(fields["publish_context"]["device"])
        await client.fails("NodeStageVolume", **fields)
        assert await devices.content(disk) == ""

        await run("mkfs.ext4", "-q", "-F", str(disk), "64M")
        await pod.start()
        await pod.publish()
        code, message = await client.fails(
            "NodeExpandVolume", volume_id=volume, volume_path=str(pod.target)
        )
        assert (code, "is mounted read-only" in message) == (Status.FAILED_PRECONDITION, True)
        pod.capability = mounted()
        code, _ = await client.fails("NodeStageVolume", **await pod.fields())
        assert code is Status.ALREADY_EXISTS, "it is staged for readers"
        assert devices.filesystem_size(disk, "ext4") == 64 << 20
        await pod.stop()


async def test_a_volume_for_writers_is_not_staged_for_readers_as_well(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        pod.capability = mounted(Modes.SINGLE_NODE_READER_ONLY)
        code, message = await client.fails("NodeStageVolume", **await pod.fields())

        assert (code, "read-write, not read-only" in message) == (Status.ALREADY_EXISTS, True)
        code, _ = await client.fails("NodePublishVolume", **await pod.published())
        assert code is Status.ALREADY_EXISTS
        await pod.stop()


async def test_a_volume_with_the_mount_option_ro_is_staged_twice(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        await Pod(client, stage, volume, mounted()).start()
        await Pod(client, stage, volume, mounted()).stop()
        pod = Pod(client, stage, volume, mounted(flags=["ro"]))
        for _ in range(2):
            await client("NodeStageVolume", **await pod.fields())
        await pod.stop()


@pytest.mark.parametrize("make", [mounted, block])
async def test_a_single_writer_is_alone(stage: LocalStage, make: Any) -> None:
    capability = make(Modes.SINGLE_NODE_SINGLE_WRITER)
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        first = Pod(client, stage, volume, capability, "first")
        second = Pod(client, stage, volume, capability, "second")
        await first.start()

        code, message = await client.fails("NodePublishVolume", **await second.published())

        assert code is Status.FAILED_PRECONDITION
        assert f"is already published at {first.target}" in message
        await first.publish()
        await first.stop()


async def test_another_filesystem_is_not_replaced(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted(fs_type="ext3"))
        await pod.start()
        (pod.target / "file").write_text("data")
        await pod.stop()

        code, message = await client.fails(
            "NodeStageVolume",
            **await Pod(client, stage, volume, mounted(fs_type="ext4")).fields(),
        )
        assert (code, "has ext3 instead of ext4" in message) == (Status.FAILED_PRECONDITION, True)
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        assert (pod.target / "file").read_text() == "data"
        await pod.stop()


async def test_repeats_at_the_same_time_format_once(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        fields = await Pod(client, stage, volume, mounted()).fields()

        async def attempt() -> Status | None:
            try:
                return (await client.fails("NodeStageVolume", **fields))[0]
            except AssertionError:
                return None

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(attempt()) for _ in range(5)]

        results = [task.result() for task in tasks]
        assert {*results} == {Status.ABORTED, None}
        await Pod(client, stage, volume, mounted()).stop()


async def test_what_is_not_there_is_not_found(stage: LocalStage) -> None:
    async with stage.driver() as client:
        one, two = [(await created(client, name)).volume_id for name in ("pvc-1", "pvc-2")]
        pod, other = Pod(client, stage, one, mounted()), Pod(client, stage, two, mounted(), "other")
        await pod.start()
        await other.start()
        for method in ("NodeGetVolumeStats", "NodeExpandVolume"):
            for volume, path in ((one, "/nowhere"), (one, str(other.target))):
                code, _ = await client.fails(method, volume_id=volume, volume_path=path)
                assert code is Status.NOT_FOUND, (method, path)
        stats = await client("NodeGetVolumeStats", volume_id=one, volume_path=str(pod.target))
        kinds = {each.unit: each.total for each in stats.usage}
        assert kinds.keys() == {csi.VolumeUsage.BYTES, csi.VolumeUsage.INODES}
        assert 0.9 * GIB < kinds[csi.VolumeUsage.BYTES] < GIB
        await pod.stop()
        await other.stop()


async def test_a_device_in_use_is_not_detached(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        await pod.start()

        code, message = await client.fails(
            "ControllerUnpublishVolume", volume_id=volume, node_id=stage.machine
        )

        assert (code, "is in use: unmount" in message) == (Status.ABORTED, True)
        await pod.stop()


async def test_health_of_a_published_volume(stage: LocalStage) -> None:
    async with stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        ask: dict[str, Any] = {"volume_id": volume, "volume_publish_path": str(pod.target)}

        healthy = (await client("NodeGetVolumeHealth", **ask)).volume_health
        await pod.stop()
        lost = (await client("NodeGetVolumeHealth", **ask)).volume_health

        assert not healthy.health_statuses
        assert lost.health_statuses[0].message == f"nothing is mounted at {pod.target}"


async def test_the_node_knows_its_place_and_its_limit(stage: LocalStage) -> None:
    async with stage.driver() as client:
        info = await client("NodeGetInfo")

    assert info.node_id == stage.machine
    assert info.max_volumes_per_node == 4
    assert dict(info.accessible_topology.segments) == {
        "topology.kubernetes.io/zone": "local-1a",
        "topology.kubernetes.io/region": "local-1",
    }


async def test_a_directory_is_mounted_where_there_are_no_loop_devices(tmp_path: Path) -> None:
    async with LocalStage(tmp_path, Kind.DIRECTORY).up() as stage, stage.driver() as client:
        volume = (await created(client)).volume_id
        pod = Pod(client, stage, volume, mounted())
        await pod.start()
        (pod.target / "file").write_text("data")
        answer = await client(
            "NodeExpandVolume",
            volume_id=volume,
            volume_path=str(pod.target),
            capacity_range={"required_bytes": 2 * GIB},
        )
        assert answer.capacity_bytes == 2 * GIB
        await pod.stop()
        assert (tmp_path / "volumes" / volume / "file").read_text() == "data"
        code, message = await client.fails(
            "NodeStageVolume", **await Pod(client, stage, volume, block()).fields()
        )
        assert (code, "use volumeMode Filesystem" in message) == (Status.FAILED_PRECONDITION, True)
