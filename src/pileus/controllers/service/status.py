"""What is told on a Service of its balancer: addresses, and one condition. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pileus.cloud.balancer import Balancer, Ingress
from pileus.cloud.fingerprint import usual_address
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.classes import class_of
from pileus.kube.model.core_v1 import LoadBalancerIngress, PortStatus, Service
from pileus.kube.model.meta import Condition

CONDITION = "pileus.dev/Ready"
"""True: the balancer is as the Service wants it. False: it is not, for the reason given.
Unknown: the cloud cannot be asked, or nobody is to ask."""

SERVED = "pileus.dev/Served"
"""There while something in the cloud is the Service's. Its message is the class that the Service
had when it was served last: so that also a manager that never served it can tell a Service that
went to another class from one whose class is no longer among its own."""

VIP, PROXY = "VIP", "Proxy"


class State(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the condition is to say."""

    state: State
    reason: str
    message: str


READY = Verdict(State.TRUE, "LoadBalancerReady", "The load balancer is as the Service wants it")
NO_MEMBERS = Verdict(
    State.FALSE, "NoMembers", "There are no available nodes for LoadBalancer: nobody answers"
)
NOT_FOUND = Verdict(
    State.FALSE,
    "LoadBalancerNotFound",
    "No load balancer is found in the cloud, and pileus.dev/manage does not let us make one",
)
ELSEWHERE = Verdict(
    State.UNKNOWN, "ImplementedElsewhere", "The provider says that someone else makes this balancer"
)


def pending(problem: str) -> Verdict:
    why = f": {problem}" if problem else ""
    return Verdict(State.FALSE, "Pending", f"The cloud is at work on the load balancer{why}")


def verdict_of(balancer: Balancer | None, mode: Mode, members: int) -> Verdict:
    """What to say when there is nothing left to do, and nothing to wait for."""
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


def is_same_ingress(
    one: Iterable[LoadBalancerIngress], other: Iterable[LoadBalancerIngress]
) -> bool:
    """Whether both mean the same: order, spelling, and a mode that is left out do not count."""
    return set(map(_meaning, one)) == set(map(_meaning, other))


def _meaning(ingress: LoadBalancerIngress) -> tuple[object, ...]:
    mode = (ingress.ip_mode or VIP) if ingress.ip else ""
    host = (ingress.hostname or "").lower().rstrip(".")
    ports = {(each.port, each.protocol, each.error or "") for each in ingress.ports or ()}
    return usual_address(ingress.ip or ""), host, mode, frozenset(ports)


def condition_of(service: Service, kind: str = CONDITION) -> Condition | None:
    conditions = (service.status and service.status.conditions) or ()
    return next((each for each in conditions if each.type == kind), None)


def served_class(service: Service) -> str | None:
    """The class under which it was served last, "" being none; None if nothing is noted."""
    noted = condition_of(service, SERVED)
    return noted.message if noted else None


def served_as(service: Service, now: datetime) -> Condition | None:
    """The note that it is served under the class that it has; None if that is noted."""
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
    """The condition to be written; None if it says so already.

    A message that is only worded differently is left as it stands unless `reword`.
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
