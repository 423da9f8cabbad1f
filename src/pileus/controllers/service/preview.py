"""The plan of this controller as `pileus plan` shows it. Reads only.

Plans are made by the same functions as those of passes and sweeps, from a process that remembers
nothing. Reading steps are performed; all others are turned into lines, in one place: `lines.py`.
"""

import asyncio
from collections.abc import Iterable, Sequence

from pileus.clock import Clock
from pileus.cloud.balancer import Part
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import member_scope
from pileus.controllers.service.events import (
    KUBE_SYSTEM,
    about_service,
)
from pileus.controllers.service.lines import Line, lines, trouble
from pileus.controllers.service.notes import Note, orphaned_owner
from pileus.controllers.service.observation import BalancerOperations, Deleted, Observation
from pileus.controllers.service.orphans import (
    GRACE,
    DeleteOrphan,
    Policy,
    ReportOrphans,
    Sweep,
    SweepSettings,
    is_evidence,
    plan_sweep,
    too_many,
)
from pileus.controllers.service.plan import BalancerFailed, Rules, plan, report
from pileus.controllers.service.reconciler import Parts
from pileus.controllers.service.steps import (
    ApplyChanges,
    CheckBalancer,
    KeepMembers,
    Plan,
    Publish,
    Report,
    Settle,
)
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Service
from pileus.objects.preview import Planned, Scope, Trouble

ORPHANED = "orphaned: no Service has this UID (--service-orphans=delete)"
TOO_MANY_ORPHANS = "TooManyOrphans"
DRIFT = "the next full check of the load balancer (--service-drift-period)"

REPAIRS = KeepMembers | ApplyChanges | Publish


@dataclass(frozen=True, slots=True)
class ServicePreview:
    """The plan for all Services in their current state."""

    parts: Parts
    sweep: SweepSettings
    repairs_drift: bool
    """Whether there are full checks."""

    async def of(self, scope: Scope) -> Sequence[Line]:
        """Returns one line per change in the cloud and per write to the cluster, and all troubles.

        Raises CloudError if the cloud cannot be asked at all.
        """
        parts = self.parts
        found = [each for each in parts.cluster.services() if scope.has(about_service(each))]
        owners = await parts.balancers.owners(parts.rules.desires.cluster)
        uids = frozenset(owner.uid for owner in owners)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._of_service(each, has_owner=each.metadata.uid in uids))
                for each in sorted(found, key=lambda each: str(about_service(each)))
            ]
        orphaned = await self._of_sweep(uids) if not scope.kind else ()
        return [*(line for task in tasks for line in task.result()), *orphaned]

    async def _of_service(self, service: Service, *, has_owner: bool) -> Sequence[Line]:
        """Returns the lines of a pass, and those of the next full check if nothing else is due."""
        finds_owners = self.sweep.policy is not Policy.IGNORE
        known = finds_owners and has_owner and is_evidence(service, self.parts.rules.classes)
        seen = self._observation(service, Note(known=known))
        try:
            _, steps = await self._plan(seen)
            found = [*lines(service, steps)]
            if self.repairs_drift and _is_unchanged(steps):
                full = replace(seen, note=replace(seen.note, full_check_due=seen.time))
                _, drift = await self._plan(full)
                drift = tuple(each for each in drift if isinstance(each, REPAIRS))
                return [*found, *_further(found, lines(service, drift, waits_for=DRIFT))]
        except CloudError as error:
            return [*lines(service, (report(seen, error),))]
        return found

    def _observation(self, service: Service, note: Note) -> Observation:
        return Observation(
            service=service,
            note=note,
            time=asyncio.get_running_loop().time(),
            date=self.parts.clock.now(),
            members=self.parts.membership.now(member_scope(service)),
        )

    async def _plan(self, seen: Observation) -> tuple[Observation, Plan]:
        return await checked_plan(self.parts.rules, self.parts.balancers, seen)

    async def _of_sweep(self, owners: frozenset[str]) -> Sequence[Line]:
        """Returns what sweeps would delete. Raises KubeError if Services cannot be listed."""
        sweep = Sweep(
            owners=owners,
            services=self.parts.cluster.services(),
            classes=self.parts.rules.classes,
            first_seen={},
            now=0.0,
            settings=self.sweep,
        )
        steps = plan_sweep(sweep)
        if any(isinstance(step, DeleteOrphan) for step in steps):
            listed = {each.metadata.uid for each in await self.parts.cluster.list_services()}
            steps = plan_sweep(replace(sweep, listed=frozenset(listed)))
        found: list[Line] = []
        for step in steps:
            if isinstance(step, ReportOrphans) and step.is_paused:
                text = too_many(len(step.uids), step.owners)
                found.append(Trouble(KUBE_SYSTEM, TOO_MANY_ORPHANS, text))
            elif isinstance(step, DeleteOrphan):
                found += await self._of_orphan(step)
        return found

    async def _of_orphan(self, step: DeleteOrphan) -> Sequence[Line]:
        seen = orphan_observation(step.uid, self.parts.clock)
        is_first = step.seconds <= GRACE
        name = "second" if is_first else "further"
        waits_for = f"a {name} check, at least {step.seconds:g} s after the first"
        try:
            _, steps = await self._plan(seen)
        except CloudError as error:
            return [trouble(seen.service, error)]
        return [*lines(seen.service, steps, waits_for=waits_for, details=(ORPHANED,))]


def orphan_observation(uid: str, clock: Clock) -> Observation:
    """Returns what the clean-up of an orphan is planned from: nothing but the tag is known."""
    return Observation(
        service=orphaned_owner(uid),
        time=asyncio.get_running_loop().time(),
        date=clock.now(),
        deleted=Deleted(since=0.0),
    )


async def checked_plan(
    rules: Rules, balancers: BalancerOperations, seen: Observation
) -> tuple[Observation, Plan]:
    """Returns the plan after the load balancer was checked, and what it is made from.

    Records of the provider about a load balancer that is already as desired are left out: the next
    full check writes them. Raises CloudError.
    """
    steps = plan(rules, seen)
    while steps and isinstance(check := steps[0], CheckBalancer):
        observed = await balancers.check_or(check.desired, check.fallback, full=check.full)
        shown = tuple(one for one in observed.changes if one.part is not Part.RECORD)
        seen = replace(seen, balancer=replace(observed, changes=shown))
        steps = plan(rules, seen)
    return seen, steps


def _further(found: Sequence[Line], later: Iterable[Line]) -> Sequence[Line]:
    """Returns the later lines without those that are due at once."""
    known = {replace(each, waits_for="") for each in found if isinstance(each, Planned)}
    return [
        each
        for each in later
        if not isinstance(each, Planned) or replace(each, waits_for="") not in known
    ]


def _is_unchanged(steps: Plan) -> bool:
    """Returns whether a quick check found nothing to change or to wait for."""
    return any(
        isinstance(step, Settle)
        or (isinstance(step, Report) and isinstance(step.error, BalancerFailed))
        for step in steps
    )
