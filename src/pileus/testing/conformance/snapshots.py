"""The laws for snapshots. A cloud without them raises `Unsupported`, and keeps all of them."""

import asyncio

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, NotFound, Rejected
from pileus.cloud.volume import (
    FromSnapshot,
    Snapshot,
    SnapshotSpec,
    SnapshotState,
    Volume,
    Volumes,
)
from pileus.testing.conformance.harness import VolumesHarness, raising, run
from pileus.testing.conformance.volumes import (
    CLUSTER,
    MISSING,
    ONE,
    OTHER,
    PATIENCE,
    PAUSE,
    THEIRS,
    TWO,
    Law,
    copied,
    made,
    settled,
    supported,
)


class SnapshotsLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> VolumesHarness:
        """Returns a new cloud without machines, volumes and snapshots."""
        raise NotImplementedError

    def _hold(self, law: Law) -> None:
        run(law(self.make()), self.new_loop)

    def test_creating_a_snapshot_is_idempotent_by_mark(self) -> None:
        self._hold(snapshot_created_once)

    def test_snapshots_of_other_clusters_are_neither_listed_nor_deleted(self) -> None:
        self._hold(other_snapshots_stay)

    def test_deleting_a_snapshot_is_idempotent(self) -> None:
        self._hold(snapshot_deleted_twice)

    def test_a_volume_is_created_from_a_snapshot_or_it_is_unsupported(self) -> None:
        self._hold(restored)


async def snapped(volumes: Volumes, spec: SnapshotSpec) -> Snapshot:
    """Returns the snapshot when volumes can be created from it."""
    identity = (await volumes.create_snapshot(spec)).id
    for _ in range(PATIENCE):
        found = (await volumes.list_snapshots(spec.owner.cluster, [identity])).get(identity)
        assert found is not None, f"the snapshot of {spec.owner.uid} was created, but is not listed"
        if found.state is not SnapshotState.CREATING:
            return found
        await asyncio.sleep(PAUSE)
    raise AssertionError(f"snapshot {identity} is still creating after {PATIENCE * PAUSE:g} s")


def snapshot_of(volume: Volume, uid: str = "snap-1", cluster: str = CLUSTER) -> SnapshotSpec:
    return SnapshotSpec(owner=Owner(cluster, uid), volume=volume.id, name="daily")


async def snapshot_created_once(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume, other = await made(volumes, ONE), await made(volumes, TWO)
        with supported(harness):
            spec = snapshot_of(volume)
            first = await snapped(volumes, spec)
            again = await volumes.create_snapshot(spec)

            assert again.id == first.id, "a snapshot was created twice for one mark"
            assert (first.owner, first.volume) == (spec.owner, volume.id)
            assert first.state is SnapshotState.READY, f"a new snapshot is {first.state}"
            assert (await volumes.list_snapshots(CLUSTER)).keys() == {first.id}
            assert harness.snapshots() == 1
            with raising(Conflict):
                await volumes.create_snapshot(snapshot_of(other))
            with raising(NotFound):
                missing = SnapshotSpec(owner=Owner(CLUSTER, "snap-2"), volume=MISSING)
                await volumes.create_snapshot(missing)


async def other_snapshots_stay(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        theirs, ours = await made(volumes, THEIRS), await made(volumes, ONE)
        with supported(harness):
            foreign = await snapped(volumes, snapshot_of(theirs, cluster=OTHER))
            own = await snapped(volumes, snapshot_of(ours))

            assert (await volumes.list_snapshots(CLUSTER)).keys() == {own.id}
            assert await volumes.list_snapshots(CLUSTER, [foreign.id]) == {}
            with raising(Rejected):
                await volumes.delete_snapshot(CLUSTER, foreign.id)
            with raising(Rejected):
                await volumes.create_snapshot(snapshot_of(theirs, "snap-2"))
            assert await volumes.list_snapshots(OTHER) == {foreign.id: foreign}


async def snapshot_deleted_twice(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        with supported(harness):
            snapshot = await snapped(volumes, snapshot_of(volume))
            kept = await snapped(volumes, snapshot_of(volume, "snap-2"))
            for _ in range(2):
                await volumes.delete_snapshot(CLUSTER, snapshot.id)
                await _no_snapshot(volumes, snapshot)

            assert (await volumes.list_snapshots(CLUSTER)).keys() == {kept.id}
            assert await settled(volumes, volume.id) == volume


async def _no_snapshot(volumes: Volumes, snapshot: Snapshot) -> None:
    """Waits until the snapshot is no longer listed."""
    for _ in range(PATIENCE):
        if snapshot.id not in await volumes.list_snapshots(CLUSTER):
            return
        await asyncio.sleep(PAUSE)
    raise AssertionError(f"snapshot {snapshot.id} is still listed after {PATIENCE * PAUSE:g} s")


async def restored(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        with supported(harness):
            snapshot = await snapped(volumes, snapshot_of(volume))
            await copied(harness, volumes, FromSnapshot(snapshot.id))
            await volumes.delete_snapshot(CLUSTER, snapshot.id)
