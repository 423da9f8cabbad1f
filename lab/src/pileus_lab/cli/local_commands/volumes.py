"""`pileus local volumes …` and `pileus local routes …`."""

from pileus.cli.arguments import Argument, Given
from pileus.cloud.errors import NotFound
from pileus.suggest import did_you_mean
from pileus_lab.cli.local_commands.command import Command, Shown, command
from pileus_lab.local.api import Api
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Route, Volume
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute, ListRoutes, normal
from pileus_lab.local.model.volumes import (
    VOLUME_TYPES,
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    ListVolumes,
    ResizeVolume,
)

VOLUME_COLUMNS = ("name", "id", "size", "type", "zone", "attached to", "device")
ROUTE_COLUMNS = ("destination", "target", "cluster", "state")


async def _list_volumes(_: Given, api: Api) -> Shown:
    volumes = (await api.call(ListVolumes())).items
    names = {one.id: one.name for one in (await api.call(ListMachines())).items}
    rows = [_volume_row(volume, names.get(volume.machine, "")) for volume in volumes]
    return Shown(value=volumes, columns=VOLUME_COLUMNS, rows=rows, text="No volumes.")


def _volume_row(volume: Volume, machine: str) -> tuple[str, ...]:
    return (
        volume.name,
        volume.id,
        f"{volume.size_gib} GiB",
        volume.type,
        volume.zone,
        machine or "-",
        volume.device or "-",
    )


async def _create_volume(given: Given, api: Api) -> Shown:
    wanted = CreateVolume(
        name=given.text("name"),
        size_gib=given.number("size") or 0,
        type=given.text("type"),
        zones=(zone,) if (zone := given.text("zone")) else (),
    )
    return _one(await api.call(wanted))


async def _attach(given: Given, api: Api) -> Shown:
    volume = await _named(given.text("name"), api)
    attached = await api.call(AttachVolume(volume=volume.id, machine=given.text("instance")))
    return _one(attached, given.text("instance"))


async def _detach(given: Given, api: Api) -> Shown:
    volume = await _named(given.text("name"), api)
    await api.call(DetachVolume(volume=volume.id, machine=volume.machine))
    return _one(await _named(volume.id, api))


async def _resize(given: Given, api: Api) -> Shown:
    volume = await _named(given.text("name"), api)
    return _one(await api.call(ResizeVolume(volume=volume.id, size_gib=given.number("size") or 0)))


async def _delete_volume(given: Given, api: Api) -> Shown:
    volume = await _named(given.text("name"), api)
    await api.call(DeleteVolume(volume=volume.id))
    return Shown(value=volume, text=f"Deleted {volume.name} ({volume.id}).")


def _one(volume: Volume, machine: str = "") -> Shown:
    shown = machine or volume.machine
    return Shown(value=volume, columns=VOLUME_COLUMNS, rows=[_volume_row(volume, shown)])


async def _named(word: str, api: Api) -> Volume:
    volumes = (await api.call(ListVolumes())).items
    for volume in volumes:
        if word in {volume.name, volume.id}:
            return volume
    hint = did_you_mean(word, [text for one in volumes for text in (one.name, one.id)])
    raise NotFound(f'no volume "{word}"{hint}')


async def _list_routes(_: Given, api: Api) -> Shown:
    routes = (await api.call(ListRoutes())).items
    rows = [_route_row(route) for route in routes]
    return Shown(value=routes, columns=ROUTE_COLUMNS, rows=rows, text="No routes.")


def _route_row(route: Route) -> tuple[str, ...]:
    state = "target is gone" if route.is_blackhole else "active"
    return (route.destination, route.target, route.cluster or "-", state)


async def _create_route(given: Given, api: Api) -> Shown:
    wanted = CreateRoute(
        destination=given.text("destination"),
        target=given.text("instance"),
        cluster=given.text("cluster"),
    )
    route = await api.call(wanted)
    return Shown(value=route, columns=ROUTE_COLUMNS, rows=[_route_row(route)])


async def _delete_route(given: Given, api: Api) -> Shown:
    destination = normal(given.text("destination"))
    for route in (await api.call(ListRoutes())).items:
        if route.destination == destination:
            await api.call(DeleteRoute(destination=destination, cluster=route.cluster))
            return Shown(value=route, text=f"Deleted the route to {destination}.")
    raise NotFound(f"no route to {destination}")


NAME = Argument(name="name", text="Name or ID of the volume.")
SIZE = Argument(name="size", text="Size in GiB.", kind=int)
INSTANCE = Argument(name="instance", text="Name of the instance.")
DESTINATION = Argument(name="destination", text="Destination CIDR.")

VOLUME_VERBS: dict[str, Command] = {
    "list": command("List all volumes.", _list_volumes),
    "create": command(
        "Create a volume. Idempotent: an existing volume of that name is returned.",
        _create_volume,
        Argument(name="name", text="Name of the volume."),
        SIZE,
        Argument(name="--type", text="Volume type.", choices=VOLUME_TYPES, default="standard"),
        Argument(name="--zone", text="Zone; default: the first one."),
    ),
    "attach": command("Attach a volume to an instance.", _attach, NAME, INSTANCE),
    "detach": command("Detach a volume from its instance.", _detach, NAME),
    "resize": command("Grow a volume to at least this size.", _resize, NAME, SIZE),
    "delete": command("Delete a volume that is not attached.", _delete_volume, NAME),
}
ROUTE_VERBS: dict[str, Command] = {
    "list": command("List all routes.", _list_routes),
    "create": command(
        "Create a route to an instance.",
        _create_route,
        DESTINATION,
        INSTANCE,
        Argument(name="--cluster", text="Cluster that owns the route; default: none."),
    ),
    "delete": command(
        "Delete a route, even one that belongs to a cluster.", _delete_route, DESTINATION
    ),
}
