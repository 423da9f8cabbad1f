"""Operations on snapshots of volumes: create, delete, list."""

from dataclasses import replace
from typing import ClassVar

import msgspec

from pileus.cloud.errors import Conflict, Rejected
from pileus_lab.local.model.records import Mark, Page, Snapshot
from pileus_lab.local.model.state import (
    Moment,
    Request,
    State,
    hold_quota,
    identified,
    with_item,
    without,
)
from pileus_lab.local.model.volumes import check_mark, find_volume


class CreateSnapshot(Request, frozen=True):
    """Creates a snapshot of a volume. Returns the existing one with that mark unchanged.

    Without a mark, the name identifies it among the snapshots that have none.
    """

    NAME: ClassVar[str] = "snapshots.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Snapshot

    name: str
    volume: str
    mark: Mark = Mark()
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def step(self, state: State, moment: Moment) -> tuple[State, Snapshot]:
        for snapshot in state.snapshots.values():
            if snapshot.mark == self.mark and (self.mark != Mark() or snapshot.name == self.name):
                return state, self._same(snapshot)
        if not self.name:
            raise Rejected("a snapshot needs a name")
        volume = find_volume(state, self.volume)
        check_mark(volume, self.mark.cluster if self.mark != Mark() else None)
        hold_quota("snapshots", len(state.snapshots) + 1, state.quota.snapshots)
        state, identity = identified(state, "snap", moment)
        snapshot = Snapshot(
            id=identity,
            name=self.name,
            mark=self.mark,
            volume=volume.id,
            size_gib=volume.size_gib,
            created_at=moment.now,
            labels=self.labels,
        )
        snapshots = with_item(state.snapshots, identity, snapshot)
        return replace(state, snapshots=snapshots), snapshot

    def _same(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.volume != self.volume:
            raise Conflict(
                f"snapshot {snapshot.id} ({snapshot.name}) exists, of volume {snapshot.volume} "
                f"instead of {self.volume}; delete it first"
            )
        return snapshot


class DeleteSnapshot(Request, frozen=True):
    """Deletes a snapshot. Volumes created from it stay. Deleting a missing one succeeds."""

    NAME: ClassVar[str] = "snapshots.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    snapshot: str
    cluster: str | None = None
    """Deletes the snapshot only if it has the mark of this cluster; None: always."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        snapshot = state.snapshots.get(self.snapshot)
        if snapshot is None:
            return state, None
        check_mark(snapshot, self.cluster, deletes=True)
        return replace(state, snapshots=without(state.snapshots, self.snapshot)), None


class ListSnapshots(Request, frozen=True):
    NAME: ClassVar[str] = "snapshots.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Snapshot]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Snapshot]]:
        return state, Page(items=tuple(state.snapshots.values()))
