"""Defects of the volume controller."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pileus.cloud.errors import CloudError
from pileus.cloud.volume import Volume, VolumeSpec
from pileus.controllers.volume import attach, plan, provision, reconciler
from pileus.controllers.volume.cluster import Cached, Cluster
from pileus.controllers.volume.objects import Rules
from pileus.controllers.volume.observation import Held
from pileus.controllers.volume.reconciler import VolumeReconciler
from pileus.controllers.volume.steps import (
    DeletePersistentVolume,
    RemoveAttachmentFinalizer,
    Resize,
)
from pileus.csi import node
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Node, PersistentVolumeClaim
from pileus.volumes import mounts
from pileus_lab.local.volume_capability import LocalVolumes
from tests.simulation.planting import Patch


def every_volume_counts_as_released() -> Iterable[Patch]:
    """Neither the phase nor fresh reads of the claim are looked at."""
    yield plan, "is_released", lambda pv: True
    yield plan, "_not_released", lambda seen, pv: ""


def released_volumes_are_forgotten() -> Iterable[Patch]:
    """The PersistentVolume is deleted, and its volume stays in the cloud."""

    async def delete(self: VolumeReconciler, step: DeletePersistentVolume) -> None:
        if not reconciler.is_deleting(step.volume):
            await self._parts.cluster.delete_volume(step.volume)
        else:
            finalizer = reconciler.DELETE_FINALIZER
            patch = reconciler.finalizer_patch(step.volume, finalizer, adds=False)
            await self._parts.cluster.volumes.patch(step.volume, patch)

    yield VolumeReconciler, "_delete", delete
    yield plan, "_deleted", lambda seen, pv, id_: (DeletePersistentVolume(pv, id_),)


def detachments_are_only_reported() -> Iterable[Patch]:
    """The finalizer is removed at once, and the machine keeps the volume."""

    def detached(_: object, __: object, ___: object, held: attach.Held) -> Iterable[object]:
        return (RemoveAttachmentFinalizer(held.attachment, None, None),)

    yield attach, "_detached", detached
    yield plan, "plan_strays", lambda seen, pv: ()


def volumes_are_detached_for_growth() -> Iterable[Patch]:
    """A volume in use is detached before it grows, as some clouds need it."""
    sound = VolumeReconciler._in_cloud

    async def in_cloud(self: VolumeReconciler, step: Any) -> None:
        if isinstance(step, Resize):
            volumes, cluster = self._parts.volumes, self._parts.rules.cluster
            found = (await volumes.list_volumes(cluster, [step.volume])).get(step.volume)
            for one in found.attachments if found else ():
                await volumes.detach(cluster, step.volume, one.instance)
        await sound(self, step)

    yield VolumeReconciler, "_in_cloud", in_cloud


def growth_is_not_published() -> Iterable[Patch]:
    """The volume grows, and the claim never learns of it."""
    sound = Cached[Any].patch

    async def patch(self: Cached[Any], item: Any, change: Any, subresource: str = "") -> None:
        if "allocatedResourceStatuses" not in str(change.body):
            await sound(self, item, change, subresource)

    yield Cached, "patch", patch


def annotations_of_claims_are_believed() -> Iterable[Patch]:
    """The provisioner of the claim's StorageClass is not looked at."""
    sound = provision.is_wanted

    def is_wanted(rules: Rules, claim: PersistentVolumeClaim, _: object) -> bool:
        return sound(rules, claim, None)

    yield provision, "is_wanted", is_wanted


def answers_to_creations_are_believed() -> Iterable[Patch]:
    """The provider takes the volume in the answer for the one that was asked for."""
    sound = LocalVolumes.create

    async def create(self: LocalVolumes, spec: VolumeSpec) -> Volume:
        made = await sound(self, spec)
        return replace(made, owner=spec.owner, size_gib=max(made.size_gib, spec.size_gib))

    yield LocalVolumes, "create", create


def silence_of_the_cloud_proves_that_a_machine_is_off() -> Iterable[Patch]:
    """A volume is detached from a machine about which the cloud answers with an error."""
    sound = attach._danger

    def danger(rules: Rules, id_: Any, held: Held) -> str:
        return "" if isinstance(held.answer, CloudError) else sound(rules, id_, held)

    yield attach, "_danger", danger


def unreadable_nodes_count_as_deleted() -> Iterable[Patch]:
    """A node that is not as its kind defines it has nothing mounted."""
    sound = Cluster._read_node

    async def read(self: Cluster, name: str) -> Node | None:
        try:
            return await sound(self, name)
        except KubeError:
            return None

    yield Cluster, "_read_node", read


def any_mount_at_the_staging_path_is_published() -> Iterable[Patch]:
    def unchecked(_: object, __: Path, ___: object) -> None:
        return None

    yield node, "_check_staged", unchecked


def volumes_are_not_reserved_while_they_are_unpublished() -> Iterable[Patch]:
    """A late request ends the mount of a pod that was started again."""

    async def unpublish(_: node.Node, request: Any) -> None:
        await mounts.unmount(node.Path(request.target_path))

    yield node.Node, "node_unpublish_volume", unpublish
