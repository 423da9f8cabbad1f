"""The volume controller: one queue of volumes, and the periodic check of all of them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.cloud.volume import Volumes
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.events import Reporter
from pileus.controllers.volume.lines import lines
from pileus.controllers.volume.objects import (
    CLAIM_FINALIZER,
    Rules,
    about_claim,
    bound_to,
    finalizers,
    names_of,
    rules_of,
    source_volume,
)
from pileus.controllers.volume.observation import Observation
from pileus.controllers.volume.reconciler import Observer, Parts, VolumeReconciler
from pileus.controllers.volume.settings import VolumeSettings
from pileus.controllers.volume.sweep import ROUND, SidecarCheck, Sweeper
from pileus.kube.model.core_v1 import PersistentVolume, PersistentVolumeClaim
from pileus.kube.model.storage_v1 import VolumeAttachment
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.memory import PerObject
from pileus.runtime.periodic import Periodic
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import Result
from pileus.volumes.persistent_volumes import about_volume

QUEUE = "volumes"
WORKERS = 100
RETRIES = Exponential(1.0, 60.0)
UNKNOWN = "VolumeUnknown"
KINDS = frozenset({"PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment"})
"""The kinds of objects that plans are about."""


class VolumeController:
    """Does for a driver what external-provisioner, -attacher and -resizer do."""

    def __init__(
        self,
        context: ControllerContext,
        volumes: Volumes,
        instances: Instances,
        settings: VolumeSettings,
    ) -> None:
        self._context = context
        self._volumes = volumes
        self._instances = instances
        self._settings = settings
        self._cluster = Cluster(context.client, context.informers)
        self._queue = WorkQueue[str](context.scoped(QUEUE), context.metrics)
        self._notices = ObjectEvents(context.events)
        self._suspected = PerObject[str, bool]("volumes/suspected")
        self._controller: Controller[str] | None = None
        self._checks: Periodic | None = None

    async def run(self) -> None:
        """Work until cancelled; call once. Waits until all objects and the cluster ID are known."""
        context, parts = self._context, await self._parts()
        reconciler = Settling(VolumeReconciler(parts), self._suspected)
        self._controller = Controller(
            context.scoped(context.names.canonical),
            reconciler,
            self._queue,
            RetryPolicy(RETRIES, context.random),
            Limits(workers=context.affordable(WORKERS)),
        )
        sweeper = Sweeper(parts.rules, self._cluster, self._volumes, self._suspect, self._notices)
        self._checks = self._periodic(parts.rules, sweeper)
        metrics = context.metrics
        metrics.add_part(metrics.volumes_failing, lambda: reconciler.inner.failing)
        metrics.add_part(metrics.volumes_missing, lambda: sweeper.missing)
        metrics.add_part(metrics.volumes_orphaned, lambda: sweeper.orphans)
        self._subscribe(parts.rules)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._checks.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what the passes would change now; changes nothing.

        A claim, its PersistentVolume and its attachments are planned together: for a scope that
        names one of them, the plan of all of them is returned, with what a periodic check finds.
        """
        if scope.kind and scope.kind not in KINDS:
            return []
        parts = await self._parts()
        if scope.kind:
            parts = replace(parts, is_due=_always)
        observer = Observer(parts)
        found: list[Planned | Trouble] = []
        for name in sorted(set(self._names(parts.rules))):
            seen = observer.of(name)
            if not any(map(scope.has, seen.objects())):
                continue
            try:
                _, steps = await observer.plan(seen)
                found += lines(steps)
            except CloudError as error:
                found.append(_unknown(seen, error))
        return found

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a pass or check is running for too long."""
        running = (self._controller, self._checks)
        return next(filter(None, (each and each.stuck(limit) for each in running)), None)

    def failing(self) -> str | None:
        """Returns the message for a health check if the periodic check keeps failing."""
        return None if self._checks is None else self._checks.failing()

    def _subscribe(self, rules: Rules) -> None:
        cluster, queue = self._cluster, self._queue
        cluster.claims.subscribe(ClaimHandler(rules, cluster, queue))
        cluster.volumes.subscribe(VolumeHandler(rules, queue))
        cluster.attachments.subscribe(AttachmentHandler(rules, queue))

    def _periodic(self, rules: Rules, sweeper: Sweeper) -> Periodic:
        context = self._context
        sidecars = SidecarCheck(context.client, rules.driver, self._notices, context.clock)

        async def check() -> float:
            pause = await sweeper.sweep(context.random, self._settings.check_period)
            await sidecars.check()
            return pause

        return Periodic(context.scoped(ROUND), check, context.metrics, context.random)

    def _suspect(self, name: str) -> None:
        self._suspected[name] = True
        self._queue.add(name)

    def _names(self, rules: Rules) -> Iterator[str]:
        """Yields the keys of all volumes for which there may be something to do."""
        for volume in self._cluster.volumes.list():
            if rules.is_ours(volume):
                yield volume.metadata.name
        for claim in self._cluster.claims.list():
            if rules.is_asked(claim) or CLAIM_FINALIZER in finalizers(claim):
                yield from names_of(claim)
        for attachment in self._cluster.attachments.list():
            if rules.is_attacher(attachment):
                yield source_volume(attachment)

    async def _parts(self) -> Parts:
        await self._cluster.wait_synced()
        context = self._context
        return Parts(
            rules=rules_of(context.scope.name, await context.cluster_id()),
            cluster=self._cluster,
            volumes=self._volumes,
            instances=self._instances,
            reporter=Reporter(self._notices, context.clock),
            clock=context.clock,
            is_due=lambda name: name in self._suspected,
        )


def _always(_name: str) -> bool:
    return True


def _unknown(seen: Observation, error: CloudError) -> Trouble:
    """Returns the line about a volume that the cloud does not answer for."""
    message = str(error) or type(error).__name__
    if seen.claim is not None:
        return Trouble(about_claim(seen.claim), UNKNOWN, message)
    if seen.pv is not None:
        return Trouble(about_volume(seen.pv), UNKNOWN, message)
    raise error


class Settling:
    """A reconciler whose pass ends a suspicion of the periodic check."""

    def __init__(self, inner: VolumeReconciler, suspected: PerObject[str, bool]) -> None:
        self.inner = inner
        self._suspected = suspected

    async def reconcile(self, key: str) -> Result:
        result = await self.inner.reconcile(key)
        self._suspected.pop(key, None)
        return result

    def failed(self, key: str, error: BaseException) -> None:
        self.inner.failed(key, error)


@dataclass(frozen=True, slots=True)
class ClaimHandler:
    """Turns changes of claims into keys of the queue."""

    rules: Rules
    cluster: Cluster
    queue: WorkQueue[str]

    def added(self, new: PersistentVolumeClaim, /) -> None:
        if self._is_ours(new):
            for name in names_of(new):
                self.queue.add(name)

    def updated(self, old: PersistentVolumeClaim, new: PersistentVolumeClaim, /) -> None:
        if _of_claim(old) != _of_claim(new):
            self.added(new)

    def deleted(self, old: PersistentVolumeClaim, /) -> None:
        self.added(old)

    def _is_ours(self, claim: PersistentVolumeClaim) -> bool:
        if self.rules.is_asked(claim) or CLAIM_FINALIZER in finalizers(claim):
            return True
        volume = self.cluster.volumes.get(bound_to(claim)) if bound_to(claim) else None
        return volume is not None and self.rules.is_ours(volume)


@dataclass(frozen=True, slots=True)
class VolumeHandler:
    """Turns changes of PersistentVolumes into keys of the queue."""

    rules: Rules
    queue: WorkQueue[str]

    def added(self, new: PersistentVolume, /) -> None:
        if self.rules.is_ours(new):
            self.queue.add(new.metadata.name)

    def updated(self, old: PersistentVolume, new: PersistentVolume, /) -> None:
        if _of_volume(old) != _of_volume(new):
            self.added(new)

    def deleted(self, old: PersistentVolume, /) -> None:
        self.added(old)


@dataclass(frozen=True, slots=True)
class AttachmentHandler:
    """Turns changes of attachments into keys of the queue."""

    rules: Rules
    queue: WorkQueue[str]

    def added(self, new: VolumeAttachment, /) -> None:
        if self.rules.is_attacher(new) and source_volume(new):
            self.queue.add(source_volume(new))

    def updated(self, old: VolumeAttachment, new: VolumeAttachment, /) -> None:
        if _of_attachment(old) != _of_attachment(new):
            self.added(new)

    def deleted(self, old: VolumeAttachment, /) -> None:
        self.added(old)


def _of_claim(claim: PersistentVolumeClaim) -> object:
    """Returns what plans read of a claim."""
    meta, status = claim.metadata, claim.status
    amounts = status and (status.capacity, status.allocated_resource_statuses)
    phase = status and status.phase
    return claim.spec, meta.annotations, meta.finalizers, meta.deletion_timestamp, phase, amounts


def _of_volume(volume: PersistentVolume) -> object:
    meta, phase = volume.metadata, volume.status and volume.status.phase
    return volume.spec, meta.annotations, meta.finalizers, meta.deletion_timestamp, phase


def _of_attachment(attachment: VolumeAttachment) -> object:
    """Errors in its status are not read: writing one must not cause the next attempt."""
    meta, is_done = attachment.metadata, attachment.status and attachment.status.attached
    return attachment.spec, meta.annotations, meta.finalizers, meta.deletion_timestamp, is_done
