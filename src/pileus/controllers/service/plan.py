"""What is to be done for a Service: the decisions, without I/O, clock or chance.

    Service ──course──▶ Leave · Serve · Withdraw · Puzzled
    Serve:    look ──▶ claim (the finalizer) ──▶ changes, as far as the mode allows ──▶ publish
    Withdraw: look ──▶ changes until nothing is left ──▶ release (the finalizer)

The finalizer is there before the first change in the cloud, and goes after the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import TypeVar

from msgspec.structs import replace as replace_fields

from pileus.cloud.balancer import Balancer, BalancerState, Change, Part
from pileus.controllers.service.annotations import ENSURED, InvalidAnnotation, Mode, mode_of
from pileus.controllers.service.classes import Classes, class_of, is_load_balancer
from pileus.controllers.service.status import (
    CONDITION,
    SERVED,
    Verdict,
    condition,
    condition_of,
    ingress_of,
    is_same_ingress,
    published_ingress,
    served_as,
    served_class,
    verdict_of,
)
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceStatus,
)
from pileus.kube.model.meta import Condition

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

SHORTEST_CHECK = 1.0
"""Seconds; a provider that asks for less must not keep a worker busy."""

ChangeT = TypeVar("ChangeT", bound=Change)


@dataclass(frozen=True, slots=True)
class Leave:
    """It is not ours, and nothing in the cloud is there for it."""


@dataclass(frozen=True, slots=True)
class Serve:
    mode: Mode


@dataclass(frozen=True, slots=True)
class Withdraw:
    """It wants nothing from us any more; what is there for it goes, as far as the mode allows."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Puzzled:
    """It is ours, but what it says cannot be understood: all stays as it is."""

    message: str


Course = Leave | Serve | Withdraw | Puzzled


def course(service: Service, classes: Classes, *, known: bool) -> Course:
    """What to do for it. `known`: we have evidence of something in the cloud under its UID.

    A finalizer alone is no evidence: others use the same one.
    """
    deleting = service.metadata.deletion_timestamp is not None
    is_served = classes.serve(service) and not deleting
    may_be_ours = classes.may_have_served(service) or went_elsewhere(service, classes)
    is_left = known or (is_claimed(service) and may_be_ours)
    if not is_served and not is_left:
        return Leave()
    try:
        mode = mode_of(service)
    except InvalidAnnotation as error:
        return Puzzled(str(error))
    if is_served and mode is not Mode.NONE:
        return Serve(mode)
    return Withdraw(mode) if is_left else Leave()


def went_elsewhere(service: Service, classes: Classes) -> bool:
    """Whether it was served by us, or a predecessor, and has changed its class since.

    Not if it is noted under the class that it has: then another manager serves it, or a flag was
    changed, of which nothing follows for what is in the cloud.
    """
    noted = served_class(service)
    return noted not in {None, class_of(service)} and classes.has(noted or "")


def is_served_elsewhere(service: Service, classes: Classes) -> bool:
    """Whether another manager has noted that it serves it, under the class that it has now."""
    is_noted = is_load_balancer(service) and served_class(service) == class_of(service)
    return is_noted and not classes.serve(service)


def is_claimed(service: Service) -> bool:
    return FINALIZER in (service.metadata.finalizers or ())


def doable(changes: Sequence[ChangeT], mode: Mode) -> tuple[ChangeT, ...]:
    """Those of the changes that the mode allows."""
    match mode:
        case Mode.FULL:
            return tuple(changes)
        case Mode.MEMBERS:
            return tuple(change for change in changes if change.part is Part.MEMBERS)
        case Mode.OBSERVE | Mode.NONE:
            return ()


def needs_claim(service: Service, mode: Mode, *, at_stake: bool) -> bool:
    """Whether the finalizer must be set first; `at_stake`: something is there, or soon will be."""
    return mode.writes and at_stake and not is_claimed(service)


def only_members(changes: Sequence[Change]) -> bool:
    return bool(changes) and all(change.part is Part.MEMBERS for change in changes)


def loses_too_many(balancer: Balancer | None, wanted: int) -> bool:
    """Whether a balancer would be left with none, or with less than half, of its members.

    One that does not say how many it has may have many.
    """
    if balancer is None or balancer.members == 0:
        return False
    if balancer.members is None:
        return wanted == 0
    return wanted * 2 < balancer.members


def is_busy(balancer: Balancer | None) -> bool:
    """Whether the cloud is at work on it and refuses changes."""
    return balancer is not None and balancer.state is BalancerState.PENDING


def is_unready(balancer: Balancer | None) -> bool:
    """Whether the cloud is at work on it: nothing is published yet, and it is checked again."""
    unready = {BalancerState.PENDING, BalancerState.PROVISIONING}
    return balancer is not None and balancer.state in unready


def check_again_in(balancer: Balancer | None) -> float | None:
    """Returns the seconds after which a ready balancer is to be checked again; None: as usual."""
    if balancer is None or balancer.state is not BalancerState.READY:
        return None
    asked = balancer.check_again_in
    return None if asked is None else max(asked, SHORTEST_CHECK)


class Finalizer(Enum):
    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request that changes a Service; what is None or left out stays as it is."""

    finalizer: Finalizer | None = None
    ingress: tuple[LoadBalancerIngress, ...] | None = None
    condition: Condition | None = None
    served: Condition | None = None
    """The note of the class under which it is served."""
    drops: tuple[str, ...] = ()
    """Types of conditions that go."""
    record: str | None = None
    """The provider's record of what it built (annotation `pileus.dev/ensured`)."""
    only_this_version: bool = False
    """Whether it fails with a conflict if the Service has changed meanwhile."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Write()


@dataclass(frozen=True, slots=True)
class Telling:
    """What a condition is written with."""

    now: datetime
    reword: bool = True


def published(
    service: Service, balancer: Balancer | None, verdict: Verdict, telling: Telling
) -> Write:
    """Tell on the Service what it has got. Addresses of a balancer that is not ready stay."""
    is_ready = balancer is not None and balancer.state is BalancerState.READY
    wanted = ingress_of(balancer) if balancer is not None and is_ready else None
    if wanted is not None and is_same_ingress(published_ingress(service), wanted):
        wanted = None
    return replace_condition(Write(ingress=wanted), service, verdict, telling)


def told(service: Service, verdict: Verdict, telling: Telling) -> Write:
    """Tell why there is nothing better to tell."""
    return replace_condition(NOTHING, service, verdict, telling)


def replace_condition(write: Write, service: Service, verdict: Verdict, telling: Telling) -> Write:
    new = condition(condition_of(service), verdict, telling.now, reword=telling.reword)
    return replace(write, condition=new)


def claim(service: Service, now: datetime) -> Write:
    """Set the finalizer, on a Service that is not on its way out; and note its class."""
    return Write(finalizer=Finalizer.ADD, served=served_as(service, now), only_this_version=True)


def noted(write: Write, service: Service, now: datetime) -> Write:
    """The same write with the note of its class, where that is wrong; or missing, at no cost."""
    is_wrong = served_class(service) is not None
    if not is_claimed(service) or not (write or is_wrong):
        return write
    return replace(write, served=served_as(service, now))


@dataclass(frozen=True, slots=True)
class Record:
    """The provider's record of what it built."""

    text: str | None = None
    """None keeps what is there."""
    is_new: bool = False
    """Whether something was changed in this pass, in the course of which the record that we see on
    the Service may have been removed."""


def recorded(write: Write, service: Service, record: Record) -> Write:
    """Returns the same write with the provider's record, unless the Service has it already."""
    has = (service.metadata.annotations or {}).get(ENSURED)
    is_there = record.text == has and not record.is_new
    return write if record.text is None or is_there else replace(write, record=record.text)


def unclaimed(write: Write, service: Service, mode: Mode) -> Write:
    """The same write, taking the finalizer off where nothing in the cloud is changed by us.

    If the Service says otherwise meanwhile, its balancer is to be guarded again.
    """
    if mode.writes or not is_claimed(service):
        return write
    drops = _present(service, SERVED)
    return replace(write, finalizer=Finalizer.REMOVE, drops=drops, only_this_version=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass ends with when nothing is left to change or to wait for."""

    balancer: Balancer | None
    members: int
    record: Record = Record()


def publication(service: Service, outcome: Outcome, mode: Mode, telling: Telling) -> Write:
    """Returns the last write of a pass: addresses, condition and class, or no finalizer."""
    verdict = verdict_of(outcome.balancer, mode, outcome.members)
    write = published(service, outcome.balancer, verdict, telling)
    if mode.writes:
        write = recorded(noted(write, service, telling.now), service, outcome.record)
    return unclaimed(write, service, mode)


def release(service: Service, classes: Classes, mode: Mode) -> Write:
    """Returns the last write to a Service that is no longer served.

    A Service that another manager serves by now is left to that one, with its finalizer.
    """
    return NOTHING if is_served_elsewhere(service, classes) else released(service, mode)


def released(service: Service, mode: Mode) -> Write:
    """The end: nothing in the cloud is there for it any more, or what is stays on purpose.

    What stays does so by the Service's word, which may change at the same moment; and whoever
    serves the class that it has now may claim it: then all has to be decided anew.
    """
    is_others = is_load_balancer(service) and served_class(service) not in {None, class_of(service)}
    is_gone = mode is Mode.FULL and bool(published_ingress(service))
    return Write(
        finalizer=Finalizer.REMOVE if is_claimed(service) else None,
        ingress=() if is_gone else None,
        drops=_present(service, CONDITION, SERVED),
        only_this_version=is_others or (mode is not Mode.FULL and is_claimed(service)),
    )


def _present(service: Service, *kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if condition_of(service, kind))


def is_worth_a_pass(old: Service, new: Service) -> bool:
    """Whether a pass over `new` may do anything that one over `old` would not."""
    return _looked_at(old) != _looked_at(new)


def expected(service: Service, write: Write) -> Service:
    """Return the Service as a write leaves it, if no one else writes."""
    finalizers = service.metadata.finalizers or ()
    match write.finalizer:
        case Finalizer.ADD if FINALIZER not in finalizers:
            finalizers = (*finalizers, FINALIZER)
        case Finalizer.REMOVE:
            finalizers = tuple(each for each in finalizers if each != FINALIZER)
        case _:
            pass
    metadata = replace_fields(service.metadata, finalizers=finalizers)
    status = service.status or ServiceStatus()
    written = tuple(each for each in (write.condition, write.served) if each is not None)
    gone = {*write.drops, *(each.type for each in written)}
    kept = tuple(each for each in status.conditions or () if each.type not in gone)
    if written or gone:
        status = replace_fields(status, conditions=(*kept, *written))
    if write.ingress is not None:
        status = replace_fields(status, load_balancer=LoadBalancerStatus(ingress=write.ingress))
    return replace_fields(service, metadata=metadata, status=status)


def _looked_at(service: Service) -> tuple[object, ...]:
    return *_asked(service), service.metadata.finalizers or (), published_ingress(service)


def _asked(service: Service) -> tuple[object, ...]:
    metadata = service.metadata
    annotations = {k: v for k, v in (metadata.annotations or {}).items() if k != ENSURED}
    return metadata.uid, annotations, metadata.deletion_timestamp, service.spec
