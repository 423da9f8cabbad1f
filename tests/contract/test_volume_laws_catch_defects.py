"""Each law on volumes and snapshots is broken by the defect that it is about."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.abilities import Abilities
from pileus.cloud.errors import CloudError, NotFound, Unavailable, Unsupported
from pileus.cloud.volume import Attachment, VolumeCapacity, VolumeState
from pileus.testing.conformance import snapshots, volumes
from pileus.testing.conformance.harness import run
from pileus.testing.conformance.snapshots import SnapshotsLaws
from pileus.testing.conformance.volumes import VolumesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.storage import SPACE, BasicVolumes, StorageHarness, StorageVolumes


class InVirtualTime:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()


class TestSlowVolumes(InVirtualTime, VolumesLaws):
    def make(self):
        return StorageHarness()


class TestSlowSnapshots(InVirtualTime, SnapshotsLaws):
    def make(self):
        return StorageHarness()


class TestBasicVolumes(InVirtualTime, VolumesLaws):
    def make(self):
        return StorageHarness(BasicVolumes, abilities=Abilities(resizes_volumes=False))


class TestNoSnapshots(InVirtualTime, SnapshotsLaws):
    def make(self):
        return StorageHarness(BasicVolumes)


class IgnoresMarks(StorageVolumes):
    def is_marked(self, volume: Any, spec: Any) -> bool:
        return False


class IdentifiesByUidAlone(StorageVolumes):
    def is_marked(self, volume: Any, spec: Any) -> bool:
        return volume.owner is not None and volume.owner.uid == spec.owner.uid


class IdentifiesByName(StorageVolumes):
    def is_marked(self, volume: Any, spec: Any) -> bool:
        return self.cloud.names[volume.id] == spec.name


class AcceptsMisfits(StorageVolumes):
    def check_fit(self, volume: Any, spec: Any) -> None:
        pass


class ListsEveryone(StorageVolumes):
    def is_asked(self, item: Any, cluster: Any, ids: Any) -> bool:
        return ids is None or item.id in ids


class ListsMoreThanAsked(StorageVolumes):
    def is_asked(self, item: Any, cluster: Any, ids: Any) -> bool:
        return super().is_asked(item, cluster, ids or None)


class HidesUnmarked(StorageVolumes):
    def is_asked(self, item: Any, cluster: Any, ids: Any) -> bool:
        return item.owner is not None and super().is_asked(item, cluster, ids)


class ChangesEveryone(StorageVolumes):
    def check_mark(self, cluster: Any, item: Any, *, deletes: bool = False) -> None:
        if item.owner is None:
            super().check_mark(cluster, item, deletes=deletes)


class DetachesEveryone(StorageVolumes):
    async def detach(self, cluster: Any, volume: Any, instance: Any) -> None:
        found = self.cloud.look().get(volume)
        await super().detach(found.owner.cluster if found and found.owner else "", volume, instance)


class DeletesUnmarked(StorageVolumes):
    def check_mark(self, cluster: Any, item: Any, *, deletes: bool = False) -> None:
        super().check_mark(cluster, item)


class TakesFailureForAbsence(StorageVolumes):
    async def list_volumes(self, cluster: Any, ids: Any = None) -> Any:
        try:
            return await super().list_volumes(cluster, ids)
        except Unavailable:
            return {}


class FailsToDeleteTheMissing(StorageVolumes):
    async def delete(self, cluster: Any, volume: Any) -> None:
        self.found(volume)
        await super().delete(cluster, volume)


class CannotGrow(StorageVolumes):
    async def resize(self, cluster: Any, volume: Any, size_gib: Any) -> Any:
        raise Unsupported("no volume can grow")


class KeepsTheDeleted(StorageVolumes):
    async def delete(self, cluster: Any, volume: Any) -> None:
        pass


class MovesTheDevice(StorageVolumes):
    async def attach(self, cluster: Any, volume: Any, instance: Any) -> Any:
        found = self.cloud.volumes.get(volume)
        if found is None or not self.has(found, instance):
            return await super().attach(cluster, volume, instance)
        moved = replace(found, attachments=(Attachment(instance, "moved"),))
        self.cloud.volumes[volume] = moved
        return moved


class AttachesToMissingInstances(StorageVolumes):
    async def attach(self, cluster: Any, volume: Any, instance: Any) -> Any:
        self.cloud.machines.add(instance)
        return await super().attach(cluster, volume, instance)


class AttachesToTwo(StorageVolumes):
    def check_free(self, volume: Any) -> None:
        pass


class SaysAvailableTooEarly(StorageVolumes):
    def detaching(self, volume: Any) -> Any:
        return replace(volume, state=VolumeState.AVAILABLE)


class DetachesFromAnyone(StorageVolumes):
    async def detach(self, cluster: Any, volume: Any, instance: Any) -> None:
        found = self.cloud.look().get(volume)
        for each in found.attachments if found else ():
            await super().detach(cluster, volume, each.instance)


class FailsToDetachTheMissing(StorageVolumes):
    async def detach(self, cluster: Any, volume: Any, instance: Any) -> None:
        self.found(volume)
        await super().detach(cluster, volume, instance)


class Shrinks(StorageVolumes):
    def is_enough(self, volume: Any, size_gib: int) -> bool:
        return volume.size_gib == size_gib


class NeverGrows(StorageVolumes):
    def is_enough(self, volume: Any, size_gib: int) -> bool:
        return True


class IgnoresPlaces(StorageVolumes):
    def place(self, spec: Any) -> Any:
        return super().place(replace(spec, topologies=()))


class PromisesTooMuch(StorageVolumes):
    limit = 5


class PromisesTooLittle(StorageVolumes):
    limit = 3


class PromisesTooMuchSpace(StorageVolumes):
    space = SPACE + 50


class PromisesTooLittleSpace(StorageVolumes):
    space = SPACE - 50


class ForgetsWhatIsUsed(StorageVolumes):
    async def capacity(self, volume_type: str = "", topology: Any = None) -> VolumeCapacity:
        return VolumeCapacity(available_gib=0 if topology else SPACE)


class HasSpaceEverywhere(StorageVolumes):
    async def capacity(self, volume_type: str = "", topology: Any = None) -> VolumeCapacity:
        return await super().capacity(volume_type)


class IgnoresSources(StorageVolumes):
    def check_source(self, spec: Any) -> None:
        pass


class RefusesAndCreates(StorageVolumes):
    async def create(self, spec: Any) -> Any:
        created = await super().create(spec)
        if spec.source is not None:
            raise Unsupported("no copies")
        return created


class IgnoresSnapshotMarks(StorageVolumes):
    def is_marked_snapshot(self, snapshot: Any, spec: Any) -> bool:
        return False


class RefusesAndSnaps(StorageVolumes):
    async def create_snapshot(self, spec: Any) -> Any:
        await super().create_snapshot(spec)
        raise Unsupported("no snapshots")


class FailsToDeleteMissingSnapshots(StorageVolumes):
    async def delete_snapshot(self, cluster: Any, snapshot: Any) -> None:
        if snapshot not in self.cloud.snapshots:
            raise NotFound(snapshot)
        await super().delete_snapshot(cluster, snapshot)


class KeepsSnapshots(StorageVolumes):
    async def delete_snapshot(self, cluster: Any, snapshot: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("defect", "law"),
    [
        (IgnoresMarks, volumes.created_once),
        (IdentifiesByName, volumes.created_once),
        (IdentifiesByName, volumes.unmarked_is_never_deleted),
        (IdentifiesByUidAlone, volumes.others_stay),
        (AcceptsMisfits, volumes.misfits_are_conflicts),
        (AcceptsMisfits, volumes.placed_as_asked),
        (ListsEveryone, volumes.others_stay),
        (ListsEveryone, volumes.unmarked_is_never_deleted),
        (ListsMoreThanAsked, volumes.only_what_was_asked),
        (HidesUnmarked, volumes.unmarked_is_never_deleted),
        (ChangesEveryone, volumes.others_stay),
        (DetachesEveryone, volumes.others_stay),
        (DeletesUnmarked, volumes.unmarked_is_never_deleted),
        (TakesFailureForAbsence, volumes.failure_is_not_absence),
        (FailsToDeleteTheMissing, volumes.deleted_twice),
        (KeepsTheDeleted, volumes.deleted_twice),
        (MovesTheDevice, volumes.attached_twice),
        (AttachesToMissingInstances, volumes.attached_twice),
        (AttachesToTwo, volumes.attached_to_one),
        (AttachesToTwo, volumes.attached_is_not_deleted),
        (SaysAvailableTooEarly, volumes.attached_to_one),
        (DetachesFromAnyone, volumes.detached_twice),
        (FailsToDetachTheMissing, volumes.detached_twice),
        (Shrinks, volumes.grows_only),
        (NeverGrows, volumes.grows_only),
        (CannotGrow, volumes.resizes_as_declared),
        (IgnoresPlaces, volumes.placed_as_asked),
        (PromisesTooMuch, volumes.limits_are_kept),
        (PromisesTooLittle, volumes.limits_are_kept),
        (PromisesTooMuchSpace, volumes.capacity_is_kept),
        (PromisesTooLittleSpace, volumes.capacity_is_kept),
        (ForgetsWhatIsUsed, volumes.capacity_is_kept),
        (HasSpaceEverywhere, volumes.capacity_is_kept),
        (IgnoresSources, volumes.cloned),
        (RefusesAndCreates, volumes.cloned),
        (IgnoresSnapshotMarks, snapshots.snapshot_created_once),
        (RefusesAndSnaps, snapshots.snapshot_created_once),
        (ListsEveryone, snapshots.other_snapshots_stay),
        (ChangesEveryone, snapshots.other_snapshots_stay),
        (FailsToDeleteMissingSnapshots, snapshots.snapshot_deleted_twice),
        (KeepsSnapshots, snapshots.snapshot_deleted_twice),
        (IgnoresSources, snapshots.restored),
    ],
)
def test_a_defect_of_volumes_is_caught(defect: type[StorageVolumes], law: Callable[[Any], Any]):
    run(law(StorageHarness()), VirtualTimeLoop)

    harness = StorageHarness(defect, countable=5)
    with pytest.raises((AssertionError, CloudError)):
        run(law(harness), VirtualTimeLoop)


def test_every_law_has_a_defect_that_it_catches():
    marks = test_a_defect_of_volumes_is_caught.pytestmark  # type: ignore[attr-defined]
    caught = {law.__name__ for _, law in marks[0].args[1]}
    module = (volumes, snapshots)
    laws = {
        name
        for laws, where in zip((VolumesLaws, SnapshotsLaws), module, strict=True)
        for method in vars(laws).values()
        if callable(method)
        for name in getattr(getattr(method, "__code__", None), "co_names", ())
        if name not in {"_hold", "run", "make", "new_loop"} and callable(vars(where).get(name))
    }
    assert laws - {"new_event_loop"} == caught
