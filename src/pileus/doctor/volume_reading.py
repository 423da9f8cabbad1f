"""Reads the storage objects of drivers of Pileus for the doctor. Nothing is changed.

A cluster without a StorageClass or CSIDriver of such a driver is asked for nothing else.
"""

from collections.abc import Sequence
from typing import TypeVar

from pileus.doctor.observation import Read, Storage, Unread
from pileus.doctor.part import reading, right
from pileus.doctor.records import CSI_DRIVERS, CSI_NODES, LEASES, CsiNode, Lease
from pileus.kube.client import Client, Selector
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import PERSISTENT_VOLUMES, PersistentVolume
from pileus.kube.model.meta import KubeObject, Resource
from pileus.kube.model.storage_v1 import STORAGE_CLASSES, VOLUME_ATTACHMENTS
from pileus.volumes.parameters import DRIVER_SUFFIX
from pileus.volumes.sidecars import sidecar_leases

K = TypeVar("K", bound=KubeObject)


async def read_storage(client: Client) -> Read[Storage]:
    """Returns the classes, drivers, nodes and attachments of drivers of Pileus."""
    needed = right("list", STORAGE_CLASSES, also=(CSI_DRIVERS, CSI_NODES, VOLUME_ATTACHMENTS))
    return await reading("StorageClasses", needed, _storage(client))


async def _storage(client: Client) -> Storage:
    """Raises KubeError."""
    listed = await _items(client, STORAGE_CLASSES)
    classes = tuple(each for each in listed or () if each.provisioner.endswith(DRIVER_SUFFIX))
    found = await _items(client, CSI_DRIVERS)
    drivers = tuple(each for each in found or () if each.metadata.name.endswith(DRIVER_SUFFIX))
    if not classes and not drivers:
        return Storage()
    attachments = await _items(client, VOLUME_ATTACHMENTS)
    nodes: Sequence[CsiNode] | None = await _items(client, CSI_NODES)
    return Storage(
        classes=classes,
        drivers=drivers,
        nodes=None if nodes is None else tuple(nodes),
        attachments=tuple(
            each
            for each in attachments or ()
            if each.spec and each.spec.attacher.endswith(DRIVER_SUFFIX)
        ),
    )


async def _items(client: Client, resource: Resource[K]) -> Sequence[K] | None:
    """Returns the objects; None if the API server does not have the kind. Raises KubeError."""
    try:
        return (await client.list(resource)).items
    except NotFound:
        return None


async def read_volumes(
    client: Client, storage: Read[Storage]
) -> Read[tuple[PersistentVolume, ...]]:
    """Returns the PersistentVolumes of drivers of Pileus."""
    if isinstance(storage, Unread) or not storage.names:
        return ()
    needed = right("list", PERSISTENT_VOLUMES)
    listed = await reading("PersistentVolumes", needed, client.list(PERSISTENT_VOLUMES))
    if isinstance(listed, Unread):
        return listed
    return tuple(
        each
        for each in listed.items
        if each.spec and each.spec.csi and each.spec.csi.driver.endswith(DRIVER_SUFFIX)
    )


async def read_sidecars(client: Client, storage: Read[Storage]) -> Read[tuple[Lease, ...]]:
    """Returns the Leases of the sidecars of these drivers, in all namespaces."""
    if isinstance(storage, Unread):
        return ()
    found: list[Lease] = []
    for driver in storage.names:
        for name in sidecar_leases(driver):
            selector = Selector(fields=f"metadata.name={name}")
            work = client.list(LEASES, selector=selector)
            listed = await reading("Leases of CSI sidecars", right("list", LEASES), work)
            if isinstance(listed, Unread):
                return listed
            found += listed.items
    return tuple(found)
