"""The calls that need the cloud: attach, detach, isattached and expandvolume.

A user who may create a pod can name any volume in a `flexVolume` of it: Kubernetes passes it on.
So each call needs a PersistentVolume of this driver that names the volume: administrators create
these.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pileus.cloud.errors import Misconfigured, NotFound, Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Failure, Instance, InstanceId, NodeName, NodeRef
from pileus.cloud.volume import VolumeId, VolumeState
from pileus.flexvolume.calls import DONE, Answer, Call
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import whole_gib
from pileus.volumes.persistent_volumes import FLEX_OPTION

BY_ID = "/dev/disk/by-id"
INLINE = (
    "A flexVolume in a pod is not supported. Fix: create a PersistentVolume for the volume, and "
    "let the pod use a claim"
)


@dataclass(frozen=True, slots=True)
class Attachments:
    operations: Operations
    instances: Instances
    driver: str
    """Name of this driver in PersistentVolumes: vendor and cloud."""
    persistent_volume: Callable[[str], Awaitable[PersistentVolume | None]]
    """Reads a PersistentVolume; None if it does not exist. Raises KubeError."""

    async def attach(self, call: Call) -> Answer:
        volume = await self._proven(call)
        attached = await self.operations.attach(volume, await self._instance(call))
        return Answer(fields={"device": attached.device or f"{BY_ID}/{volume}"})

    async def is_attached(self, call: Call) -> Answer:
        volume = await self._proven(call)
        instance = await self._instance(call)
        found = await self.operations.find(volume)
        has_it = found is not None and any(each.instance == instance for each in found.attachments)
        is_attached = has_it and found is not None and found.state is not VolumeState.DETACHING
        return Answer(fields={"attached": is_attached})

    async def detach(self, call: Call) -> Answer:
        """Detach a volume, of which Kubernetes passes the name of its PersistentVolume."""
        volume = await self._recorded(call.arguments["VOLUME"])
        try:
            instance = await self._instance(call)
        except NotFound:
            return DONE  # a machine that does not exist uses no volume
        await self.operations.detach(volume, instance)
        return DONE

    async def expand(self, call: Call) -> Answer:
        volume = await self._proven(call)
        grown = await self.operations.resize(volume, whole_gib(call.new_size))
        return Answer(fields={"volumeNewSize": grown.size_gib << 30})

    async def _proven(self, call: Call) -> VolumeId:
        """Returns the volume of the call. Raises Misconfigured if its PersistentVolume differs."""
        options = call.options
        recorded = await self._recorded(options.name)
        if recorded != options.volume:
            raise Misconfigured(
                f"PersistentVolume {options.name} does not name volume {options.volume}: it is not "
                f"used. {INLINE}"
            )
        return recorded

    async def _recorded(self, name: str) -> VolumeId:
        """Returns the volume that the PersistentVolume names. Raises Misconfigured, KubeError."""
        found = await self.persistent_volume(name) if name else None
        flex = found.spec.flex_volume if found is not None and found.spec else None
        if flex is None or flex.driver != self.driver or not (flex.options or {}).get(FLEX_OPTION):
            raise Misconfigured(
                f'there is no PersistentVolume "{name}" of driver {self.driver} with option '
                f"{FLEX_OPTION}: no volume is attached, detached or grown. {INLINE}"
            )
        return VolumeId((flex.options or {})[FLEX_OPTION])

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
