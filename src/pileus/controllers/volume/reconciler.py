"""A pass over one volume: observe, plan, perform the steps.

name ──▶ observation ──plan──▶ first step ──perform──▶ new observation ──▶ plan again, or the result
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from pileus.clock import Clock
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent
from pileus.cloud.volume import Volume, VolumeId, Volumes
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.events import Reporter
from pileus.controllers.volume.lines import record_observed, record_steps
from pileus.controllers.volume.objects import (
    CLAIM_FINALIZER,
    DELETE_FINALIZER,
    NODE_ID,
    VOLUME_ID,
    Rules,
    about_claim,
    finalizers,
    handle_of,
    is_deleting,
    node_of,
)
from pileus.controllers.volume.observation import Observation
from pileus.controllers.volume.patches import (
    attached_patch,
    capacity_patch,
    finalizer_patch,
    resized_patch,
    unselected_patch,
)
from pileus.controllers.volume.plan import plan
from pileus.controllers.volume.provision import FAILED
from pileus.controllers.volume.source_lookup import SourceLookup
from pileus.controllers.volume.steps import (
    ENDS,
    READS,
    AddClaimFinalizer,
    Attach,
    Change,
    CheckInstances,
    CheckVolume,
    ClearSelectedNode,
    ConfirmRelease,
    ConfirmStray,
    ConfirmUnmounted,
    CreatePersistentVolume,
    CreateVolume,
    DeletePersistentVolume,
    DeleteVolume,
    Detach,
    DetachStray,
    End,
    FindByMark,
    FindCopy,
    FindTwins,
    Plan,
    PrepareAttachment,
    PublishAttached,
    PublishCapacity,
    PublishResize,
    Read,
    ReadSource,
    RemoveAttachmentFinalizer,
    RemoveClaimFinalizer,
    Report,
    ReportAttachment,
    Resize,
    SetFinalizer,
    Wait,
    Warn,
)
from pileus.kube.errors import AlreadyExists, Conflict, NotFound
from pileus.objects.lookup import Answer, look_up
from pileus.runtime.memory import PerObject
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log
from pileus.volumes.operations import StillPending, owned

log = Log(__name__)

MOST_PLANS = 20
"""Plans that one pass may make; a pass that needs more is continued by the next one."""
PAUSE = 2.0
"""Seconds until a volume is observed again that the cloud works on."""
SOON = 0.5
IN_CLOUD = (Detach, DetachStray, Resize, DeleteVolume)
_NAMES = {
    Detach: "the detachment",
    DetachStray: "the detachment",
    Resize: "the new size",
    DeleteVolume: "the deletion",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What passes and previews work with."""

    rules: Rules
    cluster: Cluster
    volumes: Volumes
    instances: Instances
    reporter: Reporter
    clock: Clock
    is_due: Callable[[str], bool]
    """Returns whether the periodic check suspects that cluster and cloud differ."""


class Observer:
    """Reads what plans are made from. Changes nothing."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._absent = PerObject[str, float]("volumes/absent")
        self._gone = PerObject[str, Mapping[str, float]]("volumes/machines-gone")
        """By PersistentVolume: since when the cloud has had no machine for a node."""
        self._copies = PerObject[str, VolumeId]("volumes/copies")
        """By PersistentVolume: the copy that the cloud is creating for it."""

    def of(self, name: str) -> Observation:
        """Returns what the cluster says, before the cloud is asked."""
        cluster = self._parts.cluster
        pv = cluster.volumes.get(name)
        claim = cluster.claim_of(pv) if pv else cluster.claim_for(name)
        return Observation(
            name=name,
            date=self._parts.clock.now(),
            pv=pv,
            claim=claim,
            storage_class=cluster.class_of(claim) if claim else None,
            selected=cluster.selected_node(claim) if claim else None,
            attachments=cluster.attachments_of(self._parts.rules, name),
            shared_with=cluster.others_with(handle_of(pv), name) if pv else (),
            is_in_use=cluster.is_in_use(self._parts.rules, pv) if pv else False,
            copied_to=cluster.copied_to(pv) if pv else (),
            is_due=self._parts.is_due(name),
        )

    async def read(self, seen: Observation, step: Read) -> Observation:
        """Returns the observation with what the step reads. Raises CloudError or KubeError."""
        parts = self._parts
        match step:
            case CheckVolume() | FindByMark() | FindCopy() | FindTwins():
                return await self._with_volume(seen, step)
            case ReadSource(claim):
                lookup = SourceLookup(parts.rules, parts.cluster, parts.volumes)
                return replace(seen, origin=await lookup.find(claim))
            case CheckInstances():
                return await self._with_instances(seen)
            case ConfirmRelease():
                fresh = await parts.cluster.released(seen.name, seen.claim)
                return replace(seen, released=fresh)
            case ConfirmUnmounted():
                held = await parts.cluster.with_fresh_nodes(seen.attachments)
                return replace(seen, attachments=held)
            case ConfirmStray():
                holders = await parts.cluster.holders(parts.rules, seen.name)
                in_use, machines = await parts.cluster.mounts(parts.rules, seen.volume_id)
                return replace(seen, holders=holders, is_in_use=in_use, machines=machines)
            case _:
                assert_never(step)

    async def _with_volume(
        self, seen: Observation, step: CheckVolume | FindByMark | FindCopy | FindTwins
    ) -> Observation:
        match step:
            case CheckVolume(id_):
                cluster = self._parts.rules.cluster
                found = (await self._parts.volumes.list_volumes(cluster, [id_])).get(id_)
                return replace(seen, volume=found, is_checked=True)
            case FindByMark(owner):
                return self._marked(seen, await self._find(owner))
            case FindCopy(owner):
                found = await self._find_copy(seen.name, owner)
                return replace(seen, volume=found, is_checked=True)
            case FindTwins(owner):
                return replace(seen, twins=await self._twins(seen, owner))
            case _:
                assert_never(step)

    async def _find_copy(self, name: str, owner: str) -> Volume | None:
        """Returns the volume with this mark; one that was found before is read by its ID.

        A copy may take hours, and a list of all volumes is long. Raises CloudError.
        """
        known, cluster = self._copies.pop(name, None), self._parts.rules.cluster
        found: Volume | None = None
        if known is not None:
            found = (await self._parts.volumes.list_volumes(cluster, [known])).get(known)
        if found is None:
            found = await self._find(owner)
        if found is not None:
            self._copies[name] = found.id
        return found

    async def _find(self, owner: str) -> Volume | None:
        """Returns the volume with this mark. Raises CloudError."""
        listed = (await self._parts.volumes.list_volumes(self._parts.rules.cluster)).values()
        return next((each for each in listed if each.owner and each.owner.uid == owner), None)

    async def _twins(self, seen: Observation, owner: str) -> tuple[Volume, ...]:
        """Returns the other volumes with this mark that no PersistentVolume has."""
        listed = await self._parts.volumes.list_volumes(self._parts.rules.cluster)
        others = self._parts.cluster.others_with
        return tuple(
            each
            for id_, each in sorted(listed.items())
            if each.owner == Owner(self._parts.rules.cluster, owner)
            and id_ != seen.volume_id
            and not others(id_, seen.name)
        )

    def _marked(self, seen: Observation, volume: Volume | None) -> Observation:
        if volume is not None:
            self._absent.pop(seen.name, None)
            others = self._parts.cluster.others_with(volume.id, seen.name)
            return replace(seen, volume=volume, is_checked=True, shared_with=others)
        now = asyncio.get_running_loop().time()
        since = self._absent.setdefault(seen.name, now)
        return replace(seen, is_checked=True, absent_for=now - since)

    def forget(self, name: str) -> None:
        """Drop what is remembered of a volume that is settled."""
        self._absent.pop(name, None)
        self._gone.pop(name, None)
        self._copies.pop(name, None)

    async def _with_instances(self, seen: Observation) -> Observation:
        nodes = {node_of(each.attachment): each.node for each in seen.attachments}
        known = [node for node in nodes.values() if node is not None]
        answers = await look_up(self._parts.instances, known, fresh=True)
        gone = self._gone_for(seen.name, answers)
        held = tuple(
            replace(each, answer=answers.get(name), gone_for=gone.get(name, 0.0))
            for each in seen.attachments
            for name in (node_of(each.attachment),)
        )
        return replace(seen, attachments=held)

    def _gone_for(self, name: str, answers: Mapping[str, Answer]) -> Mapping[str, float]:
        """Returns the seconds for which nodes have had no machine in all answers."""
        now, before = asyncio.get_running_loop().time(), self._gone.pop(name, {})
        absent = [node for node, answer in answers.items() if isinstance(answer, Absent)]
        if absent:
            self._gone[name] = {node: before.get(node, now) for node in absent}
        return {node: now - before.get(node, now) for node in absent}

    async def plan(self, seen: Observation) -> tuple[Observation, Plan]:
        """Returns the plan after everything that it depends on was read."""
        steps = plan(self._parts.rules, seen)
        for _ in range(MOST_PLANS):
            read = next((step for step in steps if isinstance(step, READS)), None)
            if read is None or _is_later(steps, read):
                break
            seen = await self.read(seen, read)
            steps = plan(self._parts.rules, seen)
        return seen, steps


def _is_later(steps: Plan, read: Read) -> bool:
    """Returns whether the plan has a change before this step."""
    first = next(step for step in steps if not isinstance(step, ENDS))
    return first is not read


class VolumeReconciler:
    """Key: the name of the PersistentVolume, which may not exist yet."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._observer = Observer(parts)
        self._failing: set[str] = set()

    @property
    def failing(self) -> int:
        """The number of volumes whose last pass failed."""
        return len(self._failing)

    async def reconcile(self, key: str) -> Result:
        result = await self._reconcile(key)
        self._failing.discard(key)
        if result == DONE:
            self._observer.forget(key)
        return result

    def failed(self, key: str, error: BaseException) -> None:
        del error
        self._failing.add(key)

    async def _reconcile(self, key: str) -> Result:
        seen, asked = self._observer.of(key), set[object]()
        for _ in range(MOST_PLANS):
            record_observed(seen)
            seen, steps = await self._observer.plan(seen)
            record_steps(seen, steps)
            change = next((step for step in steps if not isinstance(step, ENDS)), None)
            if change is None:
                return await self._end([step for step in steps if isinstance(step, ENDS)])
            await self._check_done(change, asked)
            if isinstance(change, CreateVolume):
                seen = replace(self._observer.of(key), volume=await self._create(change))
            elif isinstance(change, Attach):
                seen = self._confirmed(seen, await self._attached(change))
            elif isinstance(change, READS) or await self._changed(change, asked):
                seen = self._observer.of(key)
            else:
                return DONE  # the watch delivers what was created, and queues the next pass
        return again_in(SOON)

    async def _check_done(self, step: Read | Change, asked: set[object]) -> None:
        """Raises StillPending if the step was accepted in this pass, and has to be done again.

        The cloud forgot it, or shows an old state: it is asked again later, and not at once.
        """
        if not isinstance(step, IN_CLOUD):
            return
        what = type(step), step.volume
        if what in asked:
            error = StillPending(f"the cloud accepted {_NAMES[type(step)]}, and has not done it")
            await self._parts.reporter.step_failed(step, error, self._parts.cluster)
            raise error
        asked.add(what)

    def _confirmed(self, before: Observation, volume: Volume) -> Observation:
        """Returns the observation after an attachment: its answer is newer than any list."""
        answers = {each.attachment.metadata.uid: each.answer for each in before.attachments}
        seen = self._observer.of(before.name)
        held = tuple(
            replace(each, answer=answers.get(each.attachment.metadata.uid))
            for each in seen.attachments
        )
        return replace(seen, attachments=held, volume=volume, is_checked=True, is_confirmed=True)

    async def _attached(self, step: Attach) -> Volume:
        try:
            return await self._parts.volumes.attach(
                self._parts.rules.cluster, step.volume, step.instance
            )
        except CloudError as error:
            await self._parts.reporter.step_failed(step, error, self._parts.cluster)
            raise

    async def _create(self, step: CreateVolume) -> Volume:
        try:
            return owned(await self._parts.volumes.create(step.spec), step.spec)
        except CloudError as error:
            self._parts.reporter.failed(about_claim(step.claim), FAILED, error)
            raise

    async def _changed(self, step: Change, asked: set[object]) -> bool:
        """Performs a step. Returns whether the next plan can be made at once.

        A step that is refused a second time fails the pass: the cache stays behind.
        """
        ends_pass = isinstance(step, CreatePersistentVolume | DeletePersistentVolume)
        try:
            await self._perform(step)
        except (Conflict, NotFound) as error:
            refused = "refused", type(step)
            if (ends_pass and isinstance(error, Conflict)) or refused in asked:
                raise  # the object may be unchanged, so that no watch event queues the next pass
            asked.add(refused)
            log.info("Object has changed meanwhile", v=2, step=type(step).__name__, why=error)
            await asyncio.sleep(SOON)
        except AlreadyExists:
            return False
        except CloudError as error:
            await self._parts.reporter.step_failed(step, error, self._parts.cluster)
            raise
        return not ends_pass

    async def _perform(self, step: Change) -> None:
        match step:
            case Detach() | DetachStray() | Resize() | DeleteVolume():
                await self._in_cloud(step)
            case CreateVolume() | Attach():
                raise TypeError("performed by the pass itself, which needs its answer")
            case CreatePersistentVolume(_, body):
                await self._parts.cluster.create_volume(body)
            case DeletePersistentVolume():
                await self._delete(step)
            case PrepareAttachment() | PublishAttached() | RemoveAttachmentFinalizer():
                await self._write_attachment(step)
            case PublishCapacity() | SetFinalizer():
                await self._write_volume(step)
            case _:
                await self._write_claim(step)
        self._parts.reporter.done(step)

    async def _delete(self, step: DeletePersistentVolume) -> None:
        """A volume that was missing from a list is deleted too: the request is idempotent."""
        await self._parts.volumes.delete(self._parts.rules.cluster, step.id)
        if not is_deleting(step.volume):
            await self._parts.cluster.delete_volume(step.volume)
        elif DELETE_FINALIZER in finalizers(step.volume):
            patch = finalizer_patch(step.volume, DELETE_FINALIZER, adds=False)
            await self._parts.cluster.volumes.patch(step.volume, patch)

    async def _in_cloud(self, step: Detach | DetachStray | Resize | DeleteVolume) -> None:
        volumes, cluster = self._parts.volumes, self._parts.rules.cluster
        match step:
            case Detach(_, volume, instance) | DetachStray(_, volume, instance):
                await volumes.detach(cluster, volume, instance)
            case Resize(_, volume, size):
                await volumes.resize(cluster, volume, size)
            case DeleteVolume(_, volume):
                log.info("Deleting volume", volume=volume, why=step.why)
                await volumes.delete(cluster, volume)
            case _:
                assert_never(step)

    async def _write_claim(
        self, step: AddClaimFinalizer | RemoveClaimFinalizer | ClearSelectedNode | PublishResize
    ) -> None:
        claims = self._parts.cluster.claims
        match step:
            case AddClaimFinalizer(claim):
                patch = finalizer_patch(claim, CLAIM_FINALIZER, adds=True)
                await claims.patch(claim, patch)
            case RemoveClaimFinalizer(claim):
                patch = finalizer_patch(claim, CLAIM_FINALIZER, adds=False)
                await claims.patch(claim, patch)
            case ClearSelectedNode(claim):
                await claims.patch(claim, unselected_patch(claim))
            case PublishResize(claim, size, needs_node):
                now = self._parts.clock.now()
                patch = resized_patch(claim, size, now, needs_node=needs_node)
                await claims.patch(claim, patch, "status")
            case _:
                assert_never(step)

    async def _write_volume(self, step: PublishCapacity | SetFinalizer) -> None:
        match step:
            case PublishCapacity(volume, size):
                patch = capacity_patch(volume, size)
            case SetFinalizer(volume, finalizer, adds):
                patch = finalizer_patch(volume, finalizer, adds=adds)
            case _:
                assert_never(step)
        await self._parts.cluster.volumes.patch(volume, patch)

    async def _write_attachment(
        self, step: PrepareAttachment | PublishAttached | RemoveAttachmentFinalizer
    ) -> None:
        attachments, finalizer = self._parts.cluster.attachments, self._parts.rules.attach_finalizer
        match step:
            case PrepareAttachment(item, volume, instance):
                ids = {NODE_ID: instance, VOLUME_ID: volume}
                patch = finalizer_patch(item, finalizer, adds=True, annotations=ids)
                await attachments.patch(item, patch)
            case PublishAttached(item, device):
                await attachments.patch(item, attached_patch(item, device), "status")
            case RemoveAttachmentFinalizer(item, volume, instance):
                if volume is not None and instance is not None:
                    cluster = self._parts.rules.cluster
                    await self._parts.volumes.detach(cluster, volume, instance)
                await attachments.patch(item, finalizer_patch(item, finalizer, adds=False))
            case _:
                assert_never(step)

    async def _end(self, steps: list[End]) -> Result:
        """Reports what blocks the volume. Raises the first error, so that the pass is retried."""
        errors: list[CloudError] = []
        for step in steps:
            match step:
                case Report(about, reason, error, by_text):
                    self._parts.reporter.failed(about, reason, error, by_text=by_text)
                    errors.append(error)
                case ReportAttachment():
                    await self._parts.reporter.attachment_failed(step, self._parts.cluster)
                    errors.append(step.error)
                case Warn(about, reason, message):
                    self._parts.reporter.warn(about, reason, message)
                case Wait():
                    pass
                case _:
                    assert_never(step)
        if errors:
            raise errors[0]
        return again_in(PAUSE) if any(isinstance(step, Wait) for step in steps) else DONE
