"""Renders the steps of a pass as lines of a plan, for `pileus plan` and for the journal."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from pileus.cloud.balancer import Balancer, Effect
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import annotation
from pileus.controllers.service.events import (
    PATIENCE,
    about_service,
    is_reported_at_once,
    message_of,
    reason_of,
)
from pileus.controllers.service.plan import LAST_CHECK, SECOND_CHECK
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
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.preview import Place, Planned, Trouble, condition_detail
from pileus.settings.go_quote import quote

AFTER = "the changes in the cloud"
BY_CLOUD = "set by the cloud"
"""A value that is known only after the changes in the cloud."""
SECOND_NODES = "a second check of the nodes: many members would be removed at once"
MISSING = f"a second check that finds nothing, {SECOND_CHECK:g} s after the first"
LAST = f"a check that finds nothing, {LAST_CHECK:g} s after the deletion"
BUSY = "the cloud, which is working on the load balancer"
LONG = f"the cloud, if it works on the load balancer for more than {PATIENCE:g} s"
LASTS = f"the failure to last for {PATIENCE:g} s"

Line = Planned | Trouble


def lines(
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
                yield trouble(service, error)
                soon = is_reported_at_once(error)
                yield from _written(service, write, "" if soon else LASTS)
            case KeepMembers() | CheckNodes():
                waits_for = SECOND_NODES
            case CheckAgain(is_missing=is_missing):
                waits_for = MISSING if is_missing else LAST
            case CheckBalancer() | ConfirmDeletion() | KeepAsOrphans() | Settle() | Forget():
                pass
            case _:
                assert_never(step)


def record_service(service: Service) -> None:
    """Record in the journal that the current pass is about this Service."""
    record_observation(about_service(service))


def record_balancer(service: Service, balancer: Balancer | None) -> None:
    """Record in the journal what was observed in the cloud."""
    record_observation(about_service(service), balancer_text(balancer))


def record_steps(service: Service, steps: Plan) -> None:
    """Record a plan in the journal."""
    record_plan(lines(service, steps))


def balancer_text(balancer: Balancer | None) -> str:
    """Returns an observed load balancer in one line."""
    if balancer is None:
        return "no load balancer"
    addresses = ", ".join(each.ip or each.hostname for each in balancer.ingress)
    members = None if balancer.members is None else f"{balancer.members} members"
    parts = filter(None, (balancer.state, addresses, members, balancer.problem))
    return f"load balancer {balancer.id}: {', '.join(parts)}"


def trouble(service: Service, error: CloudError) -> Trouble:
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
    for name, value in write.annotations.items():
        change = f"{_quoted(annotation(service, name), 'none')} → {_quoted(value, 'removed')}"
        yield f"annotation {name}", f"metadata.annotations[{name}]: {change}"
    for kind in write.drops:
        before = condition_of(service, kind)
        yield f"condition {kind}", condition_detail(kind, before, None)


def _quoted(value: str | None, missing: str) -> str:
    return missing if value is None else quote(value)


def _addresses(ingress: Sequence[LoadBalancerIngress]) -> str:
    return ", ".join(map(_address, ingress)) or "none"


def _address(ingress: LoadBalancerIngress) -> str:
    names = "/".join(filter(None, (ingress.ip, ingress.hostname)))
    failed = [f"{one.port}/{one.protocol} {one.error}" for one in ingress.ports or () if one.error]
    return f"{names} ({'; '.join(failed)})" if failed else names
