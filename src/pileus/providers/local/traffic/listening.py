"""A TCP server that cannot be half opened: cancelled at any point, it is found and closed."""

import asyncio
import socket
from collections.abc import Callable

from pileus.providers.local.traffic.wanted import Place

BACKLOG = 512

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


async def bound_server(place: Place, connected: Connected, *, longest_line: int) -> asyncio.Server:
    """A server that has its address, and does not listen yet. Never suspends.

    Errors: `OSError` if the address and port cannot be had.
    """
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    bound = socket.create_server((place.address, place.port), family=family, backlog=BACKLOG)
    return await asyncio.start_server(
        connected, sock=bound, limit=longest_line, backlog=BACKLOG, start_serving=False
    )
