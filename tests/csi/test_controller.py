"""The controller service on a local cloud, over gRPC. Volumes are directories: without root."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from pileus.cloud.volume import Volume, Volumes, VolumeSpec
from pileus.csi.spec import csi_pb2 as csi
from pileus_lab.local.disks import Kind
from pileus_lab.local.model.account import SetQuota
from pileus_lab.local.model.machines import CreateMachine
from tests.contract.openstack_machines import OpenStackVolumesHarness
from tests.csi.stage import (
    GIB,
    Client,
    LocalStage,
    Modes,
    block,
    created,
    driving,
    mounted,
    services,
    sized,
)
from tests.loop_devices import ONE_WORKER

pytestmark = [pytest.mark.real_time, ONE_WORKER]
ZONE = "topology.kubernetes.io/zone"
Rpc = csi.ControllerServiceCapability.RPC


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[LocalStage]:
    async with LocalStage(tmp_path, Kind.DIRECTORY).up() as it:
        yield it


@pytest.fixture
async def client(stage: LocalStage) -> AsyncGenerator[Client]:
    async with stage.driver() as it:
        yield it


async def test_the_driver_says_who_it_is(client: Client) -> None:
    info = await client("GetPluginInfo")
    capabilities = await client("GetPluginCapabilities")

    assert info.name == "local.csi.pileus.dev"
    assert info.vendor_version
    services = {each.service.type for each in capabilities.capabilities}
    assert csi.PluginCapability.Service.CONTROLLER_SERVICE in services
    assert csi.PluginCapability.Service.VOLUME_ACCESSIBILITY_CONSTRAINTS in services
    assert (await client("Probe")).ready.value


async def test_capacity_is_what_the_quota_leaves(client: Client, stage: LocalStage) -> None:
    offered = await client("ControllerGetCapabilities")
    assert Rpc.GET_CAPACITY in {each.rpc.type for each in offered.capabilities}
    before = await client("GetCapacity")

    await created(client)
    after = await client("GetCapacity")

    assert before.available_capacity == stage.local.state.quota.volume_gib * GIB
    (volume,) = stage.local.state.volumes.values()
    assert before.available_capacity - after.available_capacity == volume.size_gib * GIB
    assert after.minimum_volume_size.value == GIB


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"type": "no-such-type"}},
        {"parameters": {"zone": "nowhere"}},
        {"accessible_topology": csi.Topology(segments={ZONE: "nowhere"})},
        {
            "parameters": {"zone": "local-1a"},
            "accessible_topology": csi.Topology(segments={ZONE: "local-1b"}),
        },
        {"volume_capabilities": [mounted(Modes.MULTI_NODE_MULTI_WRITER)]},
    ],
    ids=["type", "zone", "place", "other-place", "access-mode"],
)
async def test_there_is_no_capacity_for_what_cannot_be_created(
    client: Client, fields: dict[str, Any]
) -> None:
    assert (await client("GetCapacity", **fields)).available_capacity == 0


async def test_a_cloud_without_a_limit_does_not_offer_capacity(tmp_path: Path) -> None:
    harness = OpenStackVolumesHarness()
    async with (
        harness.connect() as volumes,
        driving(tmp_path, services(volumes, None, "openstack")) as client,
    ):
        offered = await client("ControllerGetCapabilities")
        code, message = await client.fails("GetCapacity")

    assert Rpc.GET_CAPACITY not in {each.rpc.type for each in offered.capabilities}
    assert code is Status.UNAVAILABLE
    assert "no limit" in message


async def test_a_volume_is_created_once_for_a_name(client: Client, stage: LocalStage) -> None:
    first = await created(client)
    again = await created(client)

    assert first == again
    assert first.capacity_bytes == GIB
    (place,) = first.accessible_topology
    assert place.segments[ZONE] == "local-1a"
    (record,) = stage.local.state.volumes.values()
    assert (record.mark.cluster, record.mark.owner) == ("c1", "pvc-1")


async def test_a_volume_that_does_not_fit_already_exists(client: Client) -> None:
    await created(client)

    code, message = await client.fails(
        "CreateVolume",
        name="pvc-1",
        volume_capabilities=[mounted()],
        capacity_range=sized(2 * GIB),
    )

    assert code is Status.ALREADY_EXISTS
    assert "exists with 1 GiB" in message


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"name": ""}, Status.INVALID_ARGUMENT, "name is missing"),
        ({"name": "x" * 129}, Status.INVALID_ARGUMENT, "longer than 128 bytes"),
        ({"volume_capabilities": []}, Status.INVALID_ARGUMENT, "volume_capabilities is missing"),
        (
            {"volume_capabilities": [mounted(Modes.MULTI_NODE_MULTI_WRITER)]},
            Status.INVALID_ARGUMENT,
            "access mode MULTI_NODE_MULTI_WRITER is not supported",
        ),
        (
            {"volume_capabilities": [mounted(fs_type="ext5")]},
            Status.INVALID_ARGUMENT,
            'unknown filesystem "ext5" (did you mean "ext4"?)',
        ),
        ({"capacity_range": sized(-1)}, Status.INVALID_ARGUMENT, "negative"),
        ({"capacity_range": sized(2 * GIB, GIB)}, Status.INVALID_ARGUMENT, "above its limit"),
        ({"capacity_range": sized(1, GIB - 1)}, Status.OUT_OF_RANGE, "above the limit"),
        (
            {"capacity_range": sized(1 << 62)},
            Status.RESOURCE_EXHAUSTED,
            "volume_gib",
        ),
        (
            {"parameters": {"typ": "fast"}},
            Status.INVALID_ARGUMENT,
            'unknown parameter "typ" (did you mean "type"?)',
        ),
        (
            {"parameters": {"type": "fats"}},
            Status.INVALID_ARGUMENT,
            'unknown type "fats" (did you mean "fast"?)',
        ),
        ({"parameters": {"zone": "nowhere"}}, Status.INVALID_ARGUMENT, 'unknown zone "nowhere"'),
        ({"secrets": {"key": "hunter2"}}, Status.INVALID_ARGUMENT, "the driver uses no secrets"),
        (
            {"volume_content_source": {"snapshot": {"snapshot_id": "snap-none"}}},
            Status.NOT_FOUND,
            "there is no snapshot snap-none",
        ),
        (
            {"volume_content_source": {"volume": {"volume_id": "vol-none"}}},
            Status.NOT_FOUND,
            "there is no volume vol-none",
        ),
        (
            {"volume_content_source": {"volume": {}}},
            Status.INVALID_ARGUMENT,
            "volume_id is missing",
        ),
    ],
)
async def test_bad_requests_create_nothing(
    client: Client, stage: LocalStage, fields: dict[str, object], code: Status, words: str
) -> None:
    given: dict[str, Any] = {"name": "pvc-1", "volume_capabilities": [mounted()], **fields}

    found, message = await client.fails("CreateVolume", **given)

    assert (found, words in message) == (code, True), message
    assert "hunter2" not in message
    assert not stage.local.state.volumes


async def test_a_full_cloud_is_reported(client: Client, stage: LocalStage) -> None:
    await stage.local.operate(SetQuota(limits={"volumes": 1}))
    await created(client)

    code, _ = await client.fails("CreateVolume", name="pvc-2", volume_capabilities=[mounted()])

    assert code is Status.RESOURCE_EXHAUSTED


async def test_a_volume_is_created_where_the_pod_can_run(client: Client) -> None:
    wanted = csi.TopologyRequirement(
        requisite=[{"segments": {ZONE: "local-1a"}}, {"segments": {ZONE: "local-1b"}}],
        preferred=[{"segments": {ZONE: "local-1b"}}],
    )
    volume = await created(client, accessibility_requirements=wanted)

    assert volume.accessible_topology[0].segments[ZONE] == "local-1b"
    code, message = await client.fails(
        "CreateVolume",
        name="pvc-2",
        volume_capabilities=[mounted()],
        accessibility_requirements=wanted,
        parameters={"zone": "local-1c"},
    )
    assert code is Status.RESOURCE_EXHAUSTED
    assert 'the parameter zone is "local-1c"' in message


async def test_a_volume_is_published_to_one_node(client: Client, stage: LocalStage) -> None:
    other = (await stage.local.operate(CreateMachine(name="n2", zone="local-1a"))).id
    volume = (await created(client)).volume_id
    ask = {"volume_id": volume, "volume_capability": mounted()}
    first = await client("ControllerPublishVolume", node_id=stage.machine, **ask)
    again = await client("ControllerPublishVolume", node_id=stage.machine, **ask)
    assert first == again
    assert Path(first.publish_context["device"]).is_dir()

    code, message = await client.fails("ControllerPublishVolume", node_id=other, **ask)
    assert code is Status.FAILED_PRECONDITION
    assert f"is attached to {stage.machine}" in message
    assert (await client.fails("DeleteVolume", volume_id=volume))[0] is Status.FAILED_PRECONDITION
    (entry,) = (await client("ListVolumes")).entries
    assert entry.status.published_node_ids == [stage.machine]

    for _ in range(2):
        await client("ControllerUnpublishVolume", volume_id=volume, node_id=stage.machine)
    await client("ControllerPublishVolume", node_id=other, **ask)
    await client("ControllerUnpublishVolume", volume_id=volume)
    for _ in range(2):
        await client("DeleteVolume", volume_id=volume)
    assert not stage.local.state.volumes


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"volume_id": "vol-none"}, Status.NOT_FOUND),
        ({"node_id": "i-none"}, Status.NOT_FOUND),
        ({"volume_id": ""}, Status.INVALID_ARGUMENT),
        ({"node_id": ""}, Status.INVALID_ARGUMENT),
        ({"readonly": True}, Status.INVALID_ARGUMENT),
        ({"volume_capability": None}, Status.INVALID_ARGUMENT),
    ],
)
async def test_bad_requests_publish_nothing(
    client: Client, stage: LocalStage, fields: dict[str, object], code: Status
) -> None:
    volume = (await created(client)).volume_id
    asked = {"volume_id": volume, "node_id": stage.machine, "volume_capability": mounted()}

    assert (await client.fails("ControllerPublishVolume", **(asked | fields)))[0] is code
    assert not stage.local.state.volumes[volume].machine


async def test_volumes_and_snapshots_are_listed_in_pages(client: Client) -> None:
    volumes = [(await created(client, f"pvc-{number}")).volume_id for number in range(5)]
    seen: list[str] = []
    token = ""
    while True:
        answer = await client("ListVolumes", max_entries=2, starting_token=token)
        seen += [entry.volume.volume_id for entry in answer.entries]
        token = answer.next_token
        if not token:
            break
    assert sorted(seen) == sorted(volumes)
    assert (await client.fails("ListVolumes", starting_token="x"))[0] is Status.ABORTED

    taken = [
        await client("CreateSnapshot", name=f"s{number}", source_volume_id=volumes[number % 2])
        for number in range(3)
    ]
    page = await client("ListSnapshots", max_entries=2)
    rest = await client("ListSnapshots", starting_token=page.next_token)
    listed = [each.snapshot.snapshot_id for each in (*page.entries, *rest.entries)]
    assert sorted(listed) == sorted(each.snapshot.snapshot_id for each in taken)
    of_second = await client("ListSnapshots", source_volume_id=volumes[1])
    assert [each.snapshot for each in of_second.entries] == [taken[1].snapshot]
    assert not (await client("ListSnapshots", snapshot_id="none")).entries


async def test_a_snapshot_keeps_what_the_volume_had(client: Client, stage: LocalStage) -> None:
    volume = (await created(client)).volume_id
    folder = stage.folder / "volumes"
    (folder / volume / "file").write_text("before")
    snapshot = (await client("CreateSnapshot", name="s1", source_volume_id=volume)).snapshot
    (folder / volume / "file").write_text("after")
    again = (await client("CreateSnapshot", name="s1", source_volume_id=volume)).snapshot
    assert again == snapshot
    assert snapshot.ready_to_use

    source = {"snapshot": {"snapshot_id": snapshot.snapshot_id}}
    restored = await created(client, "pvc-2", volume_content_source=source)
    clone = await created(client, "pvc-3", volume_content_source={"volume": {"volume_id": volume}})

    assert (folder / restored.volume_id / "file").read_text() == "before"
    assert (folder / clone.volume_id / "file").read_text() == "after"
    assert restored.content_source.snapshot.snapshot_id == snapshot.snapshot_id
    code, _ = await client.fails("CreateSnapshot", name="s1", source_volume_id=clone.volume_id)
    assert code is Status.ALREADY_EXISTS
    for _ in range(2):
        await client("DeleteSnapshot", snapshot_id=snapshot.snapshot_id)
    assert sorted(path.name for path in folder.iterdir()) == sorted(stage.local.state.volumes)


async def test_a_volume_grows_and_never_shrinks(client: Client) -> None:
    volume = (await created(client, size=2 * GIB)).volume_id

    async def expand(capability: object, **capacity: int) -> Any:
        return await client(
            "ControllerExpandVolume",
            volume_id=volume,
            capacity_range=capacity,
            volume_capability=capability,
        )

    assert (await expand(mounted(), required_bytes=GIB)).capacity_bytes == 2 * GIB
    grown = await expand(mounted(), required_bytes=3 * GIB)
    assert (grown.capacity_bytes, grown.node_expansion_required) == (3 * GIB, True)
    assert not (await expand(block(), required_bytes=3 * GIB)).node_expansion_required
    with pytest.raises(GRPCError) as caught:
        await expand(mounted(), required_bytes=GIB, limit_bytes=2 * GIB)
    assert caught.value.status is Status.OUT_OF_RANGE


async def test_only_single_node_modes_are_confirmed(client: Client) -> None:
    volume = (await created(client)).volume_id
    good = await client(
        "ValidateVolumeCapabilities", volume_id=volume, volume_capabilities=[block(), mounted()]
    )
    bad = await client(
        "ValidateVolumeCapabilities",
        volume_id=volume,
        volume_capabilities=[mounted(Modes.MULTI_NODE_READER_ONLY)],
    )

    assert len(good.confirmed.volume_capabilities) == 2
    assert not bad.HasField("confirmed")
    assert "MULTI_NODE_READER_ONLY is not supported" in bad.message


async def test_the_health_of_a_volume_is_reported(client: Client) -> None:
    volume = (await created(client)).volume_id

    health = (await client("ControllerGetVolumeHealth", volume_id=volume)).volume_health

    assert (health.volume_id, list(health.health_statuses)) == (volume, [])
    assert not (await client("ControllerListVolumeHealth")).entries
    assert (await client.fails("ControllerGetVolumeHealth", volume_id="none"))[0] is (
        Status.NOT_FOUND
    )


async def test_a_request_goes_on_when_its_client_gives_up(
    client: Client, stage: LocalStage
) -> None:
    """Meanwhile, another request for the same volume is refused."""
    gate = asyncio.Event()
    volumes = stage.cloud.volumes
    assert volumes is not None
    slow = cast("Volumes", SlowVolumes(volumes, gate))
    folder = stage.folder / "slow"
    folder.mkdir()
    async with driving(folder, services(slow, None)) as hurried:
        asked: dict[str, Any] = {"name": "pvc-1", "volume_capabilities": [mounted()]}
        with pytest.raises(TimeoutError):
            await hurried("CreateVolume", timeout=0.2, **asked)
        code, message = await hurried.fails("CreateVolume", **asked)
        assert (code, "already in progress" in message) == (Status.ABORTED, True)
        gate.set()
        while not stage.local.state.volumes:
            await asyncio.sleep(0)

        assert (await hurried("CreateVolume", **asked)).volume.volume_id


class SlowVolumes:
    """Volumes whose creation waits for a gate."""

    def __init__(self, volumes: Volumes, gate: asyncio.Event) -> None:
        self._volumes = volumes
        self._gate = gate

    def __getattr__(self, name: str) -> object:
        return getattr(self._volumes, name)

    async def create(self, spec: VolumeSpec) -> Volume:
        await self._gate.wait()
        return await self._volumes.create(spec)
