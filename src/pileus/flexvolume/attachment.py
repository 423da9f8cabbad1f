"""The calls that need the cloud: attach, detach, isattached and expandvolume."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pileus.cloud.errors import NotFound, Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Failure, Instance, InstanceId, NodeName, NodeRef
from pileus.cloud.volume import VolumeId, VolumeState
from pileus.flexvolume.calls import DONE, Answer, Call, failed
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import whole_gib
from pileus.volumes.persistent_volumes import FLEX_OPTION

BY_ID = "/dev/disk/by-id"


@dataclass(frozen=True, slots=True)
class Attachments:
    operations: Operations
    instances: Instances
    persistent_volume: Callable[[str], Awaitable[PersistentVolume | None]]
    """Reads a PersistentVolume; None if it does not exist. Raises KubeError."""

    async def attach(self, call: Call) -> Answer:
        volume = call.options.volume
        attached = await self.operations.attach(volume, await self._instance(call))
        return Answer(fields={"device": attached.device or f"{BY_ID}/{volume}"})

    async def is_attached(self, call: Call) -> Answer:
        instance = await self._instance(call)
        found = await self.operations.find(call.options.volume)
        has_it = found is not None and any(each.instance == instance for each in found.attachments)
        is_attached = has_it and found is not None and found.state is not VolumeState.DETACHING
        return Answer(fields={"attached": is_attached})

    async def detach(self, call: Call) -> Answer:
        """Detach a volume, of which Kubernetes passes the name of its PersistentVolume."""
        name = call.arguments["VOLUME"]
        volume = await self._named(name)
        if volume is None:
            return failed(
                f"PersistentVolume {name} does not exist, or has no option {FLEX_OPTION}, and no "
                "volume in the cloud has this ID. Fix: detach the volume in the cloud"
            )
        try:
            instance = await self._instance(call)
        except NotFound:
            return DONE  # a machine that does not exist uses no volume
        await self.operations.detach(volume, instance)
        return DONE

    async def expand(self, call: Call) -> Answer:
        grown = await self.operations.resize(call.options.volume, whole_gib(call.new_size))
        return Answer(fields={"volumeNewSize": grown.size_gib << 30})

    async def _named(self, name: str) -> VolumeId | None:
        found = await self.persistent_volume(name)
        flex = found.spec.flex_volume if found is not None and found.spec else None
        if identified := (flex.options or {}).get(FLEX_OPTION, "") if flex else "":
            return VolumeId(identified)
        volume = VolumeId(name)
        return volume if await self.operations.find(volume) is not None else None

    async def _instance(self, call: Call) -> InstanceId:
        """Returns the instance of the node. Raises NotFound if the cloud says there is none."""
        name = NodeName(call.arguments["NODE"])
        found = (await self.instances.find([NodeRef(name=name)], fresh=True)).get(name)
        if isinstance(found, Instance):
            return found.id
        if isinstance(found, Failure):
            raise found.error
        if found is None:
            raise Unavailable(f"the cloud does not say whether node {name} has an instance")
        raise NotFound(f"node {name} has no instance in the cloud")
