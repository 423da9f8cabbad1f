"""The part of the controller service that is about snapshots."""

from collections.abc import Iterable
from dataclasses import dataclass

from grpclib.const import Status

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, NotFound
from pileus.cloud.volume import Snapshot, SnapshotId, SnapshotSpec, SnapshotState, VolumeId
from pileus.csi.errors import REFUSED, CsiError, answering
from pileus.csi.requests import named, page, required, snapshot_message
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.busy import InProgress
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import check_secrets, read_snapshot_parameters


@dataclass(frozen=True, slots=True)
class Snapshots:
    operations: Operations
    busy: InProgress

    async def create_snapshot(
        self, request: csi.CreateSnapshotRequest
    ) -> csi.CreateSnapshotResponse:
        name = named(request.name)
        required(source_volume_id=request.source_volume_id)
        check_secrets(request.secrets)
        read_snapshot_parameters(request.parameters)
        volume = VolumeId(request.source_volume_id)
        spec = SnapshotSpec(owner=Owner(self.operations.cluster, name), volume=volume, name=name)
        with self.busy.only(name, volume):
            snapshot = await self._created(spec)
        return csi.CreateSnapshotResponse(snapshot=snapshot_message(snapshot))

    async def _created(self, spec: SnapshotSpec) -> Snapshot:
        """Raises ALREADY_EXISTS if the snapshot with that name is of another volume."""
        try:
            return await self.operations.create_snapshot(spec)
        except Conflict as error:
            listed = await self.operations.volumes.list_snapshots(spec.owner.cluster)
            existing = next((one for one in listed.values() if one.owner == spec.owner), None)
            if existing is None or existing.state is SnapshotState.DELETING:
                raise
            raise CsiError(Status.ALREADY_EXISTS, str(error)) from error

    async def delete_snapshot(
        self, request: csi.DeleteSnapshotRequest
    ) -> csi.DeleteSnapshotResponse:
        required(snapshot_id=request.snapshot_id)
        check_secrets(request.secrets)
        with self.busy.only(request.snapshot_id), answering(REFUSED):
            await self.operations.delete_snapshot(SnapshotId(request.snapshot_id))
        return csi.DeleteSnapshotResponse()

    async def list_snapshots(self, request: csi.ListSnapshotsRequest) -> csi.ListSnapshotsResponse:
        check_secrets(request.secrets)
        ids = [SnapshotId(request.snapshot_id)] if request.snapshot_id else None
        listed = await self.operations.volumes.list_snapshots(self.operations.cluster, ids)
        found = _of_volume(listed.values(), request.source_volume_id)
        shown, token = page(found, request.max_entries, request.starting_token)
        answer = csi.ListSnapshotsResponse(next_token=token)
        for snapshot in shown:
            answer.entries.add(snapshot=snapshot_message(snapshot))
        return answer

    async def get_snapshot(self, request: csi.GetSnapshotRequest) -> csi.GetSnapshotResponse:
        required(snapshot_id=request.snapshot_id)
        check_secrets(request.secrets)
        wanted = SnapshotId(request.snapshot_id)
        found = await self.operations.volumes.list_snapshots(self.operations.cluster, [wanted])
        if wanted not in found:
            raise NotFound(f"there is no snapshot {wanted}")
        return csi.GetSnapshotResponse(snapshot=snapshot_message(found[wanted]))


def _of_volume(snapshots: Iterable[Snapshot], volume: str) -> list[Snapshot]:
    return [one for one in snapshots if volume in {"", one.volume}]
