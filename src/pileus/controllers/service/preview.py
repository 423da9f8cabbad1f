"""The plan of this controller as `pileus plan` shows it. Reads only.

Plans are made by the same functions as those of passes and sweeps, from a process that remembers
nothing. Reading steps are performed; all others are turned into lines, in one place: `lines`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import ENSURED, member_scope
from pileus.controllers.service.events import (
    KUBE_SYSTEM,
    PATIENCE,
    about_service,
    is_reported_at_once,
    message_of,
    reason_of,
)
from pileus.controllers.service.notes import Note, orphaned_owner
from pileus.controllers.service.observation import Deleted, Observation
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
from pileus.controllers.service.plan import SECOND_CHECK, BalancerFailed, plan, report
from pileus.controllers.service.reconciler import Parts
from pileus.controllers.service.status import (
    FINALIZER,
    Finalizer,
    Write,
    condition_of,
    published_ingress,
)
from pileus.controllers.service.steps import (
    AddFinalizer,
    ApplyChanges,
    CheckAgain,
    CheckBalancer,
    CheckNodes,
    ConfirmDeletion,
    Forget,
    KeepAsOrphans,
    KeepMembers,
    Plan,
    Publish,
    RemoveFinalizer,
    Report,
    Settle,
    Wait,
    WaitForFormer,
)
from pileus.kube.model.core_v1 import LoadBalancerIngress, Service
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote

AFTER = "the changes in the cloud"
BY_CLOUD = "set by the cloud"
"""A value that is known only after the changes in the cloud."""
SECOND_NODES = "a second check of the nodes: many members would be removed at once"
MISSING = f"a second check that finds nothing, {SECOND_CHECK:g} s after the first"
ORPHANED = "orphaned: no Service has this UID (--service-orphans=delete)"
TOO_MANY_ORPHANS = "TooManyOrphans"
BUSY = "the cloud, which is working on the load balancer"
LONG = f"the cloud, if it works on the load balancer for more than {PATIENCE:g} s"
LASTS = f"the failure to last for {PATIENCE:g} s"
DRIFT = "the next full check of the load balancer (--service-drift-period)"

ON_CLOUD = KeepMembers | ApplyChanges
Line = Planned | Trouble


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
            steps = await self._plan(seen)
            found = lines(service, steps)
            if self.repairs_drift and _is_unchanged(steps):
                full = replace(seen, note=replace(seen.note, full_check_due=seen.time))
                drift = tuple(each for each in await self._plan(full) if isinstance(each, ON_CLOUD))
                return [*found, *lines(service, drift, waits_for=DRIFT)]
        except CloudError as error:
            return [*lines(service, (report(seen, error),))]
        return [*found]

    def _observation(self, service: Service, note: Note) -> Observation:
        return Observation(
            service=service,
            note=note,
            time=asyncio.get_running_loop().time(),
            date=self.parts.clock.now(),
            members=self.parts.membership.now(member_scope(service)),
        )

    async def _plan(self, seen: Observation) -> Plan:
        """Returns the plan after the load balancer was checked. Raises CloudError."""
        steps = plan(self.parts.rules, seen)
        while steps and isinstance(check := steps[0], CheckBalancer):
            balancers = self.parts.balancers
            observed = await balancers.check_or(check.desired, check.fallback, full=check.full)
            seen = replace(seen, balancer=observed)
            steps = plan(self.parts.rules, seen)
        return steps

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
        service = orphaned_owner(step.uid)
        seen = replace(self._observation(service, Note()), deleted=Deleted(since=0.0))
        is_first = step.seconds <= GRACE
        name = "second" if is_first else "further"
        waits_for = f"a {name} check, at least {step.seconds:g} s after the first"
        try:
            steps = await self._plan(seen)
        except CloudError as error:
            return [_trouble(service, error)]
        return [*lines(service, steps, waits_for=waits_for, details=(ORPHANED,))]


def _is_unchanged(steps: Plan) -> bool:
    """Returns whether a quick check found nothing to change or to wait for."""
    return any(
        isinstance(step, Settle)
        or (isinstance(step, Report) and isinstance(step.error, BalancerFailed))
        for step in steps
    )


def lines(  # noqa: C901, PLR0912 -- one case per step
    service: Service, steps: Plan, waits_for: str = "", details: tuple[str, ...] = ()
) -> Iterator[Line]:
    """Yield the lines of a plan: one per change in the cloud and per write to the Service.

    `waits_for`: what has to happen before the first step; each step may be waited for by the next.
    """
    for step in steps:
        match step:
            case ApplyChanges(changes):
                for change in changes:
                    yield Planned(
                        about=about_service(service),
                        place=Place.CLOUD,
                        effect=change.effect,
                        summary=change.summary,
                        details=details,
                        waits_for=waits_for,
                    )
                waits_for = AFTER
            case AddFinalizer(write) | RemoveFinalizer(write) | WaitForFormer(write):
                yield from _written(service, write, waits_for)
            case Publish(write, new_addresses):
                yield from _written(service, write, waits_for, new_addresses=new_addresses)
            case Wait(write=write):
                yield from _written(service, write, LONG)
                waits_for = BUSY
            case Report(error, write):
                yield _trouble(service, error)
                soon = is_reported_at_once(error)
                yield from _written(service, write, "" if soon else LASTS)
            case KeepMembers() | CheckNodes():
                waits_for = SECOND_NODES
            case CheckAgain():
                waits_for = MISSING
            case CheckBalancer() | ConfirmDeletion() | KeepAsOrphans() | Settle() | Forget():
                pass
            case _:
                assert_never(step)


def _trouble(service: Service, error: CloudError) -> Trouble:
    return Trouble(about_service(service), reason_of(error), message_of(error))


def _written(
    service: Service, write: Write, waits_for: str, *, new_addresses: bool = False
) -> Iterator[Planned]:
    """Yield the line of one write: what it is about, with each field before and after."""
    parts = dict(_parts(service, write))
    if new_addresses:
        before = _addresses(published_ingress(service))
        parts["addresses"] = f"status.loadBalancer.ingress: {before} → {BY_CLOUD}"
    if parts:
        yield Planned(
            about=about_service(service),
            place=Place.CLUSTER,
            effect=Effect.UPDATE,
            summary=", ".join(parts),
            details=tuple(parts.values()),
            waits_for=waits_for,
        )


def _parts(service: Service, write: Write) -> Iterator[tuple[str, str]]:
    if write.finalizer is not None:
        word = "with" if write.finalizer is Finalizer.ADD else "without"
        yield "finalizer", f"metadata.finalizers: {word} {FINALIZER}"
    if write.ingress is not None:
        change = f"{_addresses(published_ingress(service))} → {_addresses(write.ingress)}"
        yield "addresses", f"status.loadBalancer.ingress: {change}"
    for new in filter(None, (write.condition, write.served)):
        before = condition_of(service, new.type)
        yield f"condition {new.type}", condition_detail(new.type, before, new)
    if write.record is not None:
        yield f"annotation {ENSURED}", f"metadata.annotations[{ENSURED}]: {quote(write.record)}"
    for kind in write.drops:
        before = condition_of(service, kind)
        yield f"condition {kind}", condition_detail(kind, before, None)


def _addresses(ingress: Sequence[LoadBalancerIngress]) -> str:
    return ", ".join(map(_address, ingress)) or "none"


def _address(ingress: LoadBalancerIngress) -> str:
    names = "/".join(filter(None, (ingress.ip, ingress.hostname)))
    failed = [f"{one.port}/{one.protocol} {one.error}" for one in ingress.ports or () if one.error]
    return f"{names} ({'; '.join(failed)})" if failed else names
