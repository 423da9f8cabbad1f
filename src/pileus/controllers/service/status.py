"""What is written to a Service: addresses, conditions, the finalizer. Pure.

All of it goes through `services/status`, in one patch per write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum, StrEnum

import msgspec
from msgspec.structs import replace as replace_fields

from pileus.cloud.balancer import Balancer, BalancerState, Ingress
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.options import Options
from pileus.controllers.service.annotations import (
    ENSURED,
    Classes,
    Mode,
    annotation_changes,
    class_of,
    is_load_balancer,
)
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    PortStatus,
    Service,
    ServiceStatus,
)
from pileus.kube.model.meta import Condition
from pileus.kube.patch import StrategicPatch
from pileus.objects.events import shortened

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"

CONDITION = "pileus.dev/Ready"
"""True: the load balancer matches the Service. False: it does not, for the given reason.
Unknown: the cloud cannot be asked, or another controller implements the load balancer."""

SERVED = "pileus.dev/Served"
"""Present while the Service has a load balancer. Its message is the class under which the Service
was last served. It tells a Service whose class was changed from one whose class was removed from
the manager's flags, also after a restart."""

VIP, PROXY = "VIP", "Proxy"

MOST_INGRESS = 1000
"""Entries of a status that are read. A client with the right to write it can store 40,000."""


class State(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the condition says."""

    state: State
    reason: str
    message: str


READY = Verdict(State.TRUE, "LoadBalancerReady", "The load balancer matches the Service")
NO_MEMBERS = Verdict(State.FALSE, "NoMembers", "There are no available nodes for LoadBalancer")
NOT_FOUND = Verdict(
    State.FALSE,
    "LoadBalancerNotFound",
    "No load balancer was found in the cloud, and pileus.dev/manage does not allow creating one",
)
ELSEWHERE = Verdict(
    State.UNKNOWN,
    "ImplementedElsewhere",
    "The provider reports that another controller implements this load balancer",
)


def pending(problem: str) -> Verdict:
    why = f": {shortened(problem)}" if problem else ""
    return Verdict(State.FALSE, "Pending", f"The cloud is working on the load balancer{why}")


def waits_for_former(uid: str) -> Verdict:
    message = f"A deleted Service of the same name (UID {uid}) is being cleaned up first"
    return Verdict(State.FALSE, "WaitsForFormer", message)


def verdict_of(balancer: Balancer | None, mode: Mode, members: int) -> Verdict:
    """Returns the verdict for a Service that needs no change and no waiting."""
    if balancer is None:
        return ELSEWHERE if mode is Mode.FULL else NOT_FOUND
    return READY if members or mode is Mode.OBSERVE else NO_MEMBERS


def ingress_of(balancer: Balancer) -> tuple[LoadBalancerIngress, ...]:
    """Returns the ingress list as the API server stores it: with a mode if there is an IP."""
    return tuple(map(_published, balancer.ingress))


def _published(one: Ingress) -> LoadBalancerIngress:
    mode = PROXY if one.proxied else VIP
    ports = tuple(
        PortStatus(port=each.port, protocol=str(each.transport), error=each.error or None)
        for each in one.ports
    )
    return LoadBalancerIngress(
        ip=one.ip or None,
        hostname=one.hostname or None,
        ip_mode=mode if one.ip else None,
        ports=ports or None,
    )


def published_ingress(service: Service) -> tuple[LoadBalancerIngress, ...]:
    status = service.status and service.status.load_balancer
    return (status and status.ingress) or ()


def published_addresses(service: Service) -> frozenset[str]:
    """Returns the IP addresses and host names in the Service's status, `MOST_INGRESS` at most."""
    named = (
        (usual_address(each.ip or ""), each.hostname or "")
        for each in published_ingress(service)[:MOST_INGRESS]
    )
    return frozenset(name for entry in named for name in entry if name)


def is_same_ingress(
    one: Sequence[LoadBalancerIngress], other: Sequence[LoadBalancerIngress]
) -> bool:
    """Returns whether both mean the same, in the same order: many clients use the first address.

    Spelling and a missing mode do not count.
    """
    if len(one) != len(other):
        return False
    return all(_meaning(here) == _meaning(there) for here, there in zip(one, other, strict=True))


def _meaning(ingress: LoadBalancerIngress) -> tuple[object, ...]:
    mode = (ingress.ip_mode or VIP) if ingress.ip else ""
    host = (ingress.hostname or "").lower().rstrip(".")
    ports = tuple((each.port, each.protocol, each.error or "") for each in ingress.ports or ())
    return usual_address(ingress.ip or ""), host, mode, ports


def condition_of(service: Service, kind: str = CONDITION) -> Condition | None:
    conditions = (service.status and service.status.conditions) or ()
    return next((each for each in conditions if each.type == kind), None)


def has_finalizer(service: Service) -> bool:
    return FINALIZER in (service.metadata.finalizers or ())


def served_class(service: Service) -> str | None:
    """Returns the class under which it was last served, "" for no class; None if unknown."""
    noted = condition_of(service, SERVED)
    return noted.message if noted else None


def went_elsewhere(service: Service, classes: Classes) -> bool:
    """Returns whether it was served by this manager, or a predecessor, and then changed its class.

    False if it was last served under its current class: then another manager serves it, or a flag
    was changed, and its load balancer must stay.
    """
    noted = served_class(service)
    return noted not in {None, class_of(service)} and classes.has(noted or "")


def is_of_other_cloud(service: Service, classes: Classes) -> bool:
    """Returns whether another cloud of this manager served it last, and may have a load balancer.

    The record stays until that cloud has cleaned up, whichever cloud serves the Service now: the
    clouds share one finalizer.
    """
    return served_class(service) in classes.of_others


def may_have_served(service: Service, classes: Classes) -> bool:
    """Returns whether the finalizer on the Service may be ours.

    If it is no longer of type LoadBalancer, the record of its class counts: the default cloud does
    not remove the finalizer of another cloud of this manager.
    """
    is_others = not is_load_balancer(service) and is_of_other_cloud(service, classes)
    return not is_others and classes.may_have_served(service)


def is_served_elsewhere(service: Service, classes: Classes) -> bool:
    """Returns whether another manager has recorded that it serves the Service's current class."""
    is_noted = is_load_balancer(service) and served_class(service) == class_of(service)
    return is_noted and not classes.serve(service)


def served_as(service: Service, now: datetime) -> Condition | None:
    """Returns the condition with the Service's current class; None if it is there already."""
    present, name = condition_of(service, SERVED), class_of(service)
    if present is not None and present.message == name:
        return None
    return Condition(
        type=SERVED,
        status=State.TRUE,
        reason="Class" if name else "NoClass",
        message=name,
        last_transition_time=now.replace(microsecond=0),
    )


def condition(
    present: Condition | None, verdict: Verdict, now: datetime, *, reword: bool
) -> Condition | None:
    """Returns the condition to write; None if the present one says the same.

    A message that differs only in its wording is not rewritten unless `reword`.
    """
    said = present and (present.status, present.reason)
    is_worded_so = present is not None and present.message == verdict.message
    if said == (verdict.state, verdict.reason) and (is_worded_so or not reword):
        return None
    stands = present is not None and present.status == verdict.state
    since = (present.last_transition_time if present and stands else None) or now
    return Condition(
        type=CONDITION,
        status=verdict.state,
        reason=verdict.reason,
        message=verdict.message,
        last_transition_time=since.replace(microsecond=0),
    )


class Finalizer(Enum):
    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One patch of a Service. Fields that are None or empty are not written."""

    finalizer: Finalizer | None = None
    ingress: tuple[LoadBalancerIngress, ...] | None = None
    condition: Condition | None = None
    served: Condition | None = None
    """The condition with the class under which it is served."""
    drops: tuple[str, ...] = ()
    """Types of conditions that are removed."""
    annotations: Mapping[str, str | None] = field(default_factory=dict[str, str | None], hash=False)
    """None removes the annotation."""
    only_this_version: bool = False
    """Whether the write fails with a conflict if the Service has changed meanwhile."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Write()


@dataclass(frozen=True, slots=True)
class Wording:
    """How a condition is written."""

    now: datetime
    reword: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """The provider's record of what it built."""

    text: str | None = None
    """None keeps the present one."""
    is_new: bool = False
    """Whether this pass changed something. Then the annotation as we know it may be outdated: the
    provider may have removed it during the change."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a pass that has nothing left to change or to wait for."""

    balancer: Balancer | None
    members: int
    record: Record = Record()
    declared: Options | None = None
    """The annotations that the provider declares."""


def finalizer_addition(service: Service, classes: Classes, now: datetime) -> Write:
    """Returns the write that adds the finalizer and records the class.

    It fails with a conflict if the Service has changed: it may be in deletion by now.
    """
    served = None if is_of_other_cloud(service, classes) else served_as(service, now)
    return Write(finalizer=Finalizer.ADD, served=served, only_this_version=True)


def condition_write(service: Service, verdict: Verdict, wording: Wording) -> Write:
    """Returns the write of the condition alone."""
    return with_condition(NOTHING, service, verdict, wording)


def published(
    service: Service, balancer: Balancer | None, verdict: Verdict, wording: Wording
) -> Write:
    """Returns the write of addresses and condition. Addresses are kept until it is ready."""
    is_ready = balancer is not None and balancer.state is BalancerState.READY
    wanted = ingress_of(balancer) if balancer is not None and is_ready else None
    if wanted is not None and is_same_ingress(published_ingress(service), wanted):
        wanted = None
    return with_condition(Write(ingress=wanted), service, verdict, wording)


def with_condition(write: Write, service: Service, verdict: Verdict, wording: Wording) -> Write:
    new = condition(condition_of(service), verdict, wording.now, reword=wording.reword)
    return replace(write, condition=new)


def with_class(write: Write, service: Service, classes: Classes, now: datetime) -> Write:
    """Returns the write with the recorded class, if that is wrong, or missing and costs nothing."""
    is_wrong = served_class(service) is not None
    if not has_finalizer(service) or not (write or is_wrong):
        return write
    if is_of_other_cloud(service, classes):
        return write
    return replace(write, served=served_as(service, now))


def with_record(write: Write, service: Service, record: Record) -> Write:
    """Returns the write with the provider's record, unless the Service has it already."""
    has = (service.metadata.annotations or {}).get(ENSURED)
    if record.text is None or (record.text == has and not record.is_new):
        return write
    return replace(write, annotations={**write.annotations, ENSURED: record.text})


def with_reported(write: Write, service: Service, outcome: Outcome) -> Write:
    """Returns the write with the annotations that the provider reports of a ready balancer."""
    balancer = outcome.balancer
    if balancer is None or balancer.state is not BalancerState.READY:
        return write
    changes = annotation_changes(service, balancer.annotations, outcome.declared)
    return replace(write, annotations={**write.annotations, **changes})


def without_finalizer(write: Write, service: Service, mode: Mode) -> Write:
    """Returns the write that also removes the finalizer, in a mode that changes nothing.

    It fails with a conflict if the Service has changed: its load balancer may need the finalizer.
    """
    if mode.writes or not has_finalizer(service):
        return write
    drops = _present(service, SERVED)
    return replace(write, finalizer=Finalizer.REMOVE, drops=drops, only_this_version=True)


def publication(
    service: Service, outcome: Outcome, classes: Classes, mode: Mode, wording: Wording
) -> Write:
    """Returns the last write of a pass that serves: addresses, condition and annotations."""
    verdict = verdict_of(outcome.balancer, mode, outcome.members)
    write = published(service, outcome.balancer, verdict, wording)
    if mode.writes:
        write = with_class(write, service, classes, wording.now)
        write = with_record(write, service, outcome.record)
        write = with_reported(write, service, outcome)
    if is_of_other_cloud(service, classes):
        return write
    return without_finalizer(write, service, mode)


def release(
    service: Service, classes: Classes, mode: Mode, now: datetime, declared: Options | None = None
) -> Write:
    """Returns the last write to a Service that is no longer served, unless another manager does.

    Of several clouds of this manager, the last one removes the finalizer: one that has cleaned up
    records the class of the cloud that is next. With the load balancer, the annotations about it
    are removed.
    """
    if is_of_other_cloud(service, classes):
        return NOTHING
    if is_load_balancer(service) and class_of(service) in classes.of_others:
        return handover(service, now)
    if is_served_elsewhere(service, classes):
        return NOTHING
    write = finalizer_removal(service, mode)
    if mode is not Mode.FULL or service.metadata.deletion_timestamp is not None:
        return write
    return replace(write, annotations=annotation_changes(service, {}, declared))


def handover(service: Service, now: datetime) -> Write:
    """Returns the write that leaves the Service to another cloud of this manager."""
    if not has_finalizer(service):
        return NOTHING
    return Write(served=served_as(service, now), only_this_version=True)


def finalizer_removal(service: Service, mode: Mode) -> Write:
    """Returns the write that removes everything of ours from a Service.

    A load balancer may stay because the Service requests it, and another manager may add its own
    finalizer: in both cases the write fails with a conflict if the Service has changed.
    """
    is_others = is_load_balancer(service) and served_class(service) not in {None, class_of(service)}
    is_deleted = mode is Mode.FULL and bool(published_ingress(service))
    return Write(
        finalizer=Finalizer.REMOVE if has_finalizer(service) else None,
        ingress=() if is_deleted else None,
        drops=_present(service, CONDITION, SERVED),
        only_this_version=is_others or (mode is not Mode.FULL and has_finalizer(service)),
    )


def _present(service: Service, *kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if condition_of(service, kind))


def expected(service: Service, write: Write) -> Service:
    """Returns the Service as the write leaves it, if no other client writes."""
    finalizers = service.metadata.finalizers or ()
    match write.finalizer:
        case Finalizer.ADD if FINALIZER not in finalizers:
            finalizers = (*finalizers, FINALIZER)
        case Finalizer.REMOVE:
            finalizers = tuple(each for each in finalizers if each != FINALIZER)
        case _:
            pass
    annotations = {**(service.metadata.annotations or {}), **write.annotations}
    metadata = replace_fields(
        service.metadata,
        finalizers=finalizers,
        annotations={name: value for name, value in annotations.items() if value is not None},
    )
    status = service.status or ServiceStatus()
    written = tuple(each for each in (write.condition, write.served) if each is not None)
    gone = {*write.drops, *(each.type for each in written)}
    kept = tuple(each for each in status.conditions or () if each.type not in gone)
    if written or gone:
        status = replace_fields(status, conditions=(*kept, *written))
    if write.ingress is not None:
        status = replace_fields(status, load_balancer=LoadBalancerStatus(ingress=write.ingress))
    return replace_fields(service, metadata=metadata, status=status)


def patch_of(service: Service, write: Write) -> StrategicPatch:
    """Returns a strategic merge patch: finalizers and conditions of others are never lost.

    It names the Service's UID and, for `only_this_version`, the version that was read.
    """
    metadata: dict[str, object] = {"uid": service.metadata.uid}
    match write.finalizer:
        case Finalizer.ADD:
            present = service.metadata.finalizers or ()
            metadata["finalizers"] = [FINALIZER]
            metadata["$setElementOrder/finalizers"] = [*present, FINALIZER]
        case Finalizer.REMOVE:
            metadata["$deleteFromPrimitiveList/finalizers"] = [FINALIZER]
        case None:
            pass
    if write.annotations:
        metadata["annotations"] = dict(write.annotations)
    if write.only_this_version:
        metadata["resourceVersion"] = service.metadata.resource_version
    status = _status(write)
    return StrategicPatch({"metadata": metadata} | ({"status": status} if status else {}))


def _status(write: Write) -> dict[str, object]:
    status: dict[str, object] = {}
    if write.ingress is not None:
        ingress = [msgspec.to_builtins(each) for each in write.ingress]
        status["loadBalancer"] = {"ingress": ingress or None}
    written = [_condition(each) for each in (write.condition, write.served) if each is not None]
    dropped = [{"$patch": "delete", "type": kind} for kind in write.drops]
    if written or dropped:
        status["conditions"] = [*written, *dropped]
    return status


def _condition(condition: Condition) -> object:
    """Returns all fields, empty ones too: the API server requires them."""
    return {"message": "", **msgspec.to_builtins(condition)}
