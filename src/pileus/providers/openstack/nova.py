"""Nova's servers, flavors and volume attachments, and their lists.

    nova = Nova(client)
    servers = await nova.servers()
    server = await nova.server("<server id>")

Every list is complete or raises `CloudError`, with one exception that Nova does not report: servers
of a cell whose database does not respond are left out of filtered lists and of every page but the
first. So a server that is missing from a list may exist. `server` is exact: Nova knows the IDs of
all servers without their cells.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

import msgspec

from pileus.cloud.errors import NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Client, Query, Service

MICROVERSION = "2.69"
"""Of Nova 19 (Stein, 2019). Since 2.47 a server carries the name of its flavor; since 2.69 servers
of a cell that does not respond are returned without a name instead of being left out."""
_SPECIAL = frozenset("\\.+*?()|[]{}^$")


class NetworkAddress(msgspec.Struct, frozen=True, kw_only=True):
    addr: str
    type: str = msgspec.field(default="fixed", name="OS-EXT-IPS:type")
    """`fixed` or `floating`."""


class ServerFlavor(msgspec.Struct, frozen=True, kw_only=True):
    """The flavor of a server as it was when the server was created or resized."""

    original_name: str = ""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    """Not unique. Empty if the cell of the server does not respond."""
    status: str = "UNKNOWN"
    power_state: int = msgspec.field(default=0, name="OS-EXT-STS:power_state")
    task_state: str | None = msgspec.field(default=None, name="OS-EXT-STS:task_state")
    zone: str | None = msgspec.field(default=None, name="OS-EXT-AZ:availability_zone")
    access_ipv4: str | None = msgspec.field(default=None, name="accessIPv4")
    access_ipv6: str | None = msgspec.field(default=None, name="accessIPv6")
    metadata: dict[str, str] = {}
    addresses: dict[str, tuple[NetworkAddress, ...]] = {}
    """By name of the network."""
    flavor: ServerFlavor = ServerFlavor()

    @property
    def is_known(self) -> bool:
        """False if Nova only returned that it exists, because its cell does not respond."""
        return bool(self.name)


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class VolumeAttachment(msgspec.Struct, frozen=True, kw_only=True):
    volume_id: str = msgspec.field(name="volumeId")
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Nova:
    """Typed requests to Nova. A write may be refused with a `CloudError`; none is repeated."""

    client: Client

    async def servers(self) -> tuple[Server, ...]:
        """Returns all servers of the project.

        The first page is asked for without any parameter, so that it has servers of cells that do
        not respond. Nova chooses the size of pages: `max_limit`, 1000 unless configured otherwise.
        """
        return await self._servers("/servers/detail")

    async def server_names(self) -> tuple[Server, ...]:
        """As `servers`, but only IDs and names are set. Much cheaper for Nova."""
        return await self._servers("/servers")

    async def servers_named(self, names: Iterable[str]) -> tuple[Server, ...]:
        """Returns servers of the project with these names, perhaps in another case.

        One request per name: with MySQL, Nova searches for `|` as a character, so that one pattern
        for several names would find nothing.
        """
        found: dict[str, Server] = {}
        for name in sorted(set(names)):
            pattern = f"^{_quoted(name)}$"
            for server in await self._servers("/servers/detail", [("name", pattern)]):
                found[server.id] = server
        return tuple(found.values())

    async def server(self, server_id: str) -> Server:
        """Raises `NotFound` if there is no such server."""
        return await self.client.get(
            Service.COMPUTE,
            f"/servers/{quote(server_id, safe='')}",
            "server",
            Server,
            microversion=MICROVERSION,
        )

    async def has_known(self, server_id: str) -> bool:
        """Returns whether the project has or had a server of this ID.

        Nova keeps the actions of deleted servers until its administrator archives them.
        """
        path = f"/servers/{quote(server_id, safe='')}/os-instance-actions"
        try:
            await self.client.send(
                "GET", Service.COMPUTE, path, query=[("limit", "1")], microversion=MICROVERSION
            )
        except NotFound:
            return False
        return True

    async def flavors(self) -> tuple[Flavor, ...]:
        """Returns the flavors that the project can use."""
        return await self.client.all_pages(
            Service.COMPUTE, "/flavors", "flavors", Flavor, microversion=MICROVERSION
        )

    async def attached(self, server_id: str) -> tuple[VolumeAttachment, ...]:
        """Returns the volumes of a server. Raises `NotFound` if there is no such server."""
        return await self.client.all_pages(
            Service.COMPUTE,
            f"/servers/{quote(server_id, safe='')}/os-volume_attachments",
            "volumeAttachments",
            VolumeAttachment,
            microversion=MICROVERSION,
        )

    async def attach(self, server_id: str, volume_id: str) -> None:
        """Start to attach a volume. Raises `NotFound` if the server or the volume is missing."""
        body: Mapping[str, object] = {"volumeAttachment": {"volumeId": volume_id}}
        path = f"/servers/{quote(server_id, safe='')}/os-volume_attachments"
        await self.client.send("POST", Service.COMPUTE, path, body, microversion=MICROVERSION)

    async def detach(self, server_id: str, volume_id: str) -> None:
        """Start to detach a volume.

        Raises `NotFound` if there is no such server, or if the volume is not attached to it.
        """
        path = f"/servers/{quote(server_id, safe='')}/os-volume_attachments"
        await self.client.send(
            "DELETE",
            Service.COMPUTE,
            f"{path}/{quote(volume_id, safe='')}",
            microversion=MICROVERSION,
        )

    async def _servers(self, path: str, query: Query = ()) -> tuple[Server, ...]:
        """Returns each server once, also if it was on two pages."""
        found = await self.client.all_pages(
            Service.COMPUTE, path, "servers", Server, query=query, microversion=MICROVERSION
        )
        return tuple({server.id: server for server in found}.values())


def _quoted(text: str) -> str:
    """Returns a regular expression for the text that all databases of Nova understand."""
    return "".join(f"\\{one}" if one in _SPECIAL else one for one in text)
