"""What providers answer about volumes and snapshots is checked."""

from dataclasses import replace
from typing import Any, cast

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    Attachment,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeCapacity,
    VolumeId,
    VolumeLimits,
    VolumeSpec,
    VolumeState,
)
from tests.unit.cloud.fakes import OWNER, cloud_of, equipped

V1, S1, I1 = VolumeId("v1"), SnapshotId("s1"), InstanceId("i1")
VOLUME = Volume(id=V1, owner=OWNER, size_gib=10, state=VolumeState.AVAILABLE)
ATTACHED = replace(VOLUME, state=VolumeState.ATTACHED, attachments=(Attachment(I1),))
SNAPSHOT = Snapshot(
    id=S1, owner=OWNER, volume=V1, size_gib=10, state=SnapshotState.READY, created_at=1.0
)
SPEC = VolumeSpec(owner=OWNER, size_gib=10)
FOREIGN = Owner("red", OWNER.uid)


class FakeVolumes:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        async def call(*_: object, **__: object) -> object:
            return self.answer

        return call


def volumes(metrics: Any, answer: object) -> Any:
    cloud = replace(cloud_of(), volumes=cast("Any", FakeVolumes(answer)))
    return equipped(cloud, metrics).volumes


async def test_volumes_of_other_clusters_are_never_passed_on(metrics):
    foreign = replace(VOLUME, id=VolumeId("v2"), owner=FOREIGN)
    found = volumes(metrics, {V1: VOLUME, foreign.id: foreign})

    assert await found.list_volumes("blue") == {V1: VOLUME}
    assert await found.list_volumes("blue", [V1, foreign.id]) == {V1: VOLUME}
    place = {"provider": "fake", "capability": "volumes", "method": "list_volumes"}
    assert metrics.registry.value("pileus_cloud_odd_answers_total", place) == 2


async def test_what_was_not_asked_for_is_dropped(metrics):
    unmarked = replace(VOLUME, id=VolumeId("v2"), owner=None)
    found = volumes(metrics, {V1: VOLUME, unmarked.id: unmarked})

    assert await found.list_volumes("blue") == {V1: VOLUME}
    assert await found.list_volumes("blue", []) == {}
    assert await found.list_volumes("blue", [unmarked.id]) == {unmarked.id: unmarked}


def odd(**fields: object) -> Volume:
    return replace(VOLUME, **cast("Any", fields))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param("v1", "str instead of a Volume", id="text"),
        pytest.param(odd(id=7), "id is int", id="id"),
        pytest.param(odd(id=""), "without an ID", id="no id"),
        pytest.param(odd(owner="blue"), "owner is str", id="owner"),
        pytest.param(odd(size_gib=0), "size_gib is 0", id="size"),
        pytest.param(odd(size_gib=True), "size_gib is True", id="size of truth"),
        pytest.param(odd(state="on fire"), "state is 'on fire'", id="state"),
        pytest.param(odd(attachments=[I1]), "attachments are not", id="attachments"),
        pytest.param(odd(attachments=(Attachment(I1),)), "is available with 1", id="free"),
        pytest.param(odd(state=VolumeState.ATTACHED), "is attached with 0", id="attached"),
        pytest.param(odd(state=VolumeState.DETACHING), "is detaching with 0", id="detaching"),
        pytest.param(odd(topology={"zone": 1}), "topology is not", id="topology"),
        pytest.param(odd(labels=None), "labels is not", id="labels"),
        pytest.param(odd(source="s1"), "source is str", id="source"),
        pytest.param(odd(type=None), "type is None", id="type"),
    ],
)
async def test_a_list_with_an_invalid_volume_is_no_list(metrics, answer, text):
    other = replace(VOLUME, id=VolumeId("v2"))
    found = volumes(metrics, {getattr(answer, "id", V1): answer, other.id: other})

    with pytest.raises(Unavailable, match=text):
        await found.list_volumes("blue")
    with pytest.raises(Unavailable, match=text):
        await volumes(metrics, answer).create(SPEC)


async def test_a_volume_under_the_id_of_another_is_an_error(metrics):
    with pytest.raises(Unavailable, match="under the ID 'v2'"):
        await volumes(metrics, {"v2": VOLUME}).list_volumes("blue")


async def test_a_created_volume_has_the_mark_and_the_size(metrics):
    assert await volumes(metrics, VOLUME).create(SPEC) == VOLUME
    assert await volumes(metrics, VOLUME).create(replace(SPEC, size_gib=9)) == VOLUME
    for answer in (odd(owner=FOREIGN), odd(owner=None), odd(size_gib=9)):
        with pytest.raises(Unavailable, match=r"volumes\.create with volume 'v1'"):
            await volumes(metrics, answer).create(SPEC)


async def test_an_attached_volume_is_the_one_and_at_that_instance(metrics):
    assert await volumes(metrics, ATTACHED).attach("blue", V1, I1) == ATTACHED
    with pytest.raises(Unavailable, match="not attached to 'i1'"):
        await volumes(metrics, VOLUME).attach("blue", V1, I1)
    with pytest.raises(Unavailable, match="instead of 'v2'"):
        await volumes(metrics, ATTACHED).attach("blue", VolumeId("v2"), I1)


async def test_a_resized_volume_is_large_enough_or_resizing(metrics):
    resizing = odd(state=VolumeState.RESIZING)

    assert await volumes(metrics, VOLUME).resize("blue", V1, 10) == VOLUME
    assert await volumes(metrics, resizing).resize("blue", V1, 11) == resizing
    with pytest.raises(Unavailable, match="10 GiB, less than asked for"):
        await volumes(metrics, VOLUME).resize("blue", V1, 11)
    with pytest.raises(Unavailable, match="instead of 'v2'"):
        await volumes(metrics, VOLUME).resize("blue", VolumeId("v2"), 1)


async def test_snapshots_are_checked_as_volumes_are(metrics):
    foreign = replace(SNAPSHOT, id=SnapshotId("s2"), owner=FOREIGN)
    found = volumes(metrics, {S1: SNAPSHOT, foreign.id: foreign})

    assert await found.list_snapshots("blue") == {S1: SNAPSHOT}
    assert await found.list_snapshots("blue", [foreign.id]) == {}
    for answer in (
        replace(SNAPSHOT, size_gib=0),
        replace(SNAPSHOT, volume=cast("Any", None)),
        replace(SNAPSHOT, created_at=cast("Any", "today")),
        replace(SNAPSHOT, state=cast("Any", VolumeState.AVAILABLE)),
    ):
        with pytest.raises(Unavailable, match=r"volumes\.list_snapshots with"):
            await volumes(metrics, {S1: answer}).list_snapshots("blue")


async def test_a_created_snapshot_has_the_mark_and_the_volume(metrics):
    spec = SnapshotSpec(owner=OWNER, volume=V1)

    assert await volumes(metrics, SNAPSHOT).create_snapshot(spec) == SNAPSHOT
    for odd_spec in (replace(spec, owner=FOREIGN), replace(spec, volume=VolumeId("v2"))):
        with pytest.raises(Unavailable, match="create_snapshot with snapshot 's1'"):
            await volumes(metrics, SNAPSHOT).create_snapshot(odd_spec)


@pytest.mark.parametrize("attachments", [-1, "many", True])
async def test_limits_are_numbers_or_unknown(metrics, attachments):
    for good in (VolumeLimits(), VolumeLimits(attachments=0)):
        assert await volumes(metrics, good).limits(I1) == good
    with pytest.raises(Unavailable, match="whose attachments are"):
        await volumes(metrics, VolumeLimits(attachments=attachments)).limits(I1)


@pytest.mark.parametrize("available", [-1, "much", True, 1.5])
async def test_capacity_is_a_number_or_unknown(metrics, available):
    for good in (VolumeCapacity(), VolumeCapacity(available_gib=0)):
        assert await volumes(metrics, good).capacity("ssd", {"zone": "a"}) == good
    with pytest.raises(Unavailable, match="whose available_gib is"):
        await volumes(metrics, VolumeCapacity(available_gib=available)).capacity()
