"""`pileus local instances …`."""

from pileus.cli.arguments import Argument, Given
from pileus.cloud.errors import NotFound
from pileus.suggest import did_you_mean
from pileus_lab.cli.local_commands.command import Command, Shown, command, pairs
from pileus_lab.local.api import Api, provider_id
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    FailPorts,
    ListMachines,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import Machine
from pileus_lab.local.model.state import TYPES

COLUMNS = ("name", "state", "type", "zone", "addresses", "provider ID")


async def _list(_: Given, api: Api) -> Shown:
    machines = (await api.call(ListMachines())).items
    rows = [_row(machine) for machine in machines]
    return Shown(value=machines, columns=COLUMNS, rows=rows, text="No instances.")


def _row(machine: Machine) -> tuple[str, ...]:
    addresses = " ".join((*machine.internal, *machine.external))
    return (
        machine.name,
        machine.power.value,
        machine.type,
        machine.zone,
        addresses,
        provider_id(machine.id),
    )


async def _create(given: Given, api: Api) -> Shown:
    made: list[Machine] = []
    for name in given.texts("name"):
        wanted = CreateMachine(
            name=name,
            type=given.text("type"),
            zone=given.text("zone"),
            external=given.is_set("external"),
            ipv6=given.is_set("ipv6"),
            labels=pairs(given, "label"),
        )
        made.append(await api.call(wanted))
    return Shown(value=made, columns=COLUMNS, rows=[_row(machine) for machine in made])


async def _stop(given: Given, api: Api) -> Shown:
    stopped = [await api.call(StopMachine(machine=name)) for name in given.texts("name")]
    return Shown(value=stopped, columns=COLUMNS, rows=[_row(machine) for machine in stopped])


async def _start(given: Given, api: Api) -> Shown:
    started = [await api.call(StartMachine(machine=name)) for name in given.texts("name")]
    return Shown(value=started, columns=COLUMNS, rows=[_row(machine) for machine in started])


async def _delete(given: Given, api: Api) -> Shown:
    machines = (await api.call(ListMachines())).items
    known = {word for machine in machines for word in (machine.name, machine.id)}
    names = given.texts("name")
    for name in names:
        if name not in known:
            raise NotFound(f'no instance "{name}"{did_you_mean(name, known)}')
    for name in names:
        await api.call(DeleteMachine(machine=name))
    return Shown(value=names, text=f"Deleted {', '.join(names)}.")


async def _fail(given: Given, api: Api) -> Shown:
    ports = tuple(int(port) for port in given.texts("port"))
    machine = await api.call(FailPorts(machine=given.text("name"), ports=ports))
    failing = ", ".join(map(str, machine.failing_ports)) or "none"
    text = f"{machine.name} answers 503 to health checks on node ports: {failing}."
    return Shown(value=machine, text=text)


NAME = Argument(name="name", text="Name of the instance.")
NAMES = Argument(name="name", text="Instance name.", many=True)

VERBS: dict[str, Command] = {
    "list": command("List all instances.", _list),
    "create": command(
        "Create instances; they start at once.",
        _create,
        NAMES,
        Argument(name="--type", text="Machine type.", choices=tuple(TYPES), default="small"),
        Argument(name="--zone", text="Zone; default: the one with the fewest instances."),
        Argument(name="--external", text="Add an external address.", kind=bool),
        Argument(name="--ipv6", text="Add an IPv6 address.", kind=bool),
        Argument(
            name="--label", text="Label of the node as KEY=VALUE; may be repeated.", many=True
        ),
    ),
    "stop": command("Stop instances.", _stop, NAMES),
    "start": command("Start instances that are stopped.", _start, NAMES),
    "delete": command("Delete instances.", _delete, NAMES),
    "fail": command(
        "Make an instance answer health checks with 503, like a node without endpoints.",
        _fail,
        NAME,
        Argument(
            name="--port",
            text="Node port; may be repeated. Without it, all ports recover.",
            kind=int,
            many=True,
        ),
    ),
}
