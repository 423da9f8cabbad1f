"""The controller service: volumes in the cloud. Nothing is kept in memory.

A volume is found by its mark: the ID of the cluster and the name in the request, which
external-provisioner derives from the UID of the claim. The ID of a node is that of its instance.
"""

from dataclasses import dataclass

from grpclib.const import Status

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, NotFound, Unsupported
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    ZONE_LABEL,
    FromSnapshot,
    FromVolume,
    Source,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
)
from pileus.csi.errors import REFUSED, CsiError, answering, invalid
from pileus.csi.requests import (
    check_capabilities,
    check_capability,
    check_limit,
    named,
    page,
    published_nodes,
    required,
    size_of,
    source_of,
    topologies,
    unsupported,
    volume_message,
)
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.busy import InProgress
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import DEVICE, GIB, check_secrets, read_parameters

Rpc = csi.ControllerServiceCapability.RPC
CAPABILITIES = (
    Rpc.CREATE_DELETE_VOLUME,
    Rpc.PUBLISH_UNPUBLISH_VOLUME,
    Rpc.LIST_VOLUMES,
    Rpc.LIST_VOLUMES_PUBLISHED_NODES,
    Rpc.CLONE_VOLUME,
    Rpc.EXPAND_VOLUME,
    Rpc.GET_VOLUME,
    Rpc.SINGLE_NODE_MULTI_WRITER,
    Rpc.GET_VOLUME_HEALTH,
    Rpc.LIST_VOLUME_HEALTH,
)
SNAPSHOT_CAPABILITIES = (Rpc.CREATE_DELETE_SNAPSHOT, Rpc.LIST_SNAPSHOTS, Rpc.GET_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Controller:
    operations: Operations
    busy: InProgress

    async def controller_get_capabilities(
        self, _: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        answer = csi.ControllerGetCapabilitiesResponse()
        found = (*CAPABILITIES, *(SNAPSHOT_CAPABILITIES if await self._has_snapshots() else ()))
        if await self._has_capacity():
            found = (*found, Rpc.GET_CAPACITY)
        for capability in found:
            answer.capabilities.add(rpc=Rpc(type=capability))
        return answer

    async def _has_capacity(self) -> bool:
        """Whether the cloud reports a limit: a scheduler would trust any other number."""
        try:
            return (await self.operations.volumes.capacity()).available_gib is not None
        except Unsupported:
            return False

    async def _has_snapshots(self) -> bool:
        operations = self.operations
        try:
            await operations.volumes.list_snapshots(operations.cluster, [])
        except Unsupported:
            return False
        return True

    # -- volumes ------------------------------------------------------------------------------

    async def create_volume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        name = named(request.name)
        check_capabilities(request.volume_capabilities)
        check_secrets(request.secrets)
        if request.mutable_parameters:
            raise invalid("VolumeAttributesClass is not supported: remove it from the claim")
        source = source_of(request.volume_content_source)
        with self.busy.only(name):
            least = await self._size_of_source(source)
            spec = self._spec(request, source, least)
            with answering({Unsupported: Status.INVALID_ARGUMENT}):
                volume = await self._created(spec)
            check_limit(volume.size_gib, request.capacity_range)
        return csi.CreateVolumeResponse(volume=volume_message(volume, source))

    def _spec(
        self, request: csi.CreateVolumeRequest, source: Source | None, least: int
    ) -> VolumeSpec:
        parameters = read_parameters(request.parameters)
        return VolumeSpec(
            owner=Owner(self.operations.cluster, request.name),
            size_gib=size_of(request.capacity_range, least),
            name=request.name,
            type=parameters.type,
            topologies=topologies(request.accessibility_requirements, parameters.zone),
            source=source,
            labels=parameters.labels,
        )

    async def _size_of_source(self, source: Source | None) -> int:
        """Returns the least size of a volume with that content. Raises NotFound."""
        operations = self.operations
        match source:
            case FromSnapshot(id_):
                found = await operations.volumes.list_snapshots(operations.cluster, [id_])
                if id_ not in found:
                    raise NotFound(f"there is no snapshot {id_}")
                return found[id_].size_gib
            case FromVolume(id_):
                return (await operations.get(id_)).size_gib
            case None:
                return 1

    async def _created(self, spec: VolumeSpec) -> Volume:
        """Raises ALREADY_EXISTS if the volume with that name does not fit the request."""
        try:
            return await self.operations.create(spec)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
            existing = await self._marked(spec.owner)
            if existing is None or existing.state is VolumeState.DELETING:
                raise
            raise CsiError(Status.ALREADY_EXISTS, str(error)) from error

    async def _marked(self, owner: Owner) -> Volume | None:
        volumes = await self.operations.volumes.list_volumes(owner.cluster)
        return next((one for one in volumes.values() if one.owner == owner), None)

    async def delete_volume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        required(volume_id=request.volume_id)
        check_secrets(request.secrets)
        with self.busy.only(request.volume_id), answering(REFUSED):
            await self.operations.delete(VolumeId(request.volume_id))
        return csi.DeleteVolumeResponse()

    async def controller_publish_volume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        required(volume_id=request.volume_id, node_id=request.node_id)
        check_capability(request.volume_capability, is_set=request.HasField("volume_capability"))
        check_secrets(request.secrets)
        if request.readonly:
            raise invalid("readonly is not supported when a volume is attached; mount it read-only")
        volume, node = VolumeId(request.volume_id), InstanceId(request.node_id)
        with self.busy.only(volume):
            await self.operations.get(volume)
            with answering(REFUSED):
                attachment = await self.operations.attach(volume, node)
        context = {DEVICE: attachment.device} if attachment.device else {}
        return csi.ControllerPublishVolumeResponse(publish_context=context)

    async def controller_unpublish_volume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        required(volume_id=request.volume_id)
        check_secrets(request.secrets)
        volume = VolumeId(request.volume_id)
        with self.busy.only(volume):
            for node in await self._nodes(volume, request.node_id):
                await self.operations.detach(volume, node)
        return csi.ControllerUnpublishVolumeResponse()

    async def _nodes(self, volume: VolumeId, node: str) -> tuple[InstanceId, ...]:
        """Returns the instances to detach from: the given one, or all if none is given."""
        if node:
            return (InstanceId(node),)
        found = await self.operations.find(volume)
        return () if found is None else tuple(published_nodes(found))

    async def validate_volume_capabilities(
        self, request: csi.ValidateVolumeCapabilitiesRequest
    ) -> csi.ValidateVolumeCapabilitiesResponse:
        required(volume_id=request.volume_id)
        if not request.volume_capabilities:
            raise invalid("volume_capabilities is missing in the request")
        await self.operations.get(VolumeId(request.volume_id))
        answer = csi.ValidateVolumeCapabilitiesResponse()
        problems = [*filter(None, map(unsupported, request.volume_capabilities))]
        if problems:
            answer.message = "; ".join(problems)
            return answer
        answer.confirmed.volume_context.update(request.volume_context)
        answer.confirmed.volume_capabilities.extend(request.volume_capabilities)
        answer.confirmed.parameters.update(request.parameters)
        return answer

    async def list_volumes(self, request: csi.ListVolumesRequest) -> csi.ListVolumesResponse:
        volumes = await self.operations.volumes.list_volumes(self.operations.cluster)
        shown, token = page(volumes.values(), request.max_entries, request.starting_token)
        answer = csi.ListVolumesResponse(next_token=token)
        for volume in shown:
            entry = answer.entries.add(volume=volume_message(volume))
            entry.status.published_node_ids.extend(published_nodes(volume))
        return answer

    async def get_capacity(self, request: csi.GetCapacityRequest) -> csi.GetCapacityResponse:
        parameters = read_parameters(request.parameters)
        place = dict(request.accessible_topology.segments)
        is_elsewhere = bool(parameters.zone) and place.get(ZONE_LABEL) not in {
            None,
            parameters.zone,
        }
        if is_elsewhere or any(map(unsupported, request.volume_capabilities)):
            return csi.GetCapacityResponse(available_capacity=0)
        if parameters.zone:
            place[ZONE_LABEL] = parameters.zone
        found = await self.operations.volumes.capacity(parameters.type, place or None)
        if found.available_gib is None:
            raise CsiError(Status.UNAVAILABLE, "the cloud reports no limit for volumes any more")
        answer = csi.GetCapacityResponse(available_capacity=found.available_gib * GIB)
        answer.minimum_volume_size.value = GIB
        return answer

    async def controller_get_volume(
        self, request: csi.ControllerGetVolumeRequest
    ) -> csi.ControllerGetVolumeResponse:
        required(volume_id=request.volume_id)
        volume = await self.operations.get(VolumeId(request.volume_id))
        answer = csi.ControllerGetVolumeResponse(volume=volume_message(volume))
        answer.status.published_node_ids.extend(published_nodes(volume))
        return answer

    async def controller_expand_volume(
        self, request: csi.ControllerExpandVolumeRequest
    ) -> csi.ControllerExpandVolumeResponse:
        required(volume_id=request.volume_id)
        check_secrets(request.secrets)
        if not request.HasField("capacity_range"):
            raise invalid("capacity_range is missing in the request")
        size = size_of(request.capacity_range)
        volume = VolumeId(request.volume_id)
        with self.busy.only(volume), answering({Conflict: Status.FAILED_PRECONDITION}):
            found = await self.operations.get(volume)
            check_limit(max(size, found.size_gib), request.capacity_range)
            grown = await self.operations.resize(volume, size)
        is_block = request.volume_capability.HasField("block")
        return csi.ControllerExpandVolumeResponse(
            capacity_bytes=grown.size_gib * GIB, node_expansion_required=not is_block
        )
