"""What the passes over Services would change, told instead of done. Reads only.

Service ──course──▶ wish ──look──▶ the passes' own decisions ──▶ lines of a plan
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pileus.clock import Clock
from pileus.cloud.balancer import Balancer, BalancerState, Effect, record_of
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.controllers.service.annotations import ENSURED, Mode
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
    Outcome,
    Puzzled,
    Record,
    Serve,
    Telling,
    Withdraw,
    Write,
    claim,
    course,
    expected,
    is_unready,
    loses_too_many,
    needs_claim,
    publication,
    release,
    told,
)
from pileus.controllers.service.seeing import look_at, look_back
from pileus.controllers.service.status import Verdict, condition_of, pending, published_ingress
from pileus.controllers.service.teller import KUBE_SYSTEM, PATIENCE, about_service
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.trouble import (
    is_reported_at_once,
    message_of,
    reason_of,
    verdict_on,
)
from pileus.controllers.service.wish import Refusal, farewell_of
from pileus.controllers.service.withdrawing import SECOND_LOOK as RELEASE
from pileus.controllers.service.withdrawing import is_doubtful, is_unfinished
from pileus.controllers.service.workshop import Look, check_health
from pileus.kube.model.core_v1 import LoadBalancerIngress, Service
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote

AFTER = "the changes in the cloud"
BY_CLOUD = "set by the cloud"
"""A value that is known only after the changes in the cloud."""
SECOND_LOOK = "a second look at the nodes: many members would go at once"
ORPHANED = "orphaned: no Service has this UID (--service-orphans=delete)"
TOO_MANY_ORPHANS = "TooManyOrphans"
BUSY = "the cloud, which is at work on the balancer"
LONG = f"the cloud, if it is at work on the balancer for more than {PATIENCE:g} s"
DRIFT = "the next full check of the balancer (--service-drift-period)"

Line = Planned | Trouble


@dataclass(frozen=True, slots=True)
class ServicePreview:
    """The plan of this controller for Services as they are seen now."""

    tools: Tools
    clock: Clock
    sweep: SweepSettings
    repairs_drift: bool
    """Whether there are full checks at all."""

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
        finds_marks = self.sweep.policy is not Policy.IGNORE
        known = finds_marks and is_marked and is_evidence(service, self.tools.classes)
        try:
            match course(service, self.tools.classes, known=known):
                case Leave():
                    return ()
                case Puzzled(message):
                    raise Misconfigured(message)
                case Serve(mode):
                    return await self._serve(service, mode)
                case Withdraw(mode):
                    return await self._withdraw(service, mode)
        except CloudError as error:
            return self._failed(service, error)

    def _failed(self, service: Service, error: CloudError) -> Sequence[Line]:
        """Returns why nothing can be done, and the write that reports it on the Service."""
        trouble = Trouble(about_service(service), reason_of(error), message_of(error))
        waits_for = "" if is_reported_at_once(error) else f"the failure to last for {PATIENCE:g} s"
        return trouble, *self._told(service, verdict_on(error), waits_for)

    def _told(self, service: Service, verdict: Verdict, waits_for: str) -> Iterator[Planned]:
        write = told(service, verdict, Telling(self.clock.now()))
        if write:
            yield _write(service, write, waits_for=waits_for)

    async def _serve(self, service: Service, mode: Mode) -> Sequence[Line]:
        """A pass makes a quick check first; what only a full check finds waits for that."""
        wish = self.tools.wishing.wish(service, self.tools.membership.now())
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        look = await look_at(self.tools.workshop, service, wish, deep=False)
        if look.left(mode) or is_unready(look.balancer):
            return [*self._served(service, look, mode)]
        try:
            check_health(look)
            lines: Sequence[Line] = [*self._served(service, look, mode)]
        except CloudError as error:
            lines = self._failed(service, error)
        if not self.repairs_drift:
            return lines
        deep = await look_at(self.tools.workshop, service, wish, deep=True)
        return [*lines, *_cloud(service, deep, mode, _held(deep) or DRIFT)]

    def _served(self, service: Service, look: Look, mode: Mode) -> Iterator[Planned]:
        left = look.left(mode)
        waits_for = AFTER if left else BUSY if is_unready(look.balancer) else ""
        if waits_for == BUSY:
            yield from self._told(service, pending(""), LONG)
        if needs_claim(service, mode, at_stake=bool(left) or look.balancer is not None):
            write = claim(service, self.clock.now())
            yield _write(service, write, waits_for=BUSY if waits_for == BUSY else "")
            service = expected(service, write)
        yield from _cloud(service, look, mode, _held(look))
        yield from self._published(service, look, mode, waits_for)

    def _published(
        self, service: Service, look: Look, mode: Mode, waits_for: str
    ) -> Iterator[Planned]:
        """Yields the last write of a pass, if the changes before it succeed."""
        balancer, telling = look.balancer, Telling(self.clock.now())
        if waits_for:
            new = Balancer(id="", state=BalancerState.READY)
            balancer = replace(balancer, state=BalancerState.READY) if balancer else new
        record = Record(None if waits_for else record_of(look.seen))
        write = publication(service, Outcome(balancer, look.members, record), mode, telling)
        parts = dict(_parts(service, write))
        is_moved = any(change.effect is Effect.REPLACE for change in look.left(mode))
        if waits_for and balancer and (is_moved or not balancer.ingress):
            before = _addresses(published_ingress(service))
            parts["addresses"] = f"status.loadBalancer.ingress: {before} → {BY_CLOUD}"
        if parts:
            yield _planned(service, parts, waits_for)

    async def _withdraw(self, service: Service, mode: Mode) -> Sequence[Line]:
        wish = farewell_of(self.tools.wishing, service, mode)
        look = await look_back(self.tools.workshop, wish) if wish else None
        lines: list[Line] = [*_cloud(service, look, mode, "")] if look else []
        waits_for = AFTER if lines else ""
        if look is not None and not lines and is_unfinished(look, mode):
            lines += self._told(service, pending(""), LONG)
            waits_for = BUSY
        elif not lines and is_doubtful(service, look):
            waits_for = f"a second look that finds nothing, {RELEASE:g} s after the first"
        write = release(service, self.tools.classes, mode)
        return [*lines, _write(service, write, waits_for=waits_for)] if write else lines


def _held(look: Look) -> str:
    return SECOND_LOOK if loses_too_many(look.balancer, look.members) else ""


def _sweep(seconds: float) -> str:
    is_first = seconds <= GRACE
    return f"a {'second' if is_first else 'further'} check, at least {seconds:g} s after the first"


def _too_many(orphans: int, owners: int) -> str:
    return (
        f"{orphans} of {owners} load balancers with the mark of this cluster have no Service: so "
        "many look like a mistake, and none is deleted. Run pileus orphans to list them, and "
        "pileus orphans --delete if they are to go"
    )


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
    return _planned(service, dict(_parts(service, write)), waits_for)


def _planned(service: Service, parts: Mapping[str, str], waits_for: str) -> Planned:
    """Returns one write: what it is about, with the field of it before and after."""
    return Planned(
        about=about_service(service),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=", ".join(parts),
        details=tuple(parts.values()),
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
