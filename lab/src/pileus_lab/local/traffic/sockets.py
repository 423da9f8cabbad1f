"""Where the sockets of the data plane are created: the interface of every kind of network."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from pileus.cloud.balancer import Transport
from pileus_lab.local.model.state import State
from pileus_lab.local.traffic.desired import Place

BACKLOG = 512


class Wires(Protocol):
    """One kind of network."""

    async def adapt(self, state: State, now: float) -> bool:
        """Bring links and routes in step with the state; False: not all of it could be done.

        What failed is tried anew at the next call.
        """
        ...

    def towards_instances(self, kind: socket.SocketKind) -> socket.socket:
        """An IPv4 socket that does not block and that reaches the instances."""
        ...

    def at_instance(self, place: Place) -> socket.socket:
        """An instance's socket, bound; for TCP it listens too.

        Errors: `OSError` if the port cannot be had.
        """
        ...


class Loopback:
    """All sockets are this machine's own; there is nothing to set up."""

    async def adapt(self, state: State, now: float) -> bool:  # noqa: ARG002 -- the protocol's
        return True

    def towards_instances(self, kind: socket.SocketKind) -> socket.socket:
        return unconnected(kind)

    def at_instance(self, place: Place) -> socket.socket:
        return bound(place)


def unconnected(kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.setblocking(False)  # noqa: FBT003 -- the library's
    return made


def bound(place: Place) -> socket.socket:
    """A socket that has its place; for TCP it listens too.

    Errors: `OSError` if the address and port cannot be had.
    """
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    if place.transport is Transport.TCP:
        return socket.create_server((place.address, place.port), family=family, backlog=BACKLOG)
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)  # noqa: FBT003 -- the library's
        made.bind((place.address, place.port))
    except OSError:
        made.close()
        raise
    return made


async def dialled(
    wires: Wires, address: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an instance. Errors: `OSError`; the caller sets the deadline."""
    made = wires.towards_instances(socket.SOCK_STREAM)
    try:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
        return await asyncio.open_connection(sock=made)
    except BaseException:
        made.close()
        raise


Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


async def server_at(
    bound: socket.socket, connected: Connected, *, longest_line: int
) -> asyncio.Server:
    """A server on that socket that accepts nobody yet. Never suspends."""
    return await asyncio.start_server(
        connected, sock=bound, limit=longest_line, backlog=BACKLOG, start_serving=False
    )
