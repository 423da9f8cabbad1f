"""Claims, PersistentVolumes, classes and attachments as this controller reads and writes them."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Generic

from pileus.cloud.volume import VolumeId
from pileus.controllers.volume.objects import (
    CLAIM_FINALIZER,
    NODE_ID,
    SELECTED_NODE,
    Rules,
    annotation,
    claim_ref,
    finalizers,
    handle_of,
    is_deleting,
    node_of,
    source_volume,
    volume_name,
)
from pileus.controllers.volume.observation import Held, Released
from pileus.controllers.volume.source import Kind, kind_of, source_of
from pileus.kube.client import Client, Preconditions
from pileus.kube.errors import NotFound
from pileus.kube.informer import Handler, Informer
from pileus.kube.model.core_v1 import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.meta import Resource, T
from pileus.kube.model.storage_v1 import (
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    StorageClass,
    VolumeAttachment,
)
from pileus.kube.patch import Patch
from pileus.kube.store import NamespacedName, key_of
from pileus.objects.nodes import provider_id_of
from pileus.objects.own_writes import OwnWrites, WithoutEchoes
from pileus.runtime.informers import Informers

BY_NAME = "volume-name"
BY_SOURCE = "source-claim"
BY_HANDLE = "volume-handle"
BY_VOLUME = "attached-volume"
BY_USE = "volume-in-use"


def _claim_names(claim: PersistentVolumeClaim) -> Iterator[Hashable]:
    yield volume_name(claim)


def _source_claims(claim: PersistentVolumeClaim) -> Iterator[Hashable]:
    reference = source_of(claim)
    if reference is not None and kind_of(reference) is Kind.CLAIM:
        yield claim.metadata.namespace, reference.name


def _handles(volume: PersistentVolume) -> Iterator[Hashable]:
    if handle_of(volume):
        yield handle_of(volume)


def _sources(attachment: VolumeAttachment) -> Iterator[Hashable]:
    yield source_volume(attachment)


def _used(node: Node) -> Iterator[Hashable]:
    yield from (node.status and node.status.volumes_in_use) or ()


class Cached(Generic[T]):
    """One kind: the informer's view with own writes, and the API server behind it."""

    def __init__(self, client: Client, informer: Informer[T], resource: Resource[T]) -> None:
        self.informer = informer
        self._client = client
        self._resource = resource
        self._written = OwnWrites[NamespacedName, T](informer.store.get)

    def get(self, name: str, namespace: str = "") -> T | None:
        key = NamespacedName(namespace, name)
        return self._written.newest(key, self.informer.store.get(key))

    def newest(self, item: T) -> T:
        return self._written.newest(key_of(item), item) or item

    def list(self) -> tuple[T, ...]:
        return tuple(self.newest(each) for each in self.informer.store.list())

    def found(self, index: str, value: Hashable) -> tuple[T, ...]:
        return tuple(self.newest(each) for each in self.informer.store.by_index(index, value))

    async def read(self, name: str, namespace: str = "") -> T | None:
        """Returns the object from the API server; None if it does not exist."""
        try:
            return await self._client.get(self._resource, name, namespace=namespace)
        except NotFound:
            return None

    async def patch(self, item: T, patch: Patch, subresource: str = "") -> None:
        """Change the object. A later pass reads the change at once. Raises KubeError."""
        meta = item.metadata
        request = self._client.patch(
            self._resource, meta.name, patch, namespace=meta.namespace, subresource=subresource
        )
        await self._written.write(key_of(item), request, lambda before: before)

    def subscribe(self, handler: Handler[T]) -> None:
        """Call the handler for all changes; own writes that are delivered late do not count."""
        self.informer.subscribe(WithoutEchoes(handler, self._written, key_of))


class Cluster:
    """All that passes read from the cluster and write to it."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self.claims = Cached(
            client,
            informers.of(
                PERSISTENT_VOLUME_CLAIMS, {BY_NAME: _claim_names, BY_SOURCE: _source_claims}
            ),
            PERSISTENT_VOLUME_CLAIMS,
        )
        self.volumes = Cached(
            client, informers.of(PERSISTENT_VOLUMES, {BY_HANDLE: _handles}), PERSISTENT_VOLUMES
        )
        self.attachments = Cached(
            client, informers.of(VOLUME_ATTACHMENTS, {BY_VOLUME: _sources}), VOLUME_ATTACHMENTS
        )
        self._classes = informers.of(STORAGE_CLASSES)
        self._nodes = informers.of(NODES, {BY_USE: _used})

    async def wait_synced(self) -> None:
        """Wait until all kinds are listed."""
        informers: tuple[Informer[Any], ...] = (
            self.claims.informer,
            self.volumes.informer,
            self.attachments.informer,
            self._classes,
            self._nodes,
        )
        for informer in informers:
            await informer.wait_synced()

    def claim_of(self, pv: PersistentVolume) -> PersistentVolumeClaim | None:
        """Returns the claim that the PersistentVolume names, by UID."""
        reference = claim_ref(pv)
        if reference is None:
            return None
        found = self.claims.get(reference.name, reference.namespace)
        return found if found and found.metadata.uid == reference.uid else None

    def claim_for(self, name: str) -> PersistentVolumeClaim | None:
        """Returns the claim for which a PersistentVolume of this name would be created."""
        return next(iter(self.claims.found(BY_NAME, name)), None)

    def class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        name = (claim.spec and claim.spec.storage_class_name) or ""
        return self._classes.store.get(NamespacedName("", name))

    def node(self, name: str) -> Node | None:
        return self._nodes.store.get(NamespacedName("", name))

    def is_in_use(self, rules: Rules, pv: PersistentVolume) -> bool:
        """Returns whether any node reports that the volume is mounted there."""
        return bool(self._nodes.store.by_index(BY_USE, rules.use_of(handle_of(pv))))

    def selected_node(self, claim: PersistentVolumeClaim) -> Node | None:
        return self.node(annotation(claim, SELECTED_NODE))

    def attachments_of(self, rules: Rules, name: str) -> tuple[Held, ...]:
        """Returns the attachments of this driver for a PersistentVolume, oldest first."""
        found = [
            each for each in self.attachments.found(BY_VOLUME, name) if rules.is_attacher(each)
        ]
        found.sort(key=lambda each: (str(each.metadata.creation_timestamp), each.metadata.name))
        return tuple(Held(each, self.node(node_of(each))) for each in found)

    def others_with(self, handle: str, name: str) -> tuple[str, ...]:
        """Returns the names of other PersistentVolumes with the same volume."""
        if not handle:
            return ()
        names = (each.metadata.name for each in self.volumes.found(BY_HANDLE, handle))
        return tuple(sorted(each for each in names if each != name))

    def copied_to(self, pv: PersistentVolume) -> tuple[str, ...]:
        """Returns the claims without a PersistentVolume that copy this one's volume.

        They have the finalizer: their copies may have begun.
        """
        reference = claim_ref(pv)
        if reference is None:
            return ()
        key = reference.namespace, reference.name
        found = (
            each.metadata.name
            for each in self.claims.found(BY_SOURCE, key)
            if CLAIM_FINALIZER in finalizers(each) and self.volumes.get(volume_name(each)) is None
        )
        return tuple(sorted(found))

    async def read(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Returns an object of any kind from the API server. Raises KubeError."""
        return await self._client.get(resource, name, namespace=namespace)

    async def released(self, name: str, claim: PersistentVolumeClaim | None) -> Released:
        """Returns the PersistentVolume and its claim from the API server.

        `claim` is the one to look for if there is no PersistentVolume.
        """
        volume = await self.volumes.read(name)
        reference = claim_ref(volume) if volume else None
        if reference is not None:
            found = await self.claims.read(reference.name, reference.namespace)
            is_same = found is not None and found.metadata.uid == reference.uid
            return Released(volume, found if is_same else None)
        if volume is not None or claim is None:
            return Released(volume, None)
        meta = claim.metadata
        return Released(None, await self.claims.read(meta.name, meta.namespace))

    async def holders(self, rules: Rules, name: str) -> frozenset[str]:
        """Returns the instances of the attachments of a PersistentVolume, by a fresh list.

        An attachment that names no instance yet counts as "". Raises KubeError; an attachment
        that cannot be read may be of this volume.
        """
        listed = await self._client.list(VOLUME_ATTACHMENTS)
        found = [each for each in listed.items if source_volume(each) == name]
        instances = {annotation(each, NODE_ID) for each in found if rules.is_attacher(each)}
        return frozenset(instances | ({""} if listed.unreadable else set()))

    async def with_fresh_nodes(self, attachments: Iterable[Held]) -> tuple[Held, ...]:
        """Returns the attachments; those that are being deleted with a node just read."""
        return tuple([
            replace(each, node=await self._read_node(node_of(each.attachment)), is_fresh=True)
            if is_deleting(each.attachment)
            else each
            for each in attachments
        ])

    async def _read_node(self, name: str) -> Node | None:
        try:
            return await self._client.get(NODES, name)
        except NotFound:
            return None

    async def mounts(self, rules: Rules, id_: VolumeId | None) -> tuple[bool, frozenset[str]]:
        """Returns whether any node reports the volume as mounted, and the machines of all nodes.

        By a fresh list. A node that cannot be read may have mounted it.
        """
        listed = await self._client.list(NODES)
        users = (each for each in listed.items if id_ and rules.is_in_use(each, id_))
        machines = (provider_id_of(each).rpartition("/")[2] for each in listed.items)
        return bool(listed.unreadable) or any(users), frozenset(filter(None, machines))

    async def create_volume(self, body: PersistentVolume) -> None:
        await self._client.create(PERSISTENT_VOLUMES, body)

    async def delete_volume(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        await self._client.delete(
            PERSISTENT_VOLUMES, meta.name, preconditions=Preconditions(uid=meta.uid)
        )
