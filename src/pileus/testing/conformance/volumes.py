"""The laws for `Volumes`. What a cloud cannot do, it refuses with `Unsupported` and leaves undone.

The laws wait for a slow cloud by listing a volume again, at most `PATIENCE` times, `PAUSE` seconds
apart; run them on a virtual clock if the cloud under test takes time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError, Conflict, NotFound, Rejected, Unavailable, Unsupported
from pileus.cloud.middleware.volume_answers import check_volumes
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    FromSnapshot,
    FromVolume,
    SnapshotId,
    Source,
    Volume,
    VolumeId,
    Volumes,
    VolumeSpec,
    VolumeState,
)
from pileus.testing.conformance.harness import VolumesHarness, raising, run

CLUSTER, OTHER = "our-cluster", "their-cluster"
ONE = VolumeSpec(owner=Owner(CLUSTER, "pvc-1"), size_gib=10, name="data")
TWO = VolumeSpec(owner=Owner(CLUSTER, "pvc-2"), size_gib=10, name="data")
THEIRS = VolumeSpec(owner=Owner(OTHER, "pvc-1"), size_gib=10, name="data")
"""The same name, and the same identity in another cluster, as `ONE`."""
MISSING = VolumeId("vol-missing")
NOWHERE = InstanceId("i-missing")
PATIENCE, PAUSE = 100, 1.0
BUSY = frozenset({
    VolumeState.CREATING,
    VolumeState.ATTACHING,
    VolumeState.DETACHING,
    VolumeState.RESIZING,
    VolumeState.DELETING,
})


class VolumesLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> VolumesHarness:
        """Returns a new cloud without machines, volumes and snapshots."""
        raise NotImplementedError

    def _hold(self, law: "Law") -> None:
        run(law(self.make()), self.new_loop)

    def test_creating_a_volume_is_idempotent_by_mark(self) -> None:
        self._hold(created_once)

    def test_a_volume_that_does_not_fit_its_spec_is_a_conflict(self) -> None:
        self._hold(misfits_are_conflicts)

    def test_volumes_of_other_clusters_are_neither_listed_nor_changed(self) -> None:
        self._hold(others_stay)

    def test_volumes_without_a_mark_are_used_but_not_deleted(self) -> None:
        self._hold(unmarked_is_never_deleted)

    def test_a_list_has_only_what_was_asked_for(self) -> None:
        self._hold(only_what_was_asked)

    def test_a_failure_is_not_an_empty_list(self) -> None:
        self._hold(failure_is_not_absence)

    def test_deleting_a_volume_is_idempotent(self) -> None:
        self._hold(deleted_twice)

    def test_attaching_a_volume_is_idempotent(self) -> None:
        self._hold(attached_twice)

    def test_a_volume_is_attached_to_one_instance_at_a_time(self) -> None:
        self._hold(attached_to_one)

    def test_detaching_a_volume_is_idempotent_and_affects_no_other_instance(self) -> None:
        self._hold(detached_twice)

    def test_an_attached_volume_is_not_deleted(self) -> None:
        self._hold(attached_is_not_deleted)

    def test_a_volume_grows_and_never_shrinks(self) -> None:
        self._hold(grows_only)

    def test_volumes_can_grow_if_the_provider_declares_it(self) -> None:
        self._hold(resizes_as_declared)

    def test_a_volume_is_created_where_the_spec_asks(self) -> None:
        self._hold(placed_as_asked)

    def test_limits_are_those_of_the_cloud(self) -> None:
        self._hold(limits_are_kept)

    def test_capacity_is_that_of_the_cloud(self) -> None:
        self._hold(capacity_is_kept)

    def test_a_volume_is_cloned_or_it_is_unsupported(self) -> None:
        self._hold(cloned)


Law = Callable[[VolumesHarness], Coroutine[Any, Any, None]]


# -- waiting for a slow cloud ------------------------------------------------------------------


async def seen(volumes: Volumes, volume: VolumeId, cluster: str = CLUSTER) -> Volume | None:
    """Returns the volume as it is listed, after a check that its fields and state are valid."""
    listed = await volumes.list_volumes(cluster, [volume])
    try:
        problems = check_volumes((cluster, [volume]), listed).problems
    except Unavailable as error:
        problems = (str(error),)
    assert not problems, f"list_volumes answered with {'; '.join(problems)}"
    return listed.get(volume)


async def settled(volumes: Volumes, volume: VolumeId, cluster: str = CLUSTER) -> Volume | None:
    """Returns the volume when nothing is under way; None if it does not exist."""
    state = ""
    for _ in range(PATIENCE):
        found = await seen(volumes, volume, cluster)
        if found is None or found.state not in BUSY:
            return found
        state = found.state
        await asyncio.sleep(PAUSE)
    raise AssertionError(f"volume {volume} is still {state} after {PATIENCE * PAUSE:g} s")


async def made(volumes: Volumes, spec: VolumeSpec) -> Volume:
    """Returns the volume when it is available."""
    volume = await settled(volumes, (await volumes.create(spec)).id, spec.owner.cluster)
    assert volume is not None, f"the volume of {spec.owner.uid} was created, but is not listed"
    assert volume.state is VolumeState.AVAILABLE, f"a new volume is {volume.state}"
    return volume


async def attached(volumes: Volumes, volume: VolumeId, instance: InstanceId) -> Volume:
    """Returns the volume when the instance can use it."""
    await volumes.attach(CLUSTER, volume, instance)
    found = await settled(volumes, volume)
    assert found is not None
    assert found.state is VolumeState.ATTACHED, f"an attached volume is {found.state}"
    where = [each.instance for each in found.attachments]
    assert where == [instance], f"attached to {instance}, but attachments are {where}"
    return found


@contextmanager
def supported(harness: VolumesHarness) -> Generator[None]:
    """Accepts `Unsupported` from its block, if the cloud has not done anything then."""
    before = (harness.built(), harness.snapshots())
    try:
        yield
    except Unsupported:
        after = (harness.built(), harness.snapshots())
        assert after == before, "refused as unsupported, but the cloud has changed"


# -- volumes -----------------------------------------------------------------------------------


async def created_once(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        first = await made(volumes, ONE)
        second = await made(volumes, TWO)
    async with harness.connect() as volumes:
        again = await volumes.create(ONE)
        listed = await volumes.list_volumes(CLUSTER)

    assert again.id == first.id, "a volume was created twice for one mark"
    assert listed.keys() == {first.id, second.id}, f"listed {sorted(listed)} after two creations"
    assert first.owner == ONE.owner, f"the mark of the volume is {first.owner}"
    assert first.size_gib >= ONE.size_gib, f"{first.size_gib} GiB instead of {ONE.size_gib}"
    assert not first.attachments
    built = harness.built()
    assert built == {first.id: ONE.owner, second.id: TWO.owner}, f"the cloud has {built}"


async def misfits_are_conflicts(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        with raising(Conflict):
            await volumes.create(replace(ONE, size_gib=volume.size_gib + 10))
        with raising(Rejected):
            await volumes.create(replace(TWO, size_gib=0))

        assert await volumes.list_volumes(CLUSTER) == {volume.id: volume}


async def others_stay(harness: VolumesHarness) -> None:
    instance = harness.add_machine("n1")

    async with harness.connect() as volumes:
        theirs = await made(volumes, THEIRS)
        ours = await made(volumes, ONE)

        assert ours.id != theirs.id, "the volume of another cluster was taken over"
        assert (await volumes.list_volumes(CLUSTER)).keys() == {ours.id}
        assert await volumes.list_volumes(CLUSTER, [theirs.id]) == {}, "another cluster's is listed"
        with raising(Rejected):
            await volumes.delete(CLUSTER, theirs.id)
        with raising(Rejected):
            await volumes.attach(CLUSTER, theirs.id, instance)
        await _attempt(volumes.resize(CLUSTER, theirs.id, theirs.size_gib + 10))
        assert await settled(volumes, theirs.id, OTHER) == theirs, "another cluster's has changed"
        await volumes.attach(OTHER, theirs.id, instance)
        before = await settled(volumes, theirs.id, OTHER)
        await _attempt(volumes.detach(CLUSTER, theirs.id, instance))

        assert await settled(volumes, theirs.id, OTHER) == before, "another cluster's was detached"


async def _attempt(call: Coroutine[Any, Any, object]) -> None:
    """Accepts that the cloud refuses the call."""
    try:
        await call
    except CloudError:
        return


async def unmarked_is_never_deleted(harness: VolumesHarness) -> None:
    instance = harness.add_machine("n1")
    unmarked = harness.add_unmarked("data")
    if unmarked is None:
        return

    async with harness.connect() as volumes:
        assert await volumes.list_volumes(CLUSTER) == {}, "a volume without a mark is listed"
        found = (await volumes.list_volumes(CLUSTER, [unmarked])).get(unmarked)
        assert found is not None, "a volume without a mark is not found by its ID"
        assert found.owner is None, f"a volume without a mark has the owner {found.owner}"
        with raising(Rejected):
            await volumes.delete(CLUSTER, unmarked)
        ours = await made(volumes, ONE)
        await attached(volumes, unmarked, instance)
        await volumes.detach(CLUSTER, unmarked, instance)

        assert ours.id != unmarked, "a volume without a mark was taken over because of its name"
        assert await settled(volumes, unmarked) == found


async def only_what_was_asked(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        one, _ = await made(volumes, ONE), await made(volumes, TWO)

        assert await volumes.list_volumes(CLUSTER, [one.id, MISSING]) == {one.id: one}
        assert await volumes.list_volumes(CLUSTER, []) == {}


async def failure_is_not_absence(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        await made(volumes, ONE)
        with harness.broken(), raising(CloudError):
            await volumes.list_volumes(CLUSTER)


async def deleted_twice(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume, other = await made(volumes, ONE), await made(volumes, TWO)
        await volumes.delete(CLUSTER, volume.id)
        assert await settled(volumes, volume.id) is None, "a deleted volume is still listed"
        await volumes.delete(CLUSTER, volume.id)
        await volumes.delete(CLUSTER, MISSING)

        assert (await volumes.list_volumes(CLUSTER)).keys() == {other.id}
        again = await made(volumes, ONE)
        assert again.id != volume.id, "a deleted volume is back"


# -- attachments -------------------------------------------------------------------------------


async def attached_twice(harness: VolumesHarness) -> None:
    instance = harness.add_machine("n1")

    async with harness.connect() as volumes:
        volume, other = await made(volumes, ONE), await made(volumes, TWO)
        first = await attached(volumes, volume.id, instance)
        beside = await attached(volumes, other.id, instance)
        second = await attached(volumes, volume.id, instance)

        assert first.attachments == second.attachments, "attaching again has moved the device"
        devices = [each.device for one in (first, beside) for each in one.attachments]
        assert not any(devices) or len(set(devices)) == len(devices), f"one device twice: {devices}"
        with raising(NotFound):
            await volumes.attach(CLUSTER, MISSING, instance)
        third = await made(volumes, replace(ONE, owner=Owner(CLUSTER, "pvc-3")))
        with raising(NotFound):
            await volumes.attach(CLUSTER, third.id, NOWHERE)


async def attached_to_one(harness: VolumesHarness) -> None:
    first, second = harness.add_machine("n1"), harness.add_machine("n2")

    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        await attached(volumes, volume.id, first)
        with raising(Conflict):
            await volumes.attach(CLUSTER, volume.id, second)
        found = await settled(volumes, volume.id)
        assert found is not None
        assert [each.instance for each in found.attachments] == [first]

        await volumes.detach(CLUSTER, volume.id, first)
        detaching = await seen(volumes, volume.id)
        assert detaching is not None
        if detaching.attachments:
            assert detaching.state is VolumeState.DETACHING, f"detached, but {detaching.state}"
        freed = await settled(volumes, volume.id)
        assert freed is not None
        assert (freed.state, freed.attachments) == (VolumeState.AVAILABLE, ())
        await attached(volumes, volume.id, second)


async def detached_twice(harness: VolumesHarness) -> None:
    first, second = harness.add_machine("n1"), harness.add_machine("n2")

    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        before = await attached(volumes, volume.id, first)
        await volumes.detach(CLUSTER, volume.id, second)
        assert await settled(volumes, volume.id) == before, "it was detached from another instance"
        for _ in range(2):
            await volumes.detach(CLUSTER, volume.id, first)
            assert await settled(volumes, volume.id) == volume, "it is not as before attaching"
        await volumes.detach(CLUSTER, volume.id, NOWHERE)
        await volumes.detach(CLUSTER, MISSING, first)


async def attached_is_not_deleted(harness: VolumesHarness) -> None:
    instance = harness.add_machine("n1")

    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        before = await attached(volumes, volume.id, instance)
        with raising(Conflict):
            await volumes.delete(CLUSTER, volume.id)

        assert await settled(volumes, volume.id) == before


# -- sizes, places, limits ---------------------------------------------------------------------


async def grows_only(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        with supported(harness):
            await volumes.resize(CLUSTER, volume.id, volume.size_gib + 10)
            grown = await settled(volumes, volume.id)
            assert grown is not None
            assert grown.size_gib >= volume.size_gib + 10, f"it has {grown.size_gib} GiB"
            for size in (1, volume.size_gib, grown.size_gib):
                await volumes.resize(CLUSTER, volume.id, size)
                after = await settled(volumes, volume.id)
                assert after == grown, f"it has changed with a resize to {size} GiB"
            fitting = await volumes.create(ONE)
            assert fitting.id == volume.id, "a volume that has grown does not fit its spec"
            with raising(NotFound):
                await volumes.resize(CLUSTER, MISSING, 10)


async def resizes_as_declared(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        try:
            await volumes.resize(CLUSTER, volume.id, volume.size_gib + 10)
        except Unsupported:
            can = False
        else:
            can = True

    declared = harness.abilities.resizes_volumes
    assert can is declared, (
        f"abilities.resizes_volumes is {declared}, but a volume "
        f"{'was' if can else 'could not be'} resized"
    )


async def placed_as_asked(harness: VolumesHarness) -> None:
    topology = harness.other_topology
    if topology is None:
        return

    async with harness.connect() as volumes:
        usual = await made(volumes, ONE)
        placed = await made(volumes, replace(TWO, topologies=(topology,)))

        found = {key: placed.topology.get(key) for key in topology}
        assert found == dict(topology), f"asked for {topology}, created in {placed.topology}"
        assert usual.topology != placed.topology, "other_topology is the usual one"
        with raising(Conflict):
            await volumes.create(replace(ONE, topologies=(topology,)))
        with raising(Rejected):
            await volumes.create(
                replace(
                    ONE,
                    owner=Owner(CLUSTER, "pvc-3"),
                    topologies=(dict.fromkeys(topology, "no-such-place"),),
                )
            )


async def limits_are_kept(harness: VolumesHarness) -> None:
    instance = harness.add_machine("n1")

    async with harness.connect() as volumes:
        limit = (await volumes.limits(instance)).attachments
        with raising(NotFound):
            await volumes.limits(NOWHERE)
        if limit is None or limit > harness.countable:
            return
        specs = [
            replace(ONE, owner=Owner(CLUSTER, f"pvc-{number}"), size_gib=1)
            for number in range(limit + 1)
        ]
        *fitting, last = [await made(volumes, spec) for spec in specs]
        for volume in fitting:
            await attached(volumes, volume.id, instance)
        with raising(Rejected):
            await volumes.attach(CLUSTER, last.id, instance)
        assert (await volumes.limits(instance)).attachments == limit, "the limit has changed"


async def capacity_is_kept(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        try:
            before = (await volumes.capacity()).available_gib
        except Unsupported:
            return
        if before is None:
            return
        volume = await made(volumes, ONE)
        left = (await volumes.capacity()).available_gib
        assert left is not None, "the capacity was known, and is not any more"
        assert left <= before - volume.size_gib, f"{before} GiB, and {left} with one volume more"
        with raising(Rejected):
            await volumes.create(replace(TWO, size_gib=left + 1))
        if topology := harness.other_topology:
            nowhere = await volumes.capacity("", dict.fromkeys(topology, "no-such-place"))
            assert nowhere.available_gib == 0, "there is space in a place that does not exist"
        if not 0 < left <= harness.spacious:
            return
        await made(volumes, replace(TWO, size_gib=left))
        assert (await volumes.capacity()).available_gib == 0, "all space is used, but some is left"


# -- copies -------------------------------------------------------------------------------------


async def cloned(harness: VolumesHarness) -> None:
    async with harness.connect() as volumes:
        volume = await made(volumes, ONE)
        await copied(harness, volumes, FromVolume(volume.id))


async def copied(harness: VolumesHarness, volumes: Volumes, source: Source) -> None:
    """A volume with that content is created once, and never an empty one instead."""
    spec = replace(TWO, source=source)
    with supported(harness):
        copy = await made(volumes, spec)
        again = await volumes.create(spec)

        assert copy.source in {source, None}, f"created from {source}, but its source is {copy}"
        assert again.id == copy.id, "a copy was created twice for one mark"
        with raising(NotFound):
            await volumes.create(
                replace(spec, owner=Owner(CLUSTER, "pvc-3"), source=_missing(source))
            )
        with raising(Rejected):
            await volumes.create(replace(spec, owner=Owner(CLUSTER, "pvc-4"), size_gib=1))


def _missing(source: Source) -> Source:
    if isinstance(source, FromVolume):
        return FromVolume(MISSING)
    return FromSnapshot(SnapshotId("snap-missing"))
