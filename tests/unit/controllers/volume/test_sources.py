"""Claims that start with the content of a snapshot or of another claim."""

import asyncio
from typing import Any

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.volume import (
    FromSnapshot,
    FromVolume,
    SnapshotId,
    SnapshotSpec,
    Volume,
    VolumeSpec,
    VolumeState,
)
from pileus.controllers.volume.objects import CLAIM_FINALIZER
from pileus.objects.preview import EVERYTHING, Planned, Trouble
from pileus_lab.local.model.snapshots import DeleteSnapshot
from tests.unit.controllers.volume.bed import CLAIMS, CLUSTER, DRIVER, PVS, Bed, bed, bound
from tests.unit.controllers.volume.snapshot_kinds import (
    CONTENTS,
    GROUP,
    SNAPSHOTS,
    put,
    put_snapshot,
    serve_snapshots,
)

SNAPSHOT = {"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "copy"}
CLAIM = {"kind": "PersistentVolumeClaim", "name": "data"}
DELETED = "2026-01-01T00:00:00Z"


async def snapshot(it: Bed, *, size: str = "1Gi", **more: Any) -> SnapshotId:
    """A bound claim `data`, a snapshot of its volume, and the objects of that snapshot."""
    serve_snapshots(it.api)
    await bound(it, size=size)
    (volume,) = await it.in_cloud()
    spec = SnapshotSpec(owner=Owner(CLUSTER, "snapshot-1"), volume=volume.id, name="copy")
    made = await it.volumes.inner.create_snapshot(spec)
    put_snapshot(it.api, made.id, more.pop("driver", DRIVER), **more)
    return made.id


async def copies(it: Bed) -> list[Volume]:
    return [each for each in await it.in_cloud() if each.source is not None]


def phase(it: Bed, name: str) -> str:
    return it.act("GET", f"{CLAIMS}/{name}")["status"].get("phase", "")


async def test_a_claim_from_a_snapshot_gets_a_volume_with_its_content():
    async with bed() as it:
        id_ = await snapshot(it)
        it.claim("restored", size="2Gi", dataSource=SNAPSHOT)
        await it.settle()

        (made,) = await copies(it)
        assert made.source == FromSnapshot(id_)
        assert made.size_gib == 2
        assert phase(it, "restored") == "Bound"
        finalizers = it.act("GET", f"{CLAIMS}/restored")["metadata"]["finalizers"]
        assert CLAIM_FINALIZER not in finalizers
        assert it.events.reasons() == ["ProvisioningSucceeded"] * 2
        assert it.volumes.methods() == ["create", "create"]


@pytest.mark.parametrize("field", ["dataSource", "dataSourceRef"])
async def test_a_claim_from_another_claim_gets_a_clone_of_its_volume(field: str):
    async with bed() as it:
        await bound(it)
        (source,) = await it.in_cloud()
        named: dict[str, Any] = {field: CLAIM}
        it.claim("clone", **named)
        await it.settle()

        (made,) = await copies(it)
        assert made.source == FromVolume(source.id)
        assert phase(it, "clone") == "Bound"
        assert it.volumes.methods() == ["create", "create"]


async def refused(it: Bed, said: str, name: str = "restored") -> None:
    """The claim has one event that says so, and there is no volume and no finalizer for it."""
    await it.settle()
    (message,) = it.events.messages("ProvisioningFailed")
    assert said in message
    assert await copies(it) == []
    assert phase(it, name) == "Pending"
    found = it.act("GET", f"{CLAIMS}/{name}")["metadata"]
    assert CLAIM_FINALIZER not in found.get("finalizers", ())


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param({"ready": False}, "VolumeSnapshot copy is not ready", id="not-ready"),
        pytest.param({"deletionTimestamp": DELETED}, "is being deleted", id="deleted"),
        pytest.param({"driver": "other.example.com"}, "of other.example.com", id="driver"),
        pytest.param({"uid": "another"}, "is not bound to VolumeSnapshot copy", id="not-bound"),
        pytest.param(
            {"content": {"sourceVolumeMode": "Block"}}, "volumeMode Block", id="volume-mode"
        ),
    ],
)
async def test_a_snapshot_that_cannot_be_used_is_reported_and_nothing_is_created(
    objects: dict[str, Any], said: str
):
    async with bed() as it:
        await snapshot(it, **objects)
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, said)


async def test_a_missing_snapshot_is_waited_for():
    async with bed() as it:
        serve_snapshots(it.api)
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, "VolumeSnapshot copy does not exist in namespace default")

        await snapshot(it)
        await it.settle(20)
        assert phase(it, "restored") == "Bound"
        assert len(await copies(it)) == 1


async def test_a_snapshot_without_its_content_is_waited_for():
    async with bed() as it:
        serve_snapshots(it.api)
        status = {"readyToUse": True, "boundVolumeSnapshotContentName": "content"}
        put(it.api, SNAPSHOTS, "copy", status=status)
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, "VolumeSnapshotContent content does not exist")


async def test_a_content_without_a_handle_is_waited_for():
    async with bed() as it:
        await snapshot(it)
        spec = {"driver": DRIVER, "volumeSnapshotRef": {"uid": "uid-copy"}}
        put(it.api, CONTENTS, "content", spec=spec, status={})
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, "VolumeSnapshotContent content of VolumeSnapshot copy is not ready")


async def test_the_reason_of_a_failed_snapshot_is_reported():
    async with bed() as it:
        serve_snapshots(it.api)
        status = {"readyToUse": False, "error": {"message": "no space"}}
        put(it.api, SNAPSHOTS, "copy", status=status)
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, "VolumeSnapshot copy is not ready: no space")


async def test_an_administrator_can_allow_another_volume_mode():
    async with bed() as it:
        id_ = await snapshot(it, content={"sourceVolumeMode": "Block"})
        spec = {
            "driver": DRIVER,
            "sourceVolumeMode": "Block",
            "volumeSnapshotRef": {"uid": "uid-copy"},
        }
        allowed = {"snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"}
        metadata = {"annotations": allowed}
        put(
            it.api,
            CONTENTS,
            "content",
            spec=spec,
            status={"snapshotHandle": id_},
            metadata=metadata,
        )
        it.claim("restored", dataSource=SNAPSHOT)
        await it.settle()
        assert phase(it, "restored") == "Bound"


async def test_a_snapshot_that_the_cloud_does_not_have_is_reported():
    async with bed() as it:
        id_ = await snapshot(it)
        await it.cloud.call(DeleteSnapshot(snapshot=id_, cluster=CLUSTER))
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, f"the cloud has no snapshot {id_} of this cluster")


async def test_a_cluster_without_the_kinds_of_snapshots_says_so_once_on_the_claim():
    async with bed() as it:
        it.claim("restored", dataSource=SNAPSHOT)
        await refused(it, "the cluster has no volumesnapshots.snapshot.storage.k8s.io")
        await asyncio.sleep(1800)

        assert len(it.events.messages("ProvisioningFailed")) == 1
        await bound(it)
        assert it.sample("pileus_volumes_failing") == 1


async def test_each_reason_why_a_source_cannot_be_copied_is_reported_once():
    async with bed() as it:
        it.claim("restored", size="1Gi", dataSource=SNAPSHOT)
        await it.settle(20)
        serve_snapshots(it.api)
        await it.settle(20)
        await snapshot(it, size="2Gi")
        await it.settle(20)

        first, second, third = it.events.messages("ProvisioningFailed")
        assert "the cluster has no volumesnapshots" in first
        assert "VolumeSnapshot copy does not exist" in second
        assert "at least 2Gi" in third


async def test_a_claim_that_is_smaller_than_its_source_is_refused():
    async with bed() as it:
        await snapshot(it, size="3Gi")
        it.claim("restored", size="2Gi", dataSource=SNAPSHOT)
        await refused(it, "Fix: create the claim with at least 3Gi")


async def test_a_clone_of_a_claim_that_grew_needs_its_new_size():
    async with bed("n1") as it:
        await bound(it)
        it.grow("2Gi")
        await it.settle()
        it.claim("clone", dataSource=CLAIM)
        await refused(it, "has 2 GiB. Fix: create the claim with at least 2Gi", "clone")


async def test_a_missing_source_claim_is_waited_for():
    async with bed() as it:
        it.claim("clone", dataSource=CLAIM)
        await refused(it, "PersistentVolumeClaim data does not exist", "clone")

        await bound(it)
        await it.settle(20)
        assert phase(it, "clone") == "Bound"
        assert len(await copies(it)) == 1


async def test_a_source_claim_that_is_not_bound_is_waited_for():
    async with bed() as it:
        it.add_class("late", volumeBindingMode="WaitForFirstConsumer")
        it.claim(storageClassName="late")
        it.claim("clone", dataSource=CLAIM)
        await refused(it, "PersistentVolumeClaim data is Pending", "clone")


async def test_a_source_claim_with_another_volume_mode_is_refused():
    async with bed() as it:
        await bound(it)
        it.claim("clone", volumeMode="Block", dataSource=CLAIM)
        await refused(it, "has volumeMode Filesystem, and the claim has Block", "clone")


async def test_a_source_claim_of_another_driver_is_refused():
    async with bed() as it:
        it.add_class("other", provisioner="example.com/other")
        made = it.claim(storageClassName="other")
        reference = {"namespace": "default", "name": "data", "uid": made["metadata"]["uid"]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "other",
            "claimRef": {"kind": "PersistentVolumeClaim", **reference},
            "csi": {"driver": "other.example.com", "volumeHandle": "x"},
        }
        it.act("POST", PVS, {"metadata": {"name": "foreign"}, "spec": spec})
        await it.settle()
        assert phase(it, "data") == "Bound"

        it.claim("clone", dataSource=CLAIM)
        await refused(it, "driver other.example.com", "clone")


async def test_a_source_in_another_namespace_is_refused():
    async with bed() as it:
        await bound(it)
        it.claim("clone", dataSourceRef={**CLAIM, "namespace": "kube-system"})
        await refused(it, "sources in other namespaces are not supported", "clone")


@pytest.mark.parametrize(
    "source",
    [
        {"apiGroup": "example.com", "kind": "Backup", "name": "monday"},
        {"apiGroup": "example.com", "kind": "VolumeSnapshot", "name": "copy"},
        {"apiGroup": "example.com", "kind": "PersistentVolumeClaim", "name": "data"},
    ],
    ids=lambda source: source["kind"],
)
async def test_an_unknown_kind_is_left_to_a_volume_populator(source: dict[str, str]):
    async with bed() as it:
        it.claim("restored", dataSourceRef=source)
        await refused(it, "only a volume populator can provide: no volume is created")
        assert it.volumes.calls == []
        assert it.sample("pileus_volumes_failing") == 0


# -- crashes, lost answers and deletions ----------------------------------------------------------


async def test_a_lost_answer_makes_no_second_copy_also_if_the_source_is_deleted_meanwhile():
    async with bed() as it:
        await snapshot(it)
        it.volumes.fails_after["create"] = Unavailable("connection lost")
        it.claim("restored", dataSource=SNAPSHOT)
        it.bind()
        await asyncio.sleep(0.5)
        (made,) = await copies(it)
        put(it.api, SNAPSHOTS, "copy", metadata={"deletionTimestamp": DELETED})
        it.restart()
        await it.settle()

        assert await copies(it) == [made]
        assert phase(it, "restored") == "Bound"
        assert it.volumes.methods().count("create") == 2


async def test_a_long_copy_is_waited_for_without_creating_it_again():
    async with bed() as it:
        await snapshot(it)
        it.volumes.shows = VolumeState.CREATING
        it.claim("restored", dataSource=SNAPSHOT)
        before = it.volumes.lists
        await it.settle()
        assert len(it.items(PVS)) == 1
        assert it.volumes.methods() == ["create", "create"]
        assert it.volumes.lists - before == 2, "a long list, and not one for each check"

        it.volumes.shows = None
        await it.settle()
        assert phase(it, "restored") == "Bound"
        assert it.volumes.methods() == ["create", "create"]


async def test_a_claim_that_is_deleted_during_its_copy_leaves_no_volume():
    async with bed() as it:
        await snapshot(it)
        it.volumes.fails_after["create"] = Unavailable("connection lost")
        it.claim("restored", dataSource=SNAPSHOT)
        it.bind()
        await asyncio.sleep(0.5)
        assert len(await copies(it)) == 1
        it.act("DELETE", f"{CLAIMS}/restored")
        await it.settle(20)

        assert await copies(it) == []
        assert [each["metadata"]["name"] for each in it.items(CLAIMS)] == ["data"]
        assert len(await it.in_cloud()) == 1


async def test_a_volume_with_the_mark_and_without_the_content_is_never_used():
    async with bed() as it:
        await snapshot(it)
        it.volumes.fails["create"] = Unavailable("not yet")
        made = it.claim("restored", dataSource=SNAPSHOT)
        it.bind()
        await asyncio.sleep(0.5)
        owner = Owner(CLUSTER, f"pvc-{made['metadata']['uid']}")
        (source,) = await it.in_cloud()
        spec = VolumeSpec(owner=owner, size_gib=1, name="empty")
        empty = await it.volumes.inner.create(spec)
        it.volumes.fails.clear()
        await it.settle(20)

        assert phase(it, "restored") == "Pending"
        assert {each.id for each in await it.in_cloud()} == {source.id, empty.id}


async def test_a_released_volume_is_kept_while_a_claim_copies_it():
    async with bed() as it:
        await bound(it)
        (source,) = await it.in_cloud()
        it.claim("clone", dataSource=CLAIM)
        it.bind()
        it.volumes.fails["create"] = Unavailable("no answer")
        await asyncio.sleep(1)
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        assert [each.id for each in await it.in_cloud()] == [source.id]
        (message,) = it.events.messages("VolumeFailedDelete")
        assert "kubectl delete pvc -n default clone" in message

        it.act("DELETE", f"{CLAIMS}/clone")
        await it.settle(30)
        assert await it.in_cloud() == []
        assert it.items(PVS) == []


# -- plans ----------------------------------------------------------------------------------------


async def test_the_plan_names_the_content_of_the_new_volume():
    async with bed() as it:
        id_ = await snapshot(it)
        it.volumes.fails["create"] = Unavailable("not now")
        it.claim("restored", dataSource=SNAPSHOT)
        it.bind()
        await asyncio.sleep(1)

        found = await it.controller.preview(EVERYTHING)

        (create, *_) = [line for line in found if isinstance(line, Planned)]
        assert f"content: snapshot {id_}" in create.details
        assert not any(isinstance(line, Trouble) for line in found)


async def test_the_plan_shows_why_a_source_cannot_be_copied():
    async with bed() as it:
        it.claim("clone", dataSource=CLAIM)
        it.bind()
        await asyncio.sleep(1)

        (line,) = await it.controller.preview(EVERYTHING)

        assert isinstance(line, Trouble)
        assert "PersistentVolumeClaim data does not exist" in line.message
