"""The orphan sweep: load balancers that carry this cluster's tag and have no Service.

They are searched for at the start and then periodically, and reported. With
`--service-orphans=delete` they are deleted: after two checks some time apart and a new list of all
Services, a few at a time, and none at all if there are so many that it looks like a mistake.

    owners in the cloud, Services ──plan_sweep──▶ steps ──▶ performed by Sweeper, shown by preview
"""

import asyncio
import random
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import assert_never

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import Classes, is_load_balancer
from pileus.controllers.service.events import KUBE_SYSTEM, Reason, about_service
from pileus.controllers.service.notes import UNKNOWN
from pileus.controllers.service.reconciler import Parts
from pileus.controllers.service.settings import SWEEP_PERIOD, Policy
from pileus.controllers.service.status import went_elsewhere
from pileus.dataclass import dataclass, replace
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Service
from pileus.objects.events import ObjectEvents
from pileus.runtime.queue import Priority, WorkQueue
from pileus.telemetry.log import Log

log = Log(__name__)

ROUND = "orphan-sweep"
GRACE = 60.0
"""Seconds between the first and the last check before an orphan is deleted."""
FRACTION = 0.2
"""The fraction of all owners that may be deleted in one sweep; at least one."""
FEW, MOST = 3, 0.5
"""More orphans than a few, and than this fraction of all owners, look like a mistake."""
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """What is done about orphans, and how often they are searched for."""

    policy: Policy = Policy.REPORT
    period: float = SWEEP_PERIOD

    @property
    def pause(self) -> float:
        """The shortest time between two sweeps while there are orphans to delete."""
        return min(self.period, GRACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What the plan of a sweep is made from."""

    owners: frozenset[str]
    """UIDs of all owners of load balancers with this cluster's tag."""
    services: tuple[Service, ...]
    classes: Classes
    known: frozenset[str] = frozenset()
    """UIDs of owners that passes know: Services with a load balancer, or deleted ones."""
    first_seen: Mapping[str, float]
    """When each orphan of earlier sweeps was found first."""
    now: float
    settings: SweepSettings
    listed: frozenset[str] | None = None
    """UIDs of all Services in a new list from the API server."""


@dataclass(frozen=True, slots=True)
class Recognize:
    """Remember that the Service has a load balancer."""

    uid: str
    queue: bool
    """Whether it no longer wants one, and a pass has to delete it."""


@dataclass(frozen=True, slots=True)
class ReportOrphans:
    """Report the orphans; an empty report ends earlier ones."""

    uids: frozenset[str]
    owners: int
    is_paused: bool
    """Whether none is deleted because they are too many."""


@dataclass(frozen=True, slots=True)
class ListServices:
    """List all Services from the API server. The plan is made again with the list."""


@dataclass(frozen=True, slots=True)
class DeleteOrphan:
    uid: str
    seconds: float
    """From now: a later sweep deletes it, if nothing changes until then."""


SweepStep = Recognize | ReportOrphans | ListServices | DeleteOrphan


def plan_sweep(sweep: Sweep) -> tuple[SweepStep, ...]:
    """Returns the steps of a sweep. Pure."""
    recognized = tuple(_recognized(sweep))
    known = sweep.known | {step.uid for step in recognized}
    found = unwanted(sweep.owners, sweep.services, sweep.classes) - known
    deletes = sweep.settings.policy is Policy.DELETE and bool(found)
    is_paused = deletes and are_too_many(len(found), len(sweep.owners))
    report = ReportOrphans(found, len(sweep.owners), is_paused)
    if not deletes or is_paused:
        return *recognized, report
    existing = sweep.listed
    if existing is None:
        existing = {each.metadata.uid for each in sweep.services}
    first_seen = {uid: sweep.first_seen.get(uid, sweep.now) for uid in found}
    schedule = tuple(_schedule(sweep, first_seen, existing))
    is_due = any(step.seconds <= 0 for step in schedule)
    if is_due and sweep.listed is None:
        return *recognized, report, ListServices()
    return *recognized, report, *schedule


def _recognized(sweep: Sweep) -> Iterator[Recognize]:
    for service in sweep.services:
        uid = service.metadata.uid
        is_new = uid in sweep.owners and uid not in sweep.known
        if is_new and is_evidence(service, sweep.classes):
            yield Recognize(uid, queue=not sweep.classes.serve(service))


def unwanted(
    owners: Iterable[str], services: Iterable[Service], classes: Classes
) -> frozenset[str]:
    """Returns the UIDs of owners without a Service, or with one that another manager serves.

    A Service that is no longer of type LoadBalancer, or changed its class, is not among them: its
    load balancer is deleted by a pass.
    """
    wanted = {each.metadata.uid for each in services if is_evidence(each, classes)}
    return frozenset(owners) - wanted


def is_evidence(service: Service, classes: Classes) -> bool:
    """Returns whether a tag in the cloud proves that the load balancer is ours to change or delete.

    For a Service of another manager's class it does not, unless the Service changed its class
    since it was served: otherwise perhaps only a flag was changed.
    """
    is_others = is_load_balancer(service) and not classes.serve(service)
    return not is_others or went_elsewhere(service, classes)


def are_too_many(orphans: int, owners: int) -> bool:
    """Returns whether there are so many orphans that none of them may be deleted."""
    return orphans > max(FEW, MOST * owners)


def deletable(
    orphans: Mapping[str, float], owners: int, now: float, existing: Container[str] = ()
) -> tuple[str, ...]:
    """Returns the orphans that may be deleted now.

    `orphans` maps each UID to the time when it was first seen; `existing` has the UIDs of all
    Services. The load balancer of a Service that exists is never deleted, whatever its class.
    """
    if are_too_many(len(orphans), owners):
        return ()
    gone = (uid for uid in orphans if uid not in existing)
    old = sorted(uid for uid in gone if now - orphans[uid] >= GRACE)
    return tuple(old[: max(1, int(FRACTION * owners))])


def _schedule(
    sweep: Sweep, first_seen: Mapping[str, float], existing: Container[str]
) -> Iterator[DeleteOrphan]:
    """Yield what this and the following sweeps delete, if nothing changes meanwhile."""
    left, owners, at = dict(first_seen), len(sweep.owners), sweep.now
    while True:
        batch = deletable(left, owners, at, existing)
        for uid in batch:
            yield DeleteOrphan(uid, at - sweep.now)
            del left[uid]
        owners -= len(batch)
        due = [since + GRACE for uid, since in left.items() if uid not in existing]
        later = [each for each in due if each > at]
        if batch:
            at += sweep.settings.pause
        elif later:
            at = min(later)
        else:
            return


class Sweeper:
    """Performs sweeps. A round of its own, beside the passes."""

    def __init__(
        self, parts: Parts, queue: WorkQueue[str], notices: ObjectEvents, settings: SweepSettings
    ) -> None:
        self._parts = parts
        self._queue = queue
        self._notices = notices
        self._settings = settings
        self._first_seen: dict[str, float] = {}
        self._reported: frozenset[str] = frozenset()
        """The orphans in the last event."""
        self._is_paused = False
        metrics = parts.metrics
        metrics.add_part(metrics.orphaned_balancers, lambda: len(self._first_seen))
        metrics.add_part(metrics.orphan_deletion_paused, lambda: self._is_paused)

    async def round(self, chance: random.Random) -> float:
        """Sweep once and return the seconds until the next sweep."""
        try:
            await self.sweep()
        except (CloudError, KubeError) as error:
            log.warning("Orphan sweep failed", err=error)
        is_soon = self._first_seen and self._settings.policy is Policy.DELETE
        period = self._settings.pause if is_soon else self._settings.period
        return period * chance.uniform(1.0, 1.2)

    async def sweep(self) -> None:
        """Sweep once. Raises CloudError or KubeError if owners or Services cannot be listed."""
        owners = await self._parts.balancers.owners(self._parts.rules.desires.cluster)
        sweep = self._observed(owners)
        for step in plan_sweep(sweep):
            if isinstance(step, ListServices):
                await self._delete_due(sweep)
            else:
                self._perform(sweep, step)

    async def _delete_due(self, sweep: Sweep) -> None:
        listed = {each.metadata.uid for each in await self._parts.cluster.list_services()}
        for step in plan_sweep(replace(sweep, listed=frozenset(listed))):
            if isinstance(step, DeleteOrphan):
                self._perform(sweep, step)

    def _observed(self, owners: Iterable[Owner]) -> Sweep:
        parts = self._parts
        uids = frozenset(owner.uid for owner in owners)
        return Sweep(
            owners=uids,
            services=parts.cluster.services(),
            classes=parts.rules.classes,
            known=frozenset(uid for uid in uids if self._is_known(uid)),
            first_seen=self._first_seen,
            now=asyncio.get_running_loop().time(),
            settings=self._settings,
        )

    def _is_known(self, uid: str) -> bool:
        note = self._parts.notes.find(uid) or UNKNOWN
        return note.known or uid in self._parts.deleted

    def _perform(self, sweep: Sweep, step: Recognize | ReportOrphans | DeleteOrphan) -> None:
        match step:
            case Recognize(uid, queue):
                if queue:
                    self._queue.add(uid, Priority.REFRESH)
                self._parts.notes.update(uid, known=True)
            case ReportOrphans():
                self._report(sweep, step)
            case DeleteOrphan(uid, seconds) if seconds <= 0:
                log.info("Deleting orphaned load balancer", owner=uid)
                self._parts.deleted.add_orphan(uid)
                self._queue.add(uid, Priority.REFRESH)
            case DeleteOrphan():
                return  # a later sweep's
            case _:
                assert_never(step)

    def _report(self, sweep: Sweep, step: ReportOrphans) -> None:
        found, seen = step.uids, self._first_seen
        self._first_seen = {uid: seen.get(uid, sweep.now) for uid in found}
        self._notices.keep([KUBE_SYSTEM, *map(about_service, sweep.services)])
        if not found or not found <= self._reported:
            self._notices.forget(KUBE_SYSTEM, Reason.ORPHANED)
        self._reported = found
        self._report_pause(step)
        if not found:
            return
        names = ", ".join(sorted(found)[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        log.warning("Found orphaned load balancers", count=len(found), owners=names + more)
        text = f"Load balancers tagged with this cluster have no Service. Owners: {names}{more}"
        self._notices.warn(
            KUBE_SYSTEM, Reason.ORPHANED, f"{text} (see pileus orphans, --service-orphans)"
        )

    def _report_pause(self, step: ReportOrphans) -> None:
        self._is_paused = step.is_paused
        if step.is_paused:
            self._notices.warn(KUBE_SYSTEM, Reason.PAUSED, too_many(len(step.uids), step.owners))
        else:
            self._notices.forget(KUBE_SYSTEM, Reason.PAUSED)


def too_many(orphans: int, owners: int) -> str:
    """Returns why no orphan is deleted, and what to do."""
    return (
        f"{orphans} of {owners} load balancers have no Service, and at most "
        f"{max(FEW, int(MOST * owners))} may be deleted automatically: none is deleted. "
        "List and delete them: pileus orphans"
    )
