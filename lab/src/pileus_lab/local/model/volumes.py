"""Operations on volumes: create, attach, detach, resize, delete, list, limits."""

from dataclasses import replace
from typing import ClassVar

import msgspec
from msgspec.structs import replace as changed

from pileus.cloud.errors import Conflict, NotFound, QuotaExceeded, Rejected
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import Machine, Mark, Page, Record, Snapshot, Volume
from pileus_lab.local.model.state import (
    TYPES,
    Moment,
    Request,
    State,
    hold_quota,
    identified,
    with_item,
    without,
)

VOLUME_TYPES = ("standard", "fast")
DEVICES = tuple(f"/dev/vd{letter}" for letter in "bcdefghijklmnopqrstuvwxyz")


class CreateVolume(Request, frozen=True):
    """Creates a volume. Returns the existing one with that mark unchanged.

    Without a mark, the name identifies it among the volumes that have none.
    """

    NAME: ClassVar[str] = "volumes.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    name: str
    size_gib: int
    mark: Mark = Mark()
    type: str = ""
    zones: tuple[str, ...] = ()
    """Acceptable zones, the preferred one first; empty: any."""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    from_snapshot: str = ""
    from_volume: str = ""

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        for volume in state.volumes.values():
            if volume.mark == self.mark and (self.mark != Mark() or volume.name == self.name):
                return state, self._same(volume)
        self._check(moment)
        self._check_source(state)
        hold_quota("volumes", len(state.volumes) + 1, state.quota.volumes)
        hold_quota("volume_gib", _total(state) + self.size_gib, state.quota.volume_gib)
        state, identity = identified(state, "vol", moment)
        zones = [zone for zone in self.zones if zone in moment.settings.zones]
        volume = Volume(
            id=identity,
            name=self.name,
            mark=self.mark,
            size_gib=self.size_gib,
            type=self.type or VOLUME_TYPES[0],
            zone=zones[0] if zones else moment.settings.zones[0],
            labels=self.labels,
            from_snapshot=self.from_snapshot,
            from_volume=self.from_volume,
        )
        return _put(state, volume)

    def _same(self, volume: Volume) -> Volume:
        sources = (volume.from_snapshot, volume.from_volume)
        if (
            volume.size_gib < self.size_gib
            or self.type not in {"", volume.type}
            or (self.zones and volume.zone not in self.zones)
            or sources != (self.from_snapshot, self.from_volume)
        ):
            raise Conflict(
                f"volume {volume.id} ({volume.name}) exists with {volume.size_gib} GiB of type "
                f"{volume.type} in {volume.zone}, which differs from the request; delete it first"
            )
        return volume

    def _check(self, moment: Moment) -> None:
        if not self.name:
            raise Rejected("a volume needs a name")
        if self.size_gib < 1:
            raise Rejected(f"a volume of {self.size_gib} GiB is too small")
        if self.type and self.type not in VOLUME_TYPES:
            raise Rejected(f'unknown type "{self.type}"{did_you_mean(self.type, VOLUME_TYPES)}')
        zones = moment.settings.zones
        if self.zones and not set(self.zones) & set(zones):
            hint = did_you_mean(self.zones[0], zones)
            raise Rejected(f'unknown zone "{self.zones[0]}"{hint}')

    def _check_source(self, state: State) -> None:
        """Raises `NotFound`, or `Rejected` if the source is another cluster's or does not fit."""
        sources: list[Volume | Snapshot] = []
        if self.from_snapshot:
            if self.from_snapshot not in state.snapshots:
                raise NotFound(f"no snapshot {self.from_snapshot}")
            sources.append(state.snapshots[self.from_snapshot])
        if self.from_volume:
            sources.append(find_volume(state, self.from_volume))
        if len(sources) > 1:
            raise Rejected("a volume has one source, a snapshot or a volume")
        for source in sources:
            check_mark(source, self.mark.cluster if self.mark != Mark() else None)
            if source.size_gib > self.size_gib:
                raise Rejected(
                    f"{self.size_gib} GiB is too small: {source.id} has {source.size_gib} GiB"
                )


class DeleteVolume(Request, frozen=True):
    """Deletes a volume that is not attached. Snapshots stay. Deleting a missing one succeeds."""

    NAME: ClassVar[str] = "volumes.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    volume: str
    cluster: str | None = None
    """Deletes the volume only if it has the mark of this cluster; None: always."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        volume = state.volumes.get(self.volume)
        if volume is None:
            return state, None
        check_mark(volume, self.cluster, deletes=True)
        if volume.machine and not moment.settings.deletes_attached:
            raise Conflict(f"volume {volume.id} is attached to {volume.machine}; detach it first")
        return replace(state, volumes=without(state.volumes, self.volume)), None


class AttachVolume(Request, frozen=True):
    NAME: ClassVar[str] = "volumes.attach"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    volume: str
    machine: str
    cluster: str | None = None
    """Refuses a volume with the mark of another cluster; None: attaches any."""

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        volume, machine = find_volume(state, self.volume), state.machine(self.machine)
        check_mark(volume, self.cluster)
        if machine.id in volume.machines:
            return state, volume
        if volume.machine and not moment.settings.shares_volumes:
            raise Conflict(f"volume {volume.id} is attached to {volume.machine}; detach it first")
        if volume.zone != machine.zone:
            raise Rejected(
                f"volume {volume.id} is in zone {volume.zone}, "
                f"instance {machine.name} in {machine.zone}"
            )
        device = _free(state, machine)
        if volume.machine:
            return _put(state, changed(volume, others=(*volume.others, machine.id)))
        return _put(state, changed(volume, machine=machine.id, device=device))


class DetachVolume(Request, frozen=True):
    """Detaches a volume from that machine; otherwise nothing changes."""

    NAME: ClassVar[str] = "volumes.detach"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    volume: str
    machine: str
    cluster: str | None = None
    """Refuses a volume with the mark of another cluster; None: detaches any."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        volume = state.volumes.get(self.volume)
        if volume is None:
            return state, None
        check_mark(volume, self.cluster)
        try:
            machine = state.machine(self.machine)
        except NotFound:
            return state, None
        if machine.id not in volume.machines:
            return state, None
        state, _ = _put(state, volume.without_machine(machine.id))
        return state, None


class ResizeVolume(Request, frozen=True):
    """Grows a volume to at least that size; it never shrinks."""

    NAME: ClassVar[str] = "volumes.resize"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    volume: str
    size_gib: int
    cluster: str | None = None
    """Refuses a volume with the mark of another cluster; None: resizes any."""

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        volume = find_volume(state, self.volume)
        check_mark(volume, self.cluster)
        more = self.size_gib - volume.size_gib
        if more <= 0:
            return state, volume
        hold_quota("volume_gib", _total(state) + more, state.quota.volume_gib)
        return _put(state, changed(volume, size_gib=self.size_gib))


class Limit(Record, frozen=True):
    volumes: int
    """How many volumes can be attached to the machine at once."""


class VolumeLimit(Request, frozen=True):
    """Returns how many volumes can be attached to a machine."""

    NAME: ClassVar[str] = "volumes.list_limits"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[type] = Limit

    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, Limit]:
        return state, Limit(volumes=TYPES[state.machine(self.machine).type].volumes)


class Space(Record, frozen=True):
    gib: int
    """The total size of volumes that can be created now."""


class VolumeSpace(Request, frozen=True):
    """Returns what the quota leaves for new volumes of a type in one of the zones."""

    NAME: ClassVar[str] = "volumes.list_capacity"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[type] = Space

    type: str = ""
    zones: tuple[str, ...] = ()
    """Empty: any."""

    def step(self, state: State, moment: Moment) -> tuple[State, Space]:
        is_offered = self.type in {"", *VOLUME_TYPES}
        is_here = not self.zones or bool(set(self.zones) & set(moment.settings.zones))
        left = state.quota.volume_gib - _total(state)
        if not is_offered or not is_here or len(state.volumes) >= state.quota.volumes:
            left = 0
        return state, Space(gib=max(left, 0))


class ListVolumes(Request, frozen=True):
    NAME: ClassVar[str] = "volumes.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Volume]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Volume]]:
        return state, Page(items=tuple(state.volumes.values()))


def check_mark(item: Volume | Snapshot, cluster: str | None, *, deletes: bool = False) -> None:
    """Raises `Rejected` for another cluster's item, or to delete one without a mark.

    None is the operator, who may do everything.
    """
    if cluster is None or item.mark.cluster == cluster:
        return
    if item.mark == Mark():
        if deletes:
            raise Rejected(f"{item.id} was created manually and belongs to no cluster")
        return
    raise Rejected(f'{item.id} belongs to cluster "{item.mark.cluster}", not "{cluster}"')


def find_volume(state: State, identity: str) -> Volume:
    volume = state.volumes.get(identity)
    if volume is None:
        raise NotFound(f"no volume {identity}{did_you_mean(identity, state.volumes)}")
    return volume


def _free(state: State, machine: Machine) -> str:
    used = [one.device for one in state.volumes.values() if machine.id in one.machines]
    slots = TYPES[machine.type].volumes
    if len(used) >= slots:
        raise QuotaExceeded(
            f"instance {machine.name} ({machine.type}) has {slots} volumes, the most it can have"
        )
    return next(device for device in DEVICES if device not in used)


def _total(state: State) -> int:
    return sum(volume.size_gib for volume in state.volumes.values())


def _put(state: State, volume: Volume) -> tuple[State, Volume]:
    return replace(state, volumes=with_item(state.volumes, volume.id, volume)), volume
