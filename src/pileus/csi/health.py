"""The part of the controller service that reports the health of volumes."""

from dataclasses import dataclass

from pileus.cloud.volume import Volume, VolumeId, VolumeState
from pileus.csi.requests import page, required
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import check_secrets

FAILED = "VolumeFailed"
MISSING = "VolumeMissing"


@dataclass(frozen=True, slots=True)
class Health:
    operations: Operations

    async def controller_get_volume_health(
        self, request: csi.ControllerGetVolumeHealthRequest
    ) -> csi.ControllerGetVolumeHealthResponse:
        required(volume_id=request.volume_id)
        check_secrets(request.secrets)
        volume = await self.operations.get(VolumeId(request.volume_id))
        return csi.ControllerGetVolumeHealthResponse(volume_health=health_of(volume))

    async def controller_list_volume_health(
        self, request: csi.ControllerListVolumeHealthRequest
    ) -> csi.ControllerListVolumeHealthResponse:
        check_secrets(request.secrets)
        volumes = await self.operations.volumes.list_volumes(self.operations.cluster)
        unhealthy = [one for one in volumes.values() if one.state is VolumeState.ERROR]
        shown, token = page(unhealthy, request.max_entries, request.starting_token)
        entries = [health_of(volume) for volume in shown]
        return csi.ControllerListVolumeHealthResponse(entries=entries, next_token=token)


def health_of(volume: Volume) -> csi.VolumeHealth:
    if volume.state is VolumeState.ERROR:
        why = volume.reason or "the cloud reports the volume as failed, without a reason"
        return unhealthy(volume.id, FAILED, why)
    return csi.VolumeHealth(volume_id=volume.id)


def unhealthy(volume: str, reason: str, message: str) -> csi.VolumeHealth:
    health = csi.VolumeHealth(volume_id=volume)
    health.health_statuses.add(status=csi.INACCESSIBLE, reason=reason, message=message)
    return health
