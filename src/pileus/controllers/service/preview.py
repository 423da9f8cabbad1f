"""What the passes over Services would change, told instead of done. Reads only.

Service ──course──▶ wish ──look──▶ the passes' own decisions ──▶ lines of a plan
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.departed import deleted_service
from pileus.controllers.service.orphans import (
    GRACE,
    Policy,
    SweepSettings,
    are_too_many,
    is_evidence,
    rounds,
    unwanted,
)
from pileus.controllers.service.plan import (
    FINALIZER,
    Finalizer,
    Leave,
    Puzzled,
    Serve,
    Telling,
    Withdraw,
    Write,
    claim,
    course,
    is_busy,
    loses_too_many,
    needs_claim,
    noted,
    published,
    released,
    unclaimed,
)
from pileus.controllers.service.seeing import look_at, look_back
from pileus.controllers.service.status import (
    CONDITION,
    SERVED,
    condition_of,
    published_ingress,
    served_class,
    verdict_of,
)
from pileus.controllers.service.teller import KUBE_SYSTEM, about_service
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.trouble import message_of, reason_of
from pileus.controllers.service.wish import Refusal, farewell_of
from pileus.controllers.service.workshop import Look, check_health
from pileus.kube.model.core_v1 import LoadBalancerIngress, Service
from pileus.objects.planned import Place, Planned, Scope, Trouble
from pileus.telemetry.quoting import quote

AFTER = "the changes in the cloud"
SECOND_LOOK = "a second look at the nodes: many members would go at once"
ORPHANED = "orphaned: no Service has this UID (--service-orphans=delete)"
TOO_MANY_ORPHANS = "TooManyOrphans"
BUSY = "the cloud, which is at work on the balancer"

Line = Planned | Trouble


@dataclass(frozen=True, slots=True)
class ServicePreview:
    """The plan of this controller for Services as they are seen now."""

    tools: Tools
    clock: Clock
    sweep: SweepSettings

    async def of(self, scope: Scope) -> Sequence[Line]:
        """One line per change in the cloud and write to the cluster; and why some cannot be.

        Errors: `CloudError`, if the cloud cannot be asked at all.
        """
        found = [each for each in self.tools.cluster.services() if scope.has(about_service(each))]
        marked = await self.tools.workshop.owners(self.tools.wishing.cluster)
        uids = frozenset(owner.uid for owner in marked)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._lines(each, is_marked=each.metadata.uid in uids))
                for each in sorted(found, key=lambda each: str(about_service(each)))
            ]
        orphaned = await self._orphans(uids) if not scope.kind else ()
        return [*(line for task in tasks for line in task.result()), *orphaned]

    async def _orphans(self, marked: frozenset[str]) -> Sequence[Line]:
        """Returns what the sweeper would delete. Raises `KubeError` if Services are unknown."""
        owners = [self.tools.wishing.owner(uid) for uid in marked]
        found = unwanted(owners, self.tools.cluster.services(), self.tools.classes)
        if self.sweep.policy is not Policy.DELETE or not found:
            return ()
        if are_too_many(len(found), len(marked)):
            return (Trouble(KUBE_SYSTEM, TOO_MANY_ORPHANS, _too_many(len(found), len(marked))),)
        listed = {each.metadata.uid for each in await self.tools.cluster.list_services()}
        batches = enumerate(rounds(found, len(marked), listed))
        return [
            line
            for number, batch in batches
            for uid in batch
            for line in await self._orphan(uid, GRACE + number * self.sweep.pause)
        ]

    async def _orphan(self, uid: str, seconds: float) -> Sequence[Line]:
        service, waits_for = deleted_service(uid), _sweep(seconds)
        try:
            look = await look_back(self.tools.workshop, self.tools.wishing.farewell(service))
        except CloudError as error:
            return (Trouble(about_service(service), reason_of(error), message_of(error)),)
        return [
            replace(each, details=(ORPHANED,))
            for each in _cloud(service, look, Mode.FULL, waits_for)
        ]

    async def _lines(self, service: Service, *, is_marked: bool) -> Sequence[Line]:
        known = is_marked and is_evidence(service, self.tools.classes)
        try:
            match course(service, self.tools.classes, known=known):
                case Leave():
                    return ()
                case Puzzled(message):
                    raise Misconfigured(message)
                case Serve(mode):
                    return list(await self._serve(service, mode))
                case Withdraw(mode):
                    return list(await self._withdraw(service, mode))
        except CloudError as error:
            return (Trouble(about_service(service), reason_of(error), message_of(error)),)

    async def _serve(self, service: Service, mode: Mode) -> Iterator[Planned]:
        wish = self.tools.wishing.wish(service, self.tools.membership.now())
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        look = await look_at(self.tools.workshop, service, wish, deep=True)
        check_health(look)
        return self._served(service, look, mode)

    def _served(self, service: Service, look: Look, mode: Mode) -> Iterator[Planned]:
        at_stake = bool(look.left(mode)) or look.balancer is not None
        if needs_claim(service, mode, at_stake=at_stake):
            yield _write(service, claim(service, self.clock.now()))
        is_held = loses_too_many(look.balancer, look.members)
        yield from _cloud(service, look, mode, SECOND_LOOK if is_held else "")
        if look.left(mode) or is_busy(look.balancer):
            if not published_ingress(service):
                waits_for = AFTER if look.left(mode) else BUSY
                yield _planned(service, "addresses of the load balancer", waits_for=waits_for)
            return
        verdict = verdict_of(look.balancer, mode, look.members)
        telling = Telling(self.clock.now())
        write = published(service, look.balancer, verdict, telling)
        if mode.writes:
            write = noted(write, service, telling.now)
        write = unclaimed(write, service, mode)
        if write:
            yield _write(service, write)

    async def _withdraw(self, service: Service, mode: Mode) -> Iterator[Planned]:
        wish = farewell_of(self.tools.wishing, service, mode)
        look = await look_back(self.tools.workshop, wish) if wish else None
        return _withdrawn(service, look, mode)


def _sweep(seconds: float) -> str:
    is_first = seconds <= GRACE
    return f"a {'second' if is_first else 'further'} check, at least {seconds:g} s after the first"


def _too_many(orphans: int, owners: int) -> str:
    return (
        f"{orphans} of {owners} load balancers with the mark of this cluster have no Service: so "
        "many look like a mistake, and none is deleted. Run pileus orphans to list them, and "
        "pileus orphans --delete if they are to go"
    )


def _withdrawn(service: Service, look: Look | None, mode: Mode) -> Iterator[Planned]:
    if look is not None:
        yield from _cloud(service, look, mode, "")
    write = released(service, mode)
    if write:
        is_first = look is not None and bool(look.left(mode))
        yield _write(service, write, waits_for=AFTER if is_first else "")


def _cloud(service: Service, look: Look, mode: Mode, waits_for: str) -> Iterator[Planned]:
    for change in look.left(mode):
        yield Planned(
            about=about_service(service),
            place=Place.CLOUD,
            effect=change.effect,
            summary=change.summary,
            waits_for=waits_for,
        )


def _write(service: Service, write: Write, *, waits_for: str = "") -> Planned:
    parts = dict(_parts(service, write))
    return _planned(service, ", ".join(parts), details=tuple(parts.values()), waits_for=waits_for)


def _planned(
    service: Service, summary: str, *, details: tuple[str, ...] = (), waits_for: str = ""
) -> Planned:
    return Planned(
        about=about_service(service),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=summary,
        details=details,
        waits_for=waits_for,
    )


def _parts(service: Service, write: Write) -> Iterator[tuple[str, str]]:
    """What the write is about, and the field of it before and after."""
    if write.finalizer is not None:
        word = "with" if write.finalizer is Finalizer.ADD else "without"
        yield "finalizer", f"metadata.finalizers: {word} {FINALIZER}"
    if write.ingress is not None:
        change = f"{_addresses(published_ingress(service))} → {_addresses(write.ingress)}"
        yield "addresses", f"status.loadBalancer.ingress: {change}"
    before = condition_of(service)
    state = quote(before.status if before else "")
    if write.condition is not None:
        after = f"{quote(write.condition.status)} ({write.condition.reason})"
        yield f"condition {CONDITION}", f"status.conditions[{CONDITION}]: {state} → {after}"
    elif CONDITION in write.drops:
        yield f"condition {CONDITION}", f"status.conditions[{CONDITION}]: {state} → none"
    if write.served is not None and write.finalizer is None:  # else it comes with the finalizer
        change = f"{quote(served_class(service) or '')} → {quote(write.served.message)}"
        yield f"condition {SERVED}", f"status.conditions[{SERVED}].message: {change}"


def _addresses(ingress: Sequence[LoadBalancerIngress]) -> str:
    return ", ".join(map(_address, ingress)) or "none"


def _address(ingress: LoadBalancerIngress) -> str:
    names = "/".join(filter(None, (ingress.ip, ingress.hostname)))
    failed = [f"{one.port}/{one.protocol} {one.error}" for one in ingress.ports or () if one.error]
    return f"{names} ({'; '.join(failed)})" if failed else names
