"""`pileus local balancers …`."""

import re
from collections import Counter

from pileus.cli.arguments import Argument, Given, UsageError
from pileus.cloud.balancer import Transport
from pileus.cloud.errors import NotFound
from pileus.suggest import did_you_mean
from pileus_lab.cli.local_commands.command import Command, Shown, command
from pileus_lab.local.api import Api
from pileus_lab.local.model.balancers import (
    AddMembers,
    CreateBalancer,
    DeleteBalancer,
    ListBalancers,
    ListHealth,
    RemoveMembers,
)
from pileus_lab.local.model.records import (
    Balancer,
    Member,
    Port,
    Probe,
    ProxyHeader,
    Traffic,
)

COLUMNS = ("name", "addresses", "ports", "healthy", "owner", "fingerprint", "id")
PORT = re.compile(r"(\d+):(\d+)(?:/(tcp|udp))?", re.IGNORECASE)


async def _list(_: Given, api: Api) -> Shown:
    balancers = (await api.call(ListBalancers())).items
    health = (await api.call(ListHealth())).items
    healthy = Counter(one.balancer for one in health if not one.problem)
    rows = [_row(one, f"{healthy[one.id]}/{len(one.members)}") for one in balancers]
    return Shown(value=balancers, columns=COLUMNS, rows=rows, text="No balancers.")


def _row(balancer: Balancer, healthy: str) -> tuple[str, ...]:
    mark = balancer.mark
    return (
        balancer.name,
        " ".join(balancer.addresses),
        " ".join(f"{port.port}:{port.node_port}/{port.transport}" for port in balancer.ports),
        healthy,
        f"{mark.cluster}/{mark.owner}" if mark.owner else "manual",
        balancer.fingerprint or "-",
        balancer.id,
    )


async def _health(_: Given, api: Api) -> Shown:
    health = (await api.call(ListHealth())).items
    names = {one.id: one.name for one in (await api.call(ListBalancers())).items}
    rows = [
        (names.get(one.balancer, one.balancer), one.member, one.problem or "healthy")
        for one in health
    ]
    columns = ("balancer", "member", "health")
    return Shown(value=health, columns=columns, rows=rows, text="No members.")


async def _create(given: Given, api: Api) -> Shown:
    health_port = given.number("health-port")
    traffic = Traffic(
        sources=given.texts("source"),
        sticky_seconds=given.number("sticky"),
        probe=Probe(node_port=health_port) if health_port else None,
        proxy=ProxyHeader(given.text("proxy-protocol")),
        drain_seconds=given.number("drain") or 0,
    )
    wanted = CreateBalancer(
        name=given.text("name"),
        ports=tuple(_port(text) for text in given.texts("port")),
        members=tuple(Member(name=name) for name in given.texts("member")),
        traffic=traffic,
        families=("IPv4", "IPv6") if given.is_set("ipv6") else ("IPv4",),
        requested=given.text("address"),
    )
    made = await api.call(wanted)
    return Shown(value=made, columns=COLUMNS, rows=[_row(made, f"?/{len(made.members)}")])


def _port(text: str) -> Port:
    match = PORT.fullmatch(text)
    if match is None:
        raise UsageError(f'--port "{text}" must be PORT:NODEPORT, with /udp behind it for UDP')
    port, node_port, transport = match.groups()
    return Port(
        port=int(port),
        node_port=int(node_port),
        transport=Transport((transport or "TCP").upper()),
    )


async def _delete(given: Given, api: Api) -> Shown:
    balancer = await _named(given.text("name"), api)
    await api.call(DeleteBalancer(balancer=balancer.id))
    return Shown(value=balancer, text=f"Deleted {balancer.name} ({balancer.id}).")


async def _add(given: Given, api: Api) -> Shown:
    balancer = await _named(given.text("name"), api)
    members = tuple(Member(name=name) for name in given.texts("member"))
    return _members(await api.call(AddMembers(balancer=balancer.id, members=members)))


async def _remove(given: Given, api: Api) -> Shown:
    balancer = await _named(given.text("name"), api)
    names = given.texts("member")
    known = [member.name for member in balancer.members]
    for name in names:
        if name not in known:
            raise NotFound(f'{balancer.name} has no member "{name}"{did_you_mean(name, known)}')
    return _members(await api.call(RemoveMembers(balancer=balancer.id, names=names)))


def _members(balancer: Balancer) -> Shown:
    names = ", ".join(member.name for member in balancer.members) or "none"
    return Shown(value=balancer, text=f"Members of {balancer.name}: {names}.")


async def _named(word: str, api: Api) -> Balancer:
    balancers = (await api.call(ListBalancers())).items
    found = [one for one in balancers if word in {one.name, one.id}]
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise UsageError(f'{len(found)} balancers are named "{word}"; give the id: {ids}')
    if not found:
        hint = did_you_mean(word, [text for one in balancers for text in (one.name, one.id)])
        raise NotFound(f'no balancer "{word}"{hint}')
    return found[0]


NAME = Argument(name="name", text="Name or ID of the balancer.")
MEMBERS = Argument(name="member", text="Instance name.", many=True)

VERBS: dict[str, Command] = {
    "list": command("List all balancers.", _list),
    "health": command("List the health of each member.", _health),
    "create": command(
        "Create a balancer that belongs to no cluster.",
        _create,
        Argument(name="name", text="Name of the balancer."),
        Argument(
            name="--port", text="PORT:NODEPORT, or PORT:NODEPORT/udp; may be repeated.", many=True
        ),
        Argument(name="--member", text="Name of an instance; may be repeated.", many=True),
        Argument(name="--source", text="CIDR that may connect; may be repeated.", many=True),
        Argument(name="--sticky", text="Seconds that a client stays with a member.", kind=int),
        Argument(name="--health-port", text="Node port that answers /healthz.", kind=int),
        Argument(
            name="--proxy-protocol",
            text="PROXY protocol header that members get.",
            choices=tuple(ProxyHeader),
            default="none",
        ),
        Argument(
            name="--drain", text="Seconds that existing connections may last.", kind=int, default=30
        ),
        Argument(name="--address", text="Address to listen on; default: any address of the pool."),
        Argument(name="--ipv6", text="Listen on IPv6 too.", kind=bool),
    ),
    "delete": command("Delete a balancer, even one that belongs to a cluster.", _delete, NAME),
    "add": command("Add members.", _add, NAME, MEMBERS),
    "remove": command("Remove members; their connections drain.", _remove, NAME, MEMBERS),
}
