"""Whether the members of balancers can take traffic: as checked, or else as it must be."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pileus_lab.local.model.machines import as_of
from pileus_lab.local.model.operation import Request
from pileus_lab.local.model.records import Balancer, Machine, Member, Page, Power, Record
from pileus_lab.local.model.state import Moment, State

LISTENER = "listener "


class MemberHealth(Record, frozen=True):
    balancer: str
    member: str
    """Its name; or `listener …` for one that cannot listen."""
    problem: str = ""
    """Empty: it is healthy."""


class ListHealth(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.health"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[MemberHealth]

    def step(self, state: State, moment: Moment) -> tuple[State, Page[MemberHealth]]:
        told = (
            MemberHealth(
                balancer=balancer.id,
                member=member.name,
                problem=_problem(state, balancer, member, moment),
            )
            for balancer in state.balancers.values()
            for member in balancer.members
        )
        return state, Page(items=(*told, *_listeners(state, moment)))


def _listeners(state: State, moment: Moment) -> Iterator[MemberHealth]:
    for (balancer, name), problem in (moment.health or {}).items():
        if balancer in state.balancers and name.startswith(LISTENER):
            yield MemberHealth(balancer=balancer, member=name, problem=problem)


def listener_problems(moment: Moment) -> Mapping[str, str]:
    """What keeps balancers from listening, by id; those that can are not in it."""
    told: dict[str, list[str]] = {}
    for (balancer, name), problem in (moment.health or {}).items():
        if name.startswith(LISTENER) and problem:
            told.setdefault(balancer, []).append(f"{name}: {problem}")
    return {balancer: "; ".join(sorted(problems)) for balancer, problems in told.items()}


def _problem(state: State, balancer: Balancer, member: Member, moment: Moment) -> str:
    if moment.health is not None:
        return moment.health.get((balancer.id, member.name), "not checked yet")
    machine = machine_of(state, member)
    if machine is None:
        return "no such instance"
    power = as_of(machine, moment.now).power
    if power is not Power.RUNNING:
        return f"instance is {power}"
    probe = balancer.traffic.probe
    return "answers 503" if probe and probe.node_port in machine.failing_ports else ""


def machine_of(state: State, member: Member) -> Machine | None:
    """By id if the member has one: a name may have been given anew."""
    if member.machine:
        return state.machines.get(member.machine)
    return state.machine_named(member.name)
