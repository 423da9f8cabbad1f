"""Volumes of Cinder: marks, states, places, and what happens when Cinder or Nova refuse.

The conformance laws are in `tests/contract/test_openstack_volumes.py`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    ZONE_LABEL,
    FromSnapshot,
    FromVolume,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    VolumeId,
    VolumeSpec,
    VolumeState,
)
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.cinder import Cinder, CinderAttachment, CinderSnapshot, CinderVolume
from pileus.providers.openstack.config import Auth, BlockStorage, OpenStackConfig
from pileus.providers.openstack.nova import Nova
from pileus.providers.openstack.volume_records import VOLUME, Places, mark_of, snapshot_of, state_of
from pileus.providers.openstack.volumes import FEW, LATE, OpenStackVolumes
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings

OURS, THEIRS = "our-cluster", "their-cluster"
SPEC = VolumeSpec(owner=Owner(OURS, "pvc-1"), size_gib=10, name="pvc-1")


@dataclass
class Bench:
    """The modelled OpenStack, with faults before or after the effect of a request."""

    model: ModelApi = field(default_factory=ModelApi)
    config: BlockStorage = field(default_factory=BlockStorage)
    before: Callable[[Call], CloudError | None] = lambda _: None
    after: Callable[[Call], CloudError | None] = lambda _: None
    ignores_filters: bool = False

    def __post_init__(self) -> None:
        self.network, *_ = self.model.add_network("private", "10.0.0.0/16")
        config = OpenStackConfig(auth=Auth(region="RegionOne"), block_storage=self.config)
        client = Client(self)
        self.volumes = OpenStackVolumes.of(Cinder(client), Nova(client), config)

    async def call(self, call: Call) -> Any:
        if error := self.before(call):
            raise error
        if self.ignores_filters:
            call = replace(call, query=())
        answer = await self.model.call(call)
        if error := self.after(call):
            raise error
        return answer

    def server(self, name: str = "n1") -> InstanceId:
        return InstanceId(self.model.add_server(name, self.network))

    def volume(self, **fields: Any) -> VolumeId:
        body = {"volume": {"size": 5, **fields}}
        made = self.model.must(Service.BLOCK_STORAGE, "POST", "/volumes", body)
        self.model.records("volumes")
        return VolumeId(made["volume"]["id"])

    def writes(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.model.calls if call.writes]


async def test_a_volume_has_the_names_and_metadata_of_cinder_csi_and_our_mark() -> None:
    bench = Bench()
    labels = {"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"}
    volume = await bench.volumes.create(replace(SPEC, labels=labels))
    record = bench.model.record("volumes", volume.id)
    assert record["name"] == "pvc-1"
    assert record["metadata"] == {
        **labels,
        "cinder.csi.openstack.org/cluster": OURS,
        "pileus.dev/cluster": OURS,
        "pileus.dev/volume": "pvc-1",
    }
    assert (volume.owner, volume.labels) == (SPEC.owner, labels)


async def test_an_answer_that_is_lost_does_not_lead_to_a_second_volume() -> None:
    bench = Bench()
    bench.after = lambda call: Unavailable("lost") if call.writes else None
    with pytest.raises(Unavailable):
        await bench.volumes.create(SPEC)
    bench.after = lambda _: None
    volume = await bench.volumes.create(SPEC)
    assert [one["id"] for one in bench.model.records("volumes")] == [volume.id]


async def test_a_creation_that_may_still_take_effect_is_not_repeated() -> None:
    bench = Bench()
    late: list[Call] = []

    def postpone(call: Call) -> CloudError | None:
        if call.writes:
            late.append(call)
        return Unavailable("lost") if call.writes else None

    bench.before = postpone
    with pytest.raises(Unavailable):
        await bench.volumes.create(SPEC)
    bench.before = lambda _: None
    with pytest.raises(Conflict, match="answer"):
        await bench.volumes.create(SPEC)
    other = await bench.volumes.create(replace(SPEC, owner=Owner(OURS, "pvc-2")))
    await bench.call(*late)
    volume = await bench.volumes.create(SPEC)
    assert {one["id"] for one in bench.model.records("volumes")} == {volume.id, other.id}


@pytest.mark.parametrize("error", [Rejected("400"), QuotaExceeded("413"), Throttled("429")])
async def test_a_creation_that_cinder_refused_is_repeated_at_once(error: CloudError) -> None:
    bench = Bench()
    bench.before = lambda call: error if call.writes else None
    with pytest.raises(type(error)):
        await bench.volumes.create(SPEC)
    bench.before = lambda _: None
    await bench.volumes.create(SPEC)
    assert len(bench.model.records("volumes")) == 1


async def test_a_creation_that_never_took_effect_is_repeated_after_half_a_minute() -> None:
    bench = Bench()
    bench.before = lambda call: Unavailable("lost") if call.writes else None
    with pytest.raises(Unavailable):
        await bench.volumes.create(SPEC)
    bench.before = lambda _: None
    await asyncio.sleep(LATE)
    await bench.volumes.create(SPEC)
    assert len(bench.model.records("volumes")) == 1


async def test_an_answer_that_takes_longer_than_half_a_minute_counts() -> None:
    class Slow(Bench):
        async def call(self, call: Call) -> Any:
            answer = await super().call(call)
            if call.writes and "'pvc-1'" in str(call):
                await asyncio.sleep(LATE + 1)
            return answer

    bench = Slow()
    other = replace(SPEC, owner=Owner(OURS, "pvc-2"), name="pvc-2")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(bench.volumes.create(SPEC))
        await asyncio.sleep(LATE + 0.5)
        await bench.volumes.create(other)
    assert first.result().owner == SPEC.owner


async def test_a_volume_of_cinder_csi_is_not_ours_although_its_name_fits() -> None:
    """Its cluster is a name that other clusters may have as well."""
    bench = Bench()
    theirs = bench.volume(name="pvc-1", metadata={"cinder.csi.openstack.org/cluster": OURS})
    assert await bench.volumes.list_volumes(OURS) == {}
    ours = await bench.volumes.create(SPEC)
    assert ours.id != theirs
    with pytest.raises(Rejected, match="no mark"):
        await bench.volumes.delete(OURS, theirs)


async def test_a_cinder_that_ignores_the_filter_makes_nothing_of_others_ours() -> None:
    """As Cinder does without `resource_filters.json`."""
    bench = Bench()
    bench.ignores_filters = True
    theirs = await bench.volumes.create(replace(SPEC, owner=Owner(THEIRS, "pvc-1")))
    unmarked = bench.volume(name="pvc-1")
    ours = await bench.volumes.create(SPEC)
    assert ours.id not in {theirs.id, unmarked}
    assert (await bench.volumes.list_volumes(OURS)).keys() == {ours.id}
    for owner, volume in ((Owner(THEIRS, "snap-1"), theirs.id), (Owner(OURS, "snap-1"), ours.id)):
        await bench.volumes.create_snapshot(SnapshotSpec(owner=owner, volume=volume))
    (snapshot,) = (await bench.volumes.list_snapshots(OURS)).values()
    assert snapshot.volume == ours.id


async def test_of_two_volumes_with_one_mark_always_the_oldest_is_used() -> None:
    bench = Bench()
    metadata = {"pileus.dev/cluster": OURS, "pileus.dev/volume": "pvc-1"}
    made: list[str] = []
    for _ in range(2):
        made.append(bench.volume(size=10, metadata=metadata))
        bench.model.now += 10
    assert (await bench.volumes.create(SPEC)).id == made[0]
    assert len(await bench.volumes.list_volumes(OURS)) == 2, "both are listed, and can be deleted"


async def test_labels_cannot_overwrite_the_mark_and_are_not_cut() -> None:
    bench = Bench()
    for labels in ({"pileus.dev/cluster": THEIRS}, {"key": "x" * 256}):
        with pytest.raises(Rejected):
            await bench.volumes.create(replace(SPEC, labels=labels))
    assert bench.writes() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "ssd"}, "type __DEFAULT__"),
        ({"topologies": ({ZONE_LABEL: "az2"},)}, "is in"),
        ({"source": FromVolume(VolumeId("other"))}, "created from None"),
        ({"size_gib": 11}, "10 GiB"),
    ],
)
async def test_a_volume_that_does_not_fit_is_a_conflict_that_says_why(
    change: dict[str, Any], message: str
) -> None:
    bench = Bench(ModelApi(Settings(volume_zones=("nova", "az2"))))
    await bench.volumes.create(SPEC)
    with pytest.raises(Conflict, match=message):
        await bench.volumes.create(replace(SPEC, **change))


async def test_an_unknown_type_is_rejected_and_not_a_missing_source() -> None:
    with pytest.raises(Rejected, match='volume type "gold"'):
        await Bench().volumes.create(replace(SPEC, type="gold"))


async def test_the_first_acceptable_zone_that_cinder_has_is_chosen() -> None:
    bench = Bench(ModelApi(Settings(volume_zones=("nova", "az 2"))))
    places = ({ZONE_LABEL: "az1"}, {ZONE_LABEL: "az-2"}, {ZONE_LABEL: "nova"})
    volume = await bench.volumes.create(replace(SPEC, topologies=places))
    assert bench.model.record("volumes", volume.id)["availability_zone"] == "az 2"
    assert volume.topology[ZONE_LABEL] == "az-2"


def test_the_refusal_of_a_zone_names_the_zones_and_the_key_of_cloud_conf() -> None:
    """Servers are often in other zones than the one that Cinder has by default."""
    spec = replace(SPEC, topologies=({ZONE_LABEL: "az-2"}, {ZONE_LABEL: "az-1"}))
    refusal = (
        "volumes cannot be created in {'topology.kubernetes.io/zone': 'az-1'} or "
        "{'topology.kubernetes.io/zone': 'az-2'}. Cinder has the zones nova, spare in region "
        "RegionOne. Fix: set ignore-volume-az in [BlockStorage] of cloud.conf if the zones of Nova "
        "and Cinder differ and every server can attach every volume"
    )

    with pytest.raises(Rejected) as refused:
        Places("RegionOne").chosen(spec, ("nova", "spare"))

    assert str(refused.value) == refusal
    assert Places("RegionOne", ignores_zones=True).chosen(spec, ("nova", "spare")) == ""


async def test_with_ignore_volume_az_the_zones_of_servers_do_not_count() -> None:
    bench = Bench(config=BlockStorage(ignore_volume_az=True))
    spec = replace(SPEC, topologies=({ZONE_LABEL: "az1"},))
    volume = await bench.volumes.create(spec)
    assert volume.topology == {}
    assert (await bench.volumes.create(spec)).id == volume.id


async def test_a_quota_is_reported_as_such() -> None:
    bench = Bench()
    quota = QuotaExceeded("VolumeLimitExceeded")
    bench.before = lambda call: quota if call.writes else None
    for attempt in (bench.volumes.create(SPEC), bench.volumes.create(replace(SPEC, size_gib=1))):
        with pytest.raises(QuotaExceeded):
            await attempt


async def test_a_volume_that_is_attached_by_another_process_meanwhile_is_a_conflict() -> None:
    """Cinder refuses the second attachment with 400; it never has two."""
    bench = Bench()
    first, second = bench.server("n1"), bench.server("n2")
    volume = await bench.volumes.create(SPEC)
    path = f"/servers/{second}/os-volume_attachments"
    body = {"volumeAttachment": {"volumeId": volume.id}}

    def race(call: Call) -> CloudError | None:
        if call.method == "POST":
            bench.before = lambda _: None
            bench.model.must(Service.COMPUTE, "POST", path, body)
        return None

    bench.before = race
    with pytest.raises(Conflict):
        await bench.volumes.attach(OURS, volume.id, first)
    listed = (await bench.volumes.list_volumes(OURS))[volume.id]
    assert [one.instance for one in listed.attachments] == [second]


async def test_a_volume_that_allows_several_attachments_is_attached_once_all_the_same() -> None:
    bench = Bench()
    first, second = bench.server("n1"), bench.server("n2")
    volume = bench.volume(multiattach=True)
    await bench.volumes.attach(OURS, volume, first)
    with pytest.raises(Conflict, match=first):
        await bench.volumes.attach(OURS, volume, second)


async def test_a_reserved_volume_is_attaching_to_the_instance_that_reserved_it() -> None:
    bench = Bench()
    bench.model.at_work = 60
    first, second = bench.server("n1"), bench.server("n2")
    volume = bench.volume()
    bench.model.now += 60
    await bench.volumes.attach(OURS, volume, first)
    assert bench.model.record("volumes", volume)["attachments"] == [], "as Cinder does"
    (listed,) = (await bench.volumes.list_volumes(OURS, [volume])).values()
    assert listed.state is VolumeState.ATTACHING
    assert [one.instance for one in listed.attachments] == [first]
    assert await bench.volumes.attach(OURS, volume, first) == listed
    with pytest.raises(Conflict):
        await bench.volumes.attach(OURS, volume, second)
    with pytest.raises(Rejected):
        await bench.volumes.delete(OURS, volume)


@pytest.mark.parametrize("error", [QuotaExceeded("26 disk devices"), Unauthorized("policy")])
async def test_what_nova_refuses_for_other_reasons_stays_what_it_is(error: CloudError) -> None:
    bench = Bench()
    server, volume = bench.server(), bench.volume()
    bench.before = lambda call: error if call.method == "POST" else None
    with pytest.raises(type(error)):
        await bench.volumes.attach(OURS, volume, server)


async def test_the_boot_volume_does_not_count_for_the_limit() -> None:
    bench = Bench(config=BlockStorage(node_volume_attach_limit=1))
    server, boot, data, more = bench.server(), bench.volume(), bench.volume(), bench.volume()
    await bench.volumes.attach(OURS, boot, server)
    (attachment,) = bench.model.records("attachments")
    bench.model.change("attachments", attachment["id"], {"device": "/dev/vda"})
    await bench.volumes.attach(OURS, data, server)
    with pytest.raises(QuotaExceeded, match="node-volume-attach-limit"):
        await bench.volumes.attach(OURS, more, server)


async def test_a_volume_with_snapshots_is_a_conflict_and_stays() -> None:
    bench = Bench()
    volume = await bench.volumes.create(SPEC)
    spec = SnapshotSpec(owner=Owner(OURS, "snap-1"), volume=volume.id)
    await bench.volumes.create_snapshot(spec)
    with pytest.raises(Conflict, match="snapshots"):
        await bench.volumes.delete(OURS, volume.id)
    assert volume.id in await bench.volumes.list_volumes(OURS)


async def test_an_attached_volume_is_resized_with_the_microversion_that_allows_it() -> None:
    bench = Bench()
    server, volume = bench.server(), await bench.volumes.create(SPEC)
    await bench.volumes.attach(OURS, volume.id, server)
    resized = await bench.volumes.resize(OURS, volume.id, 20)
    assert (resized.state, resized.size_gib) == (VolumeState.RESIZING, 10)
    assert bench.model.calls[-1].microversion == "3.42"
    (listed,) = (await bench.volumes.list_volumes(OURS)).values()
    assert (listed.state, listed.size_gib) == (VolumeState.ATTACHED, 20)


async def test_without_microversions_an_attached_volume_must_be_detached_first() -> None:
    bench = Bench(config=BlockStorage(ignore_volume_microversion=True))
    server, volume = bench.server(), await bench.volumes.create(SPEC)
    await bench.volumes.attach(OURS, volume.id, server)
    with pytest.raises(Conflict, match="detached first"):
        await bench.volumes.resize(OURS, volume.id, 20)
    assert all(not c.microversion for c in bench.model.calls if c.service is Service.BLOCK_STORAGE)


async def test_a_snapshot_that_is_not_ready_or_of_another_cluster_is_no_source() -> None:
    bench = Bench()
    theirs = await bench.volumes.create(replace(SPEC, owner=Owner(THEIRS, "pvc-1")))
    foreign = await bench.volumes.create_snapshot(
        SnapshotSpec(owner=Owner(THEIRS, "snap-1"), volume=theirs.id)
    )
    for source in (FromSnapshot(foreign.id), FromVolume(theirs.id)):
        with pytest.raises(Rejected, match=THEIRS):
            await bench.volumes.create(replace(SPEC, source=source))
    ours = await bench.volumes.create(replace(SPEC, owner=Owner(OURS, "pvc-2")))
    bench.model.at_work = 60
    snapshot = await bench.volumes.create_snapshot(
        SnapshotSpec(owner=Owner(OURS, "snap-1"), volume=ours.id)
    )
    with pytest.raises(Conflict, match="creating"):
        await bench.volumes.create(replace(SPEC, source=FromSnapshot(snapshot.id)))


async def test_lists_are_read_in_pages_and_many_ids_by_one_list() -> None:
    bench = Bench(ModelApi(Settings(page_limit=4)))
    count = FEW + 2
    specs = [replace(SPEC, owner=Owner(OURS, f"pvc-{number}")) for number in range(count)]
    ids = [(await bench.volumes.create(spec)).id for spec in specs]
    bench.model.requests.clear()
    assert (await bench.volumes.list_volumes(OURS)).keys() == set(ids)
    assert bench.model.requests["block-storage", "GET", "/volumes/detail"] == 3
    bench.model.requests.clear()
    assert len(await bench.volumes.list_volumes(OURS, [*ids, VolumeId("missing")])) == count
    assert sum(bench.model.requests.values()) == 3


async def test_a_list_that_fails_for_one_volume_is_no_list() -> None:
    bench = Bench()
    good, bad = bench.volume(), bench.volume()
    bench.before = lambda call: Unavailable("502") if bad in call.path else None
    with pytest.raises(Unavailable):
        await bench.volumes.list_volumes(OURS, [good, bad])


async def test_a_failing_volume_is_reported_with_its_status_and_kept() -> None:
    bench = Bench()
    bench.model.doom = "no valid host"
    created = await bench.volumes.create(SPEC)
    (volume,) = (await bench.volumes.list_volumes(OURS)).values()
    assert (volume.id, volume.state) == (created.id, VolumeState.ERROR)
    assert "error" in volume.reason
    assert (await bench.volumes.create(SPEC)).id == created.id


@pytest.mark.parametrize(
    ("status", "attached", "free"),
    [
        ("creating", VolumeState.ATTACHED, VolumeState.CREATING),
        ("available", VolumeState.ATTACHED, VolumeState.AVAILABLE),
        ("reserved", VolumeState.ATTACHING, VolumeState.CREATING),
        ("attaching", VolumeState.ATTACHING, VolumeState.CREATING),
        ("in-use", VolumeState.ATTACHED, VolumeState.CREATING),
        ("detaching", VolumeState.DETACHING, VolumeState.CREATING),
        ("extending", VolumeState.RESIZING, VolumeState.RESIZING),
        ("deleting", VolumeState.DELETING, VolumeState.DELETING),
        ("error", VolumeState.ERROR, VolumeState.ERROR),
        ("error_deleting", VolumeState.ERROR, VolumeState.ERROR),
        ("error_extending", VolumeState.ERROR, VolumeState.ERROR),
        ("backing-up", VolumeState.ATTACHED, VolumeState.CREATING),
        ("retyping", VolumeState.ATTACHED, VolumeState.CREATING),
        ("awaiting-transfer", VolumeState.ATTACHED, VolumeState.CREATING),
        ("a-new-status", VolumeState.ATTACHED, VolumeState.CREATING),
    ],
)
def test_states_follow_the_status_and_fit_the_attachments(
    status: str, attached: VolumeState, free: VolumeState
) -> None:
    assert state_of(status, is_attached=True) is attached
    assert state_of(status, is_attached=False) is free


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("available", SnapshotState.READY),
        ("creating", SnapshotState.CREATING),
        ("deleting", SnapshotState.DELETING),
        ("error_deleting", SnapshotState.ERROR),
        ("backing-up", SnapshotState.READY),
        ("restoring", SnapshotState.CREATING),
    ],
)
def test_states_of_snapshots(status: str, state: SnapshotState) -> None:
    record = CinderSnapshot(
        id="s", status=status, size=1, volume_id="v", created_at="1970-01-01T00:01:00.500000"
    )
    snapshot = snapshot_of(record)
    assert (snapshot.id, snapshot.state, snapshot.created_at) == (SnapshotId("s"), state, 60.5)


def test_metadata_that_cinder_adds_while_attached_is_no_label() -> None:
    metadata = {"attached_mode": "rw", "readonly": "False", "team": "shop"}
    attachment = CinderAttachment(host_name="bare-metal-1", device="/dev/sdb")
    record = CinderVolume(
        id="v", status="in-use", size=1, metadata=metadata, attachments=(attachment,)
    )
    volume = Places("RegionOne").volume(record)
    assert volume.labels == {"team": "shop"}
    assert [one.instance for one in volume.attachments] == ["bare-metal-1"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_what_cinder_has_left_of_an_attachment_to_a_deleted_server_is_removed(
    is_deleted: bool,
) -> None:
    bench = Bench()
    volume, server = bench.volume(metadata=mark_of(SPEC.owner, VOLUME)), bench.server()
    await bench.volumes.attach(OURS, volume, server)
    bench.model.records("volumes")
    state = bench.model.state
    if is_deleted:  # without a word to Cinder
        bench.model.state = state.without("servers", [server])
    else:
        change = {"os-extended-volumes:volumes_attached": []}
        bench.model.state = state.change("servers", server, change)

    await bench.volumes.detach(OURS, volume, server)

    status = bench.model.record("volumes", volume)["status"]
    assert status == ("available" if is_deleted else "in-use")
    assert bool(bench.model.records("attachments")) != is_deleted
