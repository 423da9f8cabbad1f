"""A TCP server that cannot be half opened: cancelled at any point, it is found and closed."""

import asyncio
import socket
from collections.abc import Callable

from pileus_lab.local.traffic.wires import BACKLOG

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


async def server_at(
    bound: socket.socket, connected: Connected, *, longest_line: int
) -> asyncio.Server:
    """A server on that socket that accepts nobody yet. Never suspends."""
    return await asyncio.start_server(
        connected, sock=bound, limit=longest_line, backlog=BACKLOG, start_serving=False
    )
