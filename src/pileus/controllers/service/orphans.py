"""Balancers in the cloud that carry this cluster's mark, and no Service wants them.

They are looked for at the start and from time to time, and reported. If the operator says so they
are deleted: after two looks some time apart and a fresh list of all Services, a few at a time, and
none at all when there are so many that it looks like a mistake.
"""

import asyncio
import random
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError
from pileus.controllers.service.classes import Classes, is_load_balancer
from pileus.controllers.service.departed import Departed
from pileus.controllers.service.plan import went_elsewhere
from pileus.controllers.service.reasons import Reason
from pileus.controllers.service.teller import KUBE_SYSTEM, about_service
from pileus.controllers.service.tools import Tools
from pileus.fence import Fenced
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Service
from pileus.objects.events import ObjectEvents
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.supervision import Rounds
from pileus.telemetry.log import Log

log = Log(__name__)

ROUND = "orphan-sweep"
GRACE = 60.0
"""Seconds between the first and the last look before one is deleted."""
FRACTION = 0.2
"""The part of all owners that may be deleted in one round; at least one."""
FEW, MOST = 3, 0.5
"""More orphans than a few, and than this part of all owners, look like a mistake."""
SHOWN = 5
SWEEP_PERIOD = 600.0
"""Seconds between two searches, unless another period is set."""


class Policy(StrEnum):
    IGNORE = "ignore"
    """They are not looked for."""
    REPORT = "report"
    DELETE = "delete"


def unwanted(
    owners: Iterable[Owner], services: Iterable[Service], classes: Classes
) -> frozenset[str]:
    """UIDs that are marked in the cloud and have no Service, or one that others serve.

    A Service that is no longer of the type at all, or went to another class, is not among them:
    its user has said so, and it is cleaned up at once.
    """
    wanted = {each.metadata.uid for each in services if is_evidence(each, classes)}
    return frozenset(owner.uid for owner in owners) - wanted


def is_evidence(service: Service, classes: Classes) -> bool:
    """Whether a mark in the cloud proves that what is there is this Service's to keep or clear.

    Of one that others serve it does not, unless it is noted that it changed its class since it
    was served: else perhaps only a flag was changed.
    """
    is_others = is_load_balancer(service) and not classes.serve(service)
    return not is_others or went_elsewhere(service, classes)


def are_too_many(orphans: int, owners: int) -> bool:
    """Returns whether so many balancers are orphaned that none of them may be deleted."""
    return orphans > max(FEW, MOST * owners)


def deletable(
    orphans: Mapping[str, float], owners: int, now: float, existing: Container[str] = ()
) -> tuple[str, ...]:
    """Returns the orphans that may be deleted now.

    `orphans` maps each UID to the time when it was first seen; `existing` has the UIDs of all
    Services. The balancer of a Service that exists is never deleted, whichever class it has.
    """
    if are_too_many(len(orphans), owners):
        return ()
    gone = (uid for uid in orphans if uid not in existing)
    old = sorted(uid for uid in gone if now - orphans[uid] >= GRACE)
    return tuple(old[: max(1, int(FRACTION * owners))])


def rounds(
    orphans: Iterable[str], owners: int, existing: Container[str]
) -> Iterator[tuple[str, ...]]:
    """Yields what each round of the sweeper deletes, if nothing else changes meanwhile."""
    left = set(orphans)
    while batch := deletable(dict.fromkeys(left, 0.0), owners, GRACE, existing):
        yield batch
        left -= set(batch)
        owners -= len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    policy: Policy = Policy.REPORT
    period: float = SWEEP_PERIOD

    @property
    def pause(self) -> float:
        """Returns the shortest time between two rounds while there are orphans to delete."""
        return min(self.period, GRACE)


class Sweeper:
    def __init__(
        self,
        tools: Tools,
        departed: Departed,
        queue: WorkQueue[str],
        notices: ObjectEvents,
    ) -> None:
        self._tools = tools
        self._departed = departed
        self._queue = queue
        self._notices = notices
        self._since: dict[str, float] = {}
        self._reported: frozenset[str] = frozenset()
        """The orphans that the last event is about."""
        self.rounds = Rounds(ROUND, tools.metrics)

    async def run(self, settings: SweepSettings, chance: random.Random) -> None:
        """Sweep until cancelled: once at the start, then once per period."""
        await self.rounds.run(lambda: self._next_sweep(settings, chance))

    async def _next_sweep(self, settings: SweepSettings, chance: random.Random) -> float:
        try:
            await self.sweep(settings.policy)
        except (CloudError, KubeError, Fenced) as error:
            log.warning("Orphans could not be looked for", err=error)
        soon = self._since and settings.policy is Policy.DELETE
        period = settings.pause if soon else settings.period
        return period * chance.uniform(1.0, 1.2)

    async def sweep(self, policy: Policy) -> None:
        """Look once. Errors: `CloudError`, `KubeError`."""
        owners = await self._tools.workshop.owners(self._tools.wishing.cluster)
        services = self._tools.cluster.services()
        self._recognize(owners, services)
        found = self._not_in_hand(unwanted(owners, services, self._tools.classes))
        now = asyncio.get_running_loop().time()
        self._since = {uid: self._since.get(uid, now) for uid in found}
        self._report(found, services)
        if policy is Policy.DELETE and found:
            await self._delete(len(owners), now)
        else:
            self._report_pause(0, len(owners))

    def _recognize(self, owners: Iterable[Owner], services: Iterable[Service]) -> None:
        """Remember for whom there is something, and see to those who no longer want it."""
        marked = {owner.uid for owner in owners}
        for service in services:
            uid = service.metadata.uid
            if uid not in marked or not is_evidence(service, self._tools.classes):
                continue
            note = self._tools.notes.of(uid)
            if not note.known and not self._tools.classes.serve(service):
                self._queue.add(uid, Priority.REFRESH)
            note.known = True

    def _not_in_hand(self, uids: Iterable[str]) -> frozenset[str]:
        """Those that are not being cleaned up at this moment."""
        notes = self._tools.notes
        return frozenset(
            uid
            for uid in uids
            if uid not in self._departed and ((note := notes.find(uid)) is None or not note.known)
        )

    def _report(self, found: frozenset[str], services: Iterable[Service]) -> None:
        self._tools.metrics.orphaned_balancers.set(len(found))
        about = KUBE_SYSTEM
        self._notices.keep([about, *map(about_service, services)])
        if not found or not found <= self._reported:
            self._notices.forget(about, Reason.ORPHANED)
        self._reported = frozenset(found)
        if not found:
            return
        names = ", ".join(sorted(found)[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        text = f"Load balancers without a Service, marked as this cluster's: {names}{more}"
        log.warning("Orphaned load balancers", count=len(found), owners=names + more)
        self._notices.warn(
            about, Reason.ORPHANED, f"{text} (see pileus orphans, --service-orphans)"
        )

    def _report_pause(self, orphans: int, owners: int) -> None:
        """Report whether orphans are kept because they are too many."""
        is_paused = are_too_many(orphans, owners)
        self._tools.metrics.orphan_deletion_paused.set(is_paused)
        if not is_paused:
            self._notices.forget(KUBE_SYSTEM, Reason.PAUSED)
            return
        text = (
            f"{orphans} of {owners} load balancers have no Service, and at most "
            f"{max(FEW, int(MOST * owners))} may: none is deleted. "
            "List and delete them: pileus orphans"
        )
        self._notices.warn(KUBE_SYSTEM, Reason.PAUSED, text)

    async def _delete(self, owners: int, now: float) -> None:
        """Raises `KubeError` if the Services cannot be listed."""
        self._report_pause(len(self._since), owners)
        seen = {each.metadata.uid for each in self._tools.cluster.services()}
        if not deletable(self._since, owners, now, seen):
            log.warning("No orphan is deleted now: too young, or too many at once")
            return
        listed = {each.metadata.uid for each in await self._tools.cluster.list_services()}
        for uid in deletable(self._since, owners, now, listed):
            log.info("Deleting an orphaned load balancer", owner=uid)
            self._departed.add_orphan(uid)
            self._queue.add(uid, Priority.REFRESH)
