"""Operations on volumes: create, attach, detach, resize, delete, list."""

from dataclasses import replace
from typing import ClassVar

import msgspec
from msgspec.structs import replace as changed

from pileus.cloud.errors import Conflict, NotFound, QuotaExceeded, Rejected
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import Machine, Page, Volume
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
    """Creates a volume. Returns the existing one with that mark unchanged."""

    NAME: ClassVar[str] = "volumes.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    mark: str
    size_gib: int
    type: str = ""
    zone: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        for volume in state.volumes.values():
            if volume.mark == self.mark:
                return state, self._same(volume)
        self._check(moment)
        hold_quota("volumes", len(state.volumes) + 1, state.quota.volumes)
        hold_quota("volume_gib", _total(state) + self.size_gib, state.quota.volume_gib)
        state, identity = identified(state, "vol", moment)
        volume = Volume(
            id=identity,
            mark=self.mark,
            size_gib=self.size_gib,
            type=self.type or VOLUME_TYPES[0],
            zone=self.zone or moment.settings.zones[0],
            labels=self.labels,
        )
        return _put(state, volume)

    def _same(self, volume: Volume) -> Volume:
        if volume.size_gib < self.size_gib or self.zone not in {"", volume.zone}:
            raise Conflict(
                f'a volume marked "{self.mark}" exists with {volume.size_gib} GiB '
                f"in {volume.zone}: {volume.id}"
            )
        return volume

    def _check(self, moment: Moment) -> None:
        if not self.mark:
            raise Rejected("a volume needs a mark")
        if self.size_gib < 1:
            raise Rejected(f"a volume of {self.size_gib} GiB is too small")
        zones = moment.settings.zones
        for what, word, known in (("type", self.type, VOLUME_TYPES), ("zone", self.zone, zones)):
            if word and word not in known:
                raise Rejected(f'unknown {what} "{word}"{did_you_mean(word, known)}')


class DeleteVolume(Request, frozen=True):
    """Deletes a volume that is not attached. Deleting a missing one succeeds."""

    NAME: ClassVar[str] = "volumes.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    volume: str

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        volume = state.volumes.get(self.volume)
        if volume is not None and volume.machine:
            raise Conflict(f"volume {volume.id} is attached to {volume.machine}; detach it first")
        return replace(state, volumes=without(state.volumes, self.volume)), None


class AttachVolume(Request, frozen=True):
    NAME: ClassVar[str] = "volumes.attach"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    volume: str
    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        volume, machine = _volume(state, self.volume), state.machine(self.machine)
        if volume.machine == machine.id:
            return state, volume
        if volume.machine:
            raise Conflict(f"volume {volume.id} is attached to {volume.machine}; detach it first")
        if volume.zone != machine.zone:
            raise Rejected(
                f"volume {volume.id} is in zone {volume.zone}, "
                f"instance {machine.name} in {machine.zone}"
            )
        return _put(state, changed(volume, machine=machine.id, device=_free(state, machine)))


class DetachVolume(Request, frozen=True):
    """Detaches a volume from that machine; otherwise nothing changes."""

    NAME: ClassVar[str] = "volumes.detach"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    volume: str
    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        volume = state.volumes.get(self.volume)
        if volume is None or not volume.machine:
            return state, None
        try:
            machine = state.machine(self.machine)
        except NotFound:
            return state, None
        if machine.id != volume.machine:
            return state, None
        state, _ = _put(state, changed(volume, machine="", device=""))
        return state, None


class ResizeVolume(Request, frozen=True):
    """Grows a volume to at least that size; it never shrinks."""

    NAME: ClassVar[str] = "volumes.resize"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Volume

    volume: str
    size_gib: int

    def step(self, state: State, moment: Moment) -> tuple[State, Volume]:
        volume = _volume(state, self.volume)
        more = max(0, self.size_gib - volume.size_gib)
        hold_quota("volume_gib", _total(state) + more, state.quota.volume_gib)
        return _put(state, changed(volume, size_gib=volume.size_gib + more))


class ListVolumes(Request, frozen=True):
    NAME: ClassVar[str] = "volumes.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Volume]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Volume]]:
        return state, Page(items=tuple(state.volumes.values()))


def _volume(state: State, identity: str) -> Volume:
    volume = state.volumes.get(identity)
    if volume is None:
        raise NotFound(f"no volume {identity}{did_you_mean(identity, state.volumes)}")
    return volume


def _free(state: State, machine: Machine) -> str:
    used = {one.device for one in state.volumes.values() if one.machine == machine.id}
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
