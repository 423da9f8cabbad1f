"""Operations on machines: create, stop, start, delete, list."""

import re
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

import msgspec
from msgspec.structs import replace as changed

from pileus.cloud.errors import Conflict, NotFound, Rejected
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import Machine, Page, Power
from pileus_lab.local.model.state import (
    TYPES,
    Moment,
    Request,
    State,
    give,
    hold_quota,
    identified,
    with_item,
    without,
)

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def machine_as_of(machine: Machine, now: float) -> Machine:
    """Returns the machine at that time: a pending one may be running by then."""
    if machine.power is Power.PENDING and now >= machine.ready_at:
        return changed(machine, power=Power.RUNNING)
    return machine


class CreateMachine(Request, frozen=True):
    NAME: ClassVar[str] = "instances.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Machine

    name: str
    type: str = "small"
    zone: str = ""
    """Empty: the zone with the fewest machines."""
    external: bool = False
    ipv6: bool = False
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    uuid: str = ""
    """Empty: a new one."""

    def step(self, state: State, moment: Moment) -> tuple[State, Machine]:
        self._check(state, moment)
        hold_quota("instances", len(state.machines) + 1, state.quota.instances)
        state, identity = identified(state, "i", moment)
        settings = moment.settings
        internal = [_give(state, settings.internal_pool)]
        if self.ipv6:
            internal.append(_give(state, settings.internal_pool_v6))
        machine = Machine(
            id=identity,
            name=self.name,
            uuid=self.uuid or str(UUID(int=moment.chance.getrandbits(128), version=4)),
            type=self.type,
            zone=self.zone or _emptiest(state, settings.zones),
            power=Power.PENDING,
            ready_at=moment.now + settings.boot_seconds,
            internal=tuple(internal),
            external=(_give(state, settings.external_pool),) if self.external else (),
            labels=self.labels,
        )
        state = replace(state, machines=with_item(state.machines, identity, machine))
        return state, machine_as_of(machine, moment.now)

    def _check(self, state: State, moment: Moment) -> None:
        if not NAME.fullmatch(self.name):
            raise Rejected(
                f'"{self.name}" cannot be the name of an instance: '
                'lower-case letters, digits, "-" and ".", at most 63, no "-" or "." at the ends'
            )
        if state.machine_named(self.name):
            raise Conflict(f'instance "{self.name}" already exists; choose another name')
        if self.uuid and any(one.uuid == self.uuid for one in state.machines.values()):
            raise Conflict(f"an instance with the UUID {self.uuid} already exists")
        _check_known("type", self.type, tuple(TYPES))
        if self.zone:
            _check_known("zone", self.zone, moment.settings.zones)


def _check_known(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise Rejected(
            f'unknown {what} "{word}" (known: {", ".join(known)}){did_you_mean(word, known)}'
        )


def _give(state: State, pool: str) -> str:
    taken = {ip for one in state.machines.values() for ip in (*one.internal, *one.external)}
    return give(pool, state.serial - 1, lambda address: address not in taken)


def _emptiest(state: State, zones: tuple[str, ...]) -> str:
    used = [machine.zone for machine in state.machines.values()]
    return min(zones, key=used.count)


class StopMachine(Request, frozen=True):
    """Stops a machine. Stopping a stopped one changes nothing."""

    NAME: ClassVar[str] = "instances.stop"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Machine

    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, Machine]:
        machine = changed(state.machine(self.machine), power=Power.STOPPED)
        return _put(state, machine), machine


class StartMachine(Request, frozen=True):
    """Starts a machine. Starting one that is not stopped changes nothing."""

    NAME: ClassVar[str] = "instances.start"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Machine

    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, Machine]:
        machine = state.machine(self.machine)
        if machine.power is Power.STOPPED:
            ready_at = moment.now + moment.settings.boot_seconds
            machine = changed(machine, power=Power.PENDING, ready_at=ready_at)
        return _put(state, machine), machine_as_of(machine, moment.now)


class DeleteMachine(Request, frozen=True):
    """Deletes a machine and detaches its volumes; routes to it lead nowhere.

    Deleting a missing one succeeds.
    """

    NAME: ClassVar[str] = "instances.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    machine: str

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        try:
            machine = state.machine(self.machine)
        except NotFound:
            return state, None
        volumes = {
            key: one.without_machine(machine.id) if machine.id in one.machines else one
            for key, one in state.volumes.items()
        }
        machines = without(state.machines, machine.id)
        return replace(state, machines=machines, volumes=volumes), None


class FailPorts(Request, frozen=True):
    """Makes a machine answer health checks on exactly these node ports with 503."""

    NAME: ClassVar[str] = "instances.fail_ports"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Machine

    machine: str
    ports: tuple[int, ...] = ()

    def step(self, state: State, moment: Moment) -> tuple[State, Machine]:
        ports = tuple(sorted(set(self.ports)))
        machine = changed(state.machine(self.machine), failing_ports=ports)
        return _put(state, machine), machine_as_of(machine, moment.now)


class ListMachines(Request, frozen=True):
    NAME: ClassVar[str] = "instances.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Machine]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Machine]]:
        machines = tuple(machine_as_of(one, moment.now) for one in state.machines.values())
        return state, Page(items=machines)


def _put(state: State, machine: Machine) -> State:
    return replace(state, machines=with_item(state.machines, machine.id, machine))
