"""The volumes behind objects of the cluster, for webhooks: read-only, in a manager with any clouds.

Webhooks are also served by standby replicas. They read from the cloud, and never write to it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.volume import Volume, VolumeId
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.persistent_volumes import CloudVolumes


class Unknown(Exception):
    """The volume cannot be looked up now. The message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """A cloud in which volumes are looked up."""

    name: str
    cloud: Callable[[], Cloud | None]
    """Returns the cloud; None while it is not connected."""
    why: Callable[[], str]
    """Returns why it is not connected."""


@dataclass(frozen=True, slots=True)
class Found:
    """A volume, and the cloud that has it."""

    place: str
    cloud: Cloud
    volume: Volume


class VolumeLookup:
    """Finds the volume of a PersistentVolume in the clouds of this manager."""

    def __init__(
        self, places: Callable[[], tuple[Place, ...]], cluster_id: Callable[[], Awaitable[str]]
    ) -> None:
        self._places = places
        self._cluster_id = cluster_id

    async def find(self, volume: PersistentVolume) -> Found | None:
        """Returns the volume; None if no cloud of this manager can have it.

        Raises Unknown if a cloud that may have it cannot be asked, or none has it.
        """
        asked = [(place, place.cloud()) for place in self._places()]
        troubles: list[str] = []
        for place, cloud in asked:
            identified = self._identified(place, cloud, volume)
            if identified is None:
                continue
            if cloud is None:
                troubles.append(place.why())
                continue
            try:
                found = await self._read(cloud, identified)
            except CloudError as error:
                troubles.append(f"cloud {place.name}: {error}")
                continue
            if found is not None:
                return Found(place.name, cloud, found)
            troubles.append(f"cloud {place.name} has no volume {identified} of this cluster")
        if troubles:
            raise Unknown("; ".join(troubles))
        return None

    @staticmethod
    def _identified(place: Place, cloud: Cloud | None, volume: PersistentVolume) -> VolumeId | None:
        """Returns the ID in that cloud. A cloud that is not connected is known by its name only."""
        if cloud is None:
            return CloudVolumes(place.name).id_of(volume)
        if cloud.volumes is None:
            return None
        return CloudVolumes(place.name, cloud.volume_names).id_of(volume)

    async def _read(self, cloud: Cloud, identified: VolumeId) -> Volume | None:
        if cloud.volumes is None:
            return None
        listed = await cloud.volumes.list_volumes(await self._cluster_id(), [identified])
        return listed.get(identified)
