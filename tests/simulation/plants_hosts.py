"""Defects of the volume controller and the node plugin that only pods with data show."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError
from pileus.cloud.volume import Volume, VolumeSpec
from pileus.controllers.volume import attach, plan, provision
from pileus.controllers.volume.objects import is_attached
from pileus.controllers.volume.observation import Held, Observation
from pileus.controllers.volume.reconciler import VolumeReconciler
from pileus.controllers.volume.steps import (
    AddClaimFinalizer,
    CreateVolume,
    DeletePersistentVolume,
    DeleteVolume,
    Plan,
    PublishCapacity,
    RemoveAttachmentFinalizer,
    Step,
)
from pileus.csi import node
from pileus.objects.nodes import taints_of
from pileus.volumes import devices, mounts
from pileus.volumes.busy import InProgress
from pileus.volumes.commands import HostError
from tests.simulation.planting import Patch

# -- the controller ----------------------------------------------------------------------------


def attached_volumes_are_attached_again() -> Iterable[Patch]:
    """A volume is attached to the next node, whatever other machine has it."""
    sound = attach._attach

    def attached(rules: Any, seen: Observation, volume: Volume, held: Held) -> Iterator[Step]:
        mine = tuple(one for one in volume.attachments if one.instance == held.instance)
        return sound(rules, seen, replace(volume, attachments=mine), held)

    yield attach, "_attach", attached


def forgotten_detachments_are_repeated_at_once() -> Iterable[Patch]:
    """What the cloud accepted and did not do is requested again without a pause."""

    async def check(self: VolumeReconciler, step: object, asked: set[object]) -> None:
        return None

    yield VolumeReconciler, "_check_done", check


def late_attachments_stay() -> Iterable[Patch]:
    """A volume that was not reported as attached counts as never attached."""
    sound = attach._detached

    def detached(rules: Any, seen: Observation, id_: Any, held: Held) -> Iterator[Step]:
        if is_attached(held.attachment):
            return sound(rules, seen, id_, held)
        return iter((RemoveAttachmentFinalizer(held.attachment, None, None),))

    yield attach, "_detached", detached
    yield plan, "plan_strays", lambda seen, pv: ()


def half_done_growth_stays_so() -> Iterable[Patch]:
    """A volume that has its new size already is not published: a crash in between is final."""
    sound = plan._grow

    def grow(seen: Observation, *parts: Any) -> Iterator[Step]:
        steps = [*sound(seen, *parts)]
        return iter(() if steps and isinstance(steps[0], PublishCapacity) else steps)

    yield plan, "_grow", grow


def claims_are_not_kept_for_their_volumes() -> Iterable[Patch]:
    """A claim that is deleted after the answer to the creation was lost leaves its volume."""
    sound = provision._create

    def without_finalizer(*args: Any, **kwargs: Any) -> Plan:
        steps = sound(*args, **kwargs)
        return tuple(step for step in steps if not isinstance(step, AddClaimFinalizer))

    yield provision, "_create", without_finalizer


def refused_deletions_count_as_done() -> Iterable[Patch]:
    """The cloud refuses to delete a volume that it uses, and nobody asks again."""
    in_cloud, delete = VolumeReconciler._in_cloud, VolumeReconciler._delete

    async def in_cloud_anyhow(self: VolumeReconciler, step: Any) -> None:
        try:
            await in_cloud(self, step)
        except CloudError:
            if not isinstance(step, DeleteVolume):
                raise

    async def delete_anyhow(self: VolumeReconciler, step: DeletePersistentVolume) -> None:
        volumes = self._parts.volumes
        quiet = replace(self._parts, volumes=_Agreeing(volumes))
        self._parts = quiet
        try:
            await delete(self, step)
        finally:
            self._parts = replace(quiet, volumes=volumes)

    yield plan, "_deleted", lambda seen, pv, id_: (DeletePersistentVolume(pv, id_),)
    yield VolumeReconciler, "_in_cloud", in_cloud_anyhow
    yield VolumeReconciler, "_delete", delete_anyhow


class _Agreeing:
    def __init__(self, volumes: Any) -> None:
        self._volumes = volumes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._volumes, name)

    async def delete(self, cluster: str, volume: Any) -> None:
        try:
            await self._volumes.delete(cluster, volume)
        except CloudError:
            return


def attached_volumes_are_deleted() -> Iterable[Patch]:
    """Only the objects of the cluster say whether a volume is in use."""
    sound = plan._reclaim

    def reclaim(rules: Any, seen: Observation, pv: Any) -> Iterator[Step]:
        volume = seen.volume and replace(seen.volume, attachments=())
        return sound(rules, replace(seen, volume=volume, attachments=()), pv)

    yield plan, "_reclaim", reclaim


def missing_volumes_are_not_reported() -> Iterable[Patch]:
    yield plan, "_missing", lambda seen, pv: ()


def missing_volumes_are_replaced() -> Iterable[Patch]:
    """A claim whose volume was deleted by others gets an empty one."""

    def missing(seen: Observation, pv: Any) -> Iterator[Step]:
        if seen.is_due and seen.is_checked and seen.volume is None and seen.claim is not None:
            owner = Owner(seen.claim.metadata.namespace, pv.metadata.name)
            yield CreateVolume(seen.claim, VolumeSpec(owner=owner, size_gib=1, name="again"))

    yield plan, "_missing", missing


def a_taint_proves_that_a_machine_is_off() -> Iterable[Patch]:
    """The taint out-of-service counts, and not what the cloud says."""
    sound = attach._danger

    def danger(rules: Any, id_: Any, held: Held) -> str:
        taints = taints_of(held.node) if held.node is not None else ()
        is_tainted = any(one.key == attach.OUT_OF_SERVICE for one in taints)
        return "" if is_tainted else sound(rules, id_, held)

    yield attach, "_danger", danger


# -- the node plugin ---------------------------------------------------------------------------


def blkid_alone_decides() -> Iterable[Patch]:
    """A device on which blkid finds nothing counts as empty."""
    yield devices, "_is_empty", lambda device: True


def unreadable_devices_count_as_empty() -> Iterable[Patch]:
    sound = devices.content

    async def content(device: Any) -> str:
        try:
            return await sound(device)
        except HostError:
            return ""

    yield devices, "content", content


def devices_are_taken_by_their_names() -> Iterable[Patch]:
    """The cloud says where a volume is, and the machine is believed to agree."""

    def find(volume: str, hint: str = "", system: Any = None) -> Any:
        path = devices.Path(hint or "/dev/none")
        return path.resolve() if path.exists() else None

    yield devices, "find_device", find


def requests_overlap() -> Iterable[Patch]:
    """A request that is repeated while the first one is in progress is served beside it."""
    yield InProgress, "only", lambda self, *volumes: nullcontext()


def filesystems_keep_their_size() -> Iterable[Patch]:
    async def unchanged(*_: object) -> None:
        return None

    yield devices, "grow_mounted", unchanged
    yield devices, "grow_unmounted", unchanged


def pods_that_read_get_a_filesystem() -> Iterable[Patch]:
    """What a pod may only read is formatted and grown, and mounted read-only then."""
    sound = node._mount

    async def mount(device: Any, staging: Any, wanted: Any, *, read_only: bool) -> None:
        await devices.make_filesystem(device, "ext4")
        await devices.grow_unmounted(device, "ext4")
        await sound(device, staging, wanted, read_only=read_only)

    yield node, "_mount", mount


def any_mount_serves_readers() -> Iterable[Patch]:
    """A mount that is there already is used, whether a pod may write to it or not."""
    yield mounts, "check_access", lambda *_, **__: None


def only_the_beginning_is_read() -> Iterable[Patch]:
    """A device counts as empty if nothing is at its beginning."""
    sound = devices.probed

    def probed(size: int) -> Iterator[tuple[int, int]]:
        return iter([next(sound(size))])

    yield devices, "probed", probed
