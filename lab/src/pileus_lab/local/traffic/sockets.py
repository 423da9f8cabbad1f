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
        """Applies links and routes of the state. Returns False if some failed.

        They are retried at the next call.
        """
        ...

    def towards_instances(self, kind: socket.SocketKind) -> socket.socket:
        """Returns a non-blocking IPv4 socket that reaches the instances."""
        ...

    def at_instance(self, place: Place) -> socket.socket:
        """Returns a bound socket of an instance; for TCP it listens.

        Raises `OSError` if the port is not available.
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
    """Returns a bound socket; for TCP it listens.

    Raises `OSError` if address and port are not available.
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
    """Connects to an instance. Raises `OSError`; the caller sets the deadline."""
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
    """Returns a server on that socket that does not accept yet. Never suspends."""
    return await asyncio.start_server(
        connected, sock=bound, limit=longest_line, backlog=BACKLOG, start_serving=False
    )
